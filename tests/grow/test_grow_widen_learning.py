"""Widened layers learn: gradients reach them, and optimizer state is carried over."""

from __future__ import annotations

import copy

import pytest
import torch
from grow_networks import FAMILIES, difference, mlp
from torch import Tensor, nn
from wide_networks import NETWORKS, WIDE, widenable

from argosy.grow.surgery.history import Origin, origins_of
from argosy.grow.surgery.optimizer import carry
from argosy.grow.surgery.widen import widen

torch.set_num_threads(1)
SOME = slice(-2, None, 2)  # one site of each network, the last but one, where a test is slow


@pytest.mark.parametrize("init", ["copy", "fresh"])
@pytest.mark.parametrize("name", ["residual", "mobilenet", "transformer", "grouped", "mlp_gelu", *WIDE])
def test_every_new_parameter_gets_gradient_within_two_steps(name: str, init: str) -> None:
    model, example = NETWORKS[name].build(batch=16)
    for i, site in enumerate(widenable(model, example, init=init)[SOME]):
        wider = widen(model, site, 2, example=example, init=init, seed=i).train()
        for part in wider.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        seen = {n: torch.zeros_like(p, dtype=torch.bool) for n, p in wider.named_parameters()}
        target = torch.randn(wider(example).shape)
        optimizer = torch.optim.SGD(wider.parameters(), lr=0.05)
        for _ in range(2):
            optimizer.zero_grad()
            (wider(example) - target).square().mean().backward()
            for n, p in wider.named_parameters():
                seen[n] |= p.grad != 0 if p.grad is not None else False
            optimizer.step()
        old, base = dict(model.named_parameters()), _gradient_seen(model, example)
        for n, origin in origins_of(wider)[-1].items():
            assert origin is not None
            wanted = _alive(origin, base[n]) & ~_old_places(origin, old[n])
            if init == "fresh" and n.endswith("in_proj_bias"):
                wanted.chunk(3)[1].fill_(False)  # a shift of all keys never matters
            share = float(seen[n][wanted].float().mean()) if wanted.any() else 1.0
            assert share >= (0.99 if init == "copy" else 0.6), (site, n, share)  # a fresh ReLU may be silent


def _gradient_seen(model: nn.Module, example: Tensor) -> dict[str, Tensor]:
    twin = copy.deepcopy(model).train()
    for part in twin.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    (twin(example) - torch.randn(twin(example).shape)).square().mean().backward()
    return {n: torch.zeros_like(p) != 0 if p.grad is None else p.grad != 0 for n, p in twin.named_parameters()}


def _old_places(origin: Origin, old: Tensor) -> Tensor:
    """Which places of a grown parameter were there before (copies and fresh ones were not)."""
    mask = torch.ones([len(i) if i is not None else old.shape[d] for d, i in enumerate(origin.index)], dtype=torch.bool)
    for dim, index in enumerate(origin.index):
        if index is not None:
            first = torch.tensor([i >= 0 and i not in index[:at].tolist() for at, i in enumerate(index.tolist())])
            mask &= first.reshape([-1 if d == dim else 1 for d in range(old.dim())])
    return mask


def _alive(origin: Origin, seen: Tensor) -> Tensor:
    """Where the original gets gradient; for a fresh place, anywhere along its dimension."""
    for dim, index in enumerate(origin.index):
        if index is not None:
            anywhere = seen.any(dim, keepdim=True)
            taken = seen.index_select(dim, index.clamp(min=0))
            fresh = (index < 0).reshape([-1 if d == dim else 1 for d in range(seen.dim())])
            seen = torch.where(fresh, anywhere, taken)
    return seen


@pytest.mark.parametrize("name", ["residual", "densenet", "transformer", *WIDE])
def test_gradients_of_copies_are_what_the_origins_say(name: str) -> None:
    """Copies get a share of the gradient of incoming weights and all of that of outgoing weights."""
    model, example = NETWORKS[name].build(batch=4)
    model, example = model.double(), example.double()
    for site in widenable(model, example)[:3]:
        wider = widen(model, site, 2, example=example, seed=1)
        target = torch.randn(model(example).shape, dtype=torch.float64)
        for each in (model, wider):
            each.zero_grad()
            (each(example) - target).square().mean().backward()
        old = dict(model.named_parameters())
        origins = origins_of(wider)[-1]
        for n, parameter in wider.named_parameters():
            origin = origins.get(n, Origin(n))
            assert origin is not None and parameter.grad is not None
            assert torch.allclose(parameter.grad, origin.map(old[origin.name].grad), atol=1e-9), (site, n)


@pytest.mark.parametrize("init", ["copy", "fresh"])
def test_momentum_and_moments_follow(init: str) -> None:
    """Copies take their share of the first moment and its square of the second; fresh channels start at zero."""
    torch.manual_seed(0)
    model, x, y = mlp(4, 6, 3), torch.randn(9, 4), torch.randn(9, 3)
    for make in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p)):
        optimizer = make(model.parameters())
        for _ in range(3):
            _step(model, optimizer, x, y)
        wider = widen(model, "0", 2, example=x, init=init)
        carried = carry(optimizer, model, wider)
        for key, power in (("momentum_buffer", 1), ("exp_avg", 1), ("exp_avg_sq", 2)):
            old = optimizer.state[model[0].weight].get(key)
            if old is None:
                continue
            new = carried.state[wider[0].weight][key]
            share = 0.5**power if init == "copy" else 1.0
            assert torch.allclose(new[:6], old * share)
            index = origins_of(wider)[-1]["0.weight"].index[0]
            assert torch.allclose(new[6:], old[index[6:]] * share if init == "copy" else torch.zeros(6, 4))
            outgoing = carried.state[wider[2].weight][key]
            assert torch.allclose(outgoing[:, :6], optimizer.state[model[2].weight][key])
        _step(wider, carried, x, y)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()


def test_noise_tells_copies_apart() -> None:
    torch.manual_seed(0)
    model, x = mlp(5, 8, 3), torch.randn(16, 5)
    for noise, apart in ((0.0, False), (0.1, True)):
        wider = widen(model, "0", 2, example=x, noise=noise)
        optimizer = torch.optim.SGD(wider.parameters(), lr=0.1)
        for _ in range(3):
            _step(wider, optimizer, x, torch.zeros(16, 3))
        origin = origins_of(wider)[-1]["0.weight"].index[0]
        weight = wider[0].weight.detach()
        gap = float((weight - weight[origin]).abs().max())
        assert (gap > 1e-3) == apart
    noisy = widen(model, "0", 2, example=x, noise=0.01)
    assert torch.equal(noisy[0].weight[:8], model[0].weight)
    assert 0 < difference(model, noisy, x) < 0.1


def test_fresh_channels_leave_norms_at_a_sane_scale() -> None:
    model, example = FAMILIES["vgg11"].build(batch=16)
    wider = widen(model, "features.0", 2, example=50 * example, init="fresh")
    seen: list[Tensor] = []
    wider.features[1].register_forward_hook(lambda _m, _i, out: seen.append(out.detach().clone()))
    wider.eval()(50 * example)
    scale = seen[0][:, 4:].std((0, 2, 3))
    assert torch.allclose(scale, torch.ones_like(scale), atol=0.05)
