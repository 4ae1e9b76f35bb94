"""Random architectures for property tests: plain, residual, concatenating, grouped; in one or two dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from grow_networks import season
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

FUNCTIONS: dict[str, Any] = {"relu": F.relu, "relu6": F.relu6, "gelu": F.gelu, "tanh": torch.tanh, "silu": F.silu}


@dataclass(frozen=True)
class StagePlan:
    """One stage of a random network."""

    form: str  # plain, residual, concat, grouped, depthwise
    width: int
    kernel: int
    stride: int
    norm: bool
    activation: str


@dataclass(frozen=True)
class NetPlan:
    """A whole random network."""

    dims: int
    stages: tuple[StagePlan, ...]
    flat: bool  # flatten pictures instead of averaging them
    hidden: bool  # a hidden linear layer in front of the last one
    seed: int

    def build(self) -> tuple[nn.Module, Tensor]:
        """The network, with seasoned statistics and in evaluation mode, and an example batch."""
        torch.manual_seed(self.seed)
        model, example = RandomNet(self), torch.randn(5, 4, *([8] * self.dims))
        season(model, example)
        return model.eval(), example


class Stage(nn.Module):
    """A layer with norm and activation, joined with its input as the plan says."""

    def __init__(self, plan: StagePlan, before: int, dims: int) -> None:
        super().__init__()
        conv: Any = nn.Conv2d if dims == 2 else nn.Conv1d
        norm: Any = nn.BatchNorm2d if dims == 2 else nn.BatchNorm1d
        self.form, self.function = plan.form, FUNCTIONS[plan.activation]
        keeps = plan.form in ("residual", "depthwise")
        width = before if keeps else plan.width
        groups = {"grouped": 2, "depthwise": before}.get(plan.form, 1)
        stride = 1 if plan.form in ("residual", "concat") else plan.stride
        self.conv = conv(before, width, plan.kernel, stride, plan.kernel // 2, groups=groups, bias=not plan.norm)
        self.norm = norm(width) if plan.norm else nn.Identity()
        self.second = conv(width, width, 1) if plan.form == "residual" else None
        self.out = before + width if plan.form == "concat" else width

    def forward(self, x: Tensor) -> Tensor:
        y = self.function(self.norm(self.conv(x)))
        if self.second is not None:
            return self.function(x + self.second(y))
        return torch.cat([x, y], 1) if self.form == "concat" else y


class RandomNet(nn.Module):
    """Stages, then a flat or averaged head."""

    def __init__(self, plan: NetPlan) -> None:
        super().__init__()
        stages, width, size = [], 4, 8
        for each in plan.stages:
            stage = Stage(each, width, plan.dims)
            stages.append(stage)
            width = stage.out
            if each.form not in ("residual", "concat"):
                size = (size + 2 * (each.kernel // 2) - each.kernel) // each.stride + 1
        self.stages = nn.Sequential(*stages)
        self.flat = plan.flat
        features = width * size**plan.dims if plan.flat else width
        self.hidden = nn.Linear(features, 6) if plan.hidden else None
        self.head = nn.Linear(6 if plan.hidden else features, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(x)
        x = x.flatten(1) if self.flat else x.flatten(2).mean(2)
        return self.head(torch.relu(self.hidden(x)) if self.hidden is not None else x)


def net_plans(activations: tuple[str, ...] = tuple(FUNCTIONS)) -> st.SearchStrategy[NetPlan]:
    """Random networks of one to three stages."""
    stage = st.builds(
        StagePlan,
        form=st.sampled_from(("plain", "residual", "concat", "grouped", "depthwise")),
        width=st.sampled_from((4, 6, 8)),
        kernel=st.sampled_from((1, 3, 5)),
        stride=st.sampled_from((1, 2)),
        norm=st.booleans(),
        activation=st.sampled_from(activations),
    )
    return st.builds(
        NetPlan,
        dims=st.sampled_from((1, 2)),
        stages=st.lists(stage, min_size=1, max_size=3).map(tuple),
        flat=st.booleans(),
        hidden=st.booleans(),
        seed=st.integers(0, 1000),
    )
