"""Where a network can grow: found by tracing, refused with reasons, and marked where tracing fails."""

from __future__ import annotations

import pytest
import torch
from grow_networks import FAMILIES, difference, fingerprint
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

from argosy.grow.errors import GrowError, NoSuchSite, NotTraceable
from argosy.grow.models import cnn1
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.sites import sites
from argosy.grow.surgery.trace import Block

torch.set_num_threads(1)


def test_sites_name_the_layers_of_the_original_and_what_belongs_to_them() -> None:
    model, example = cnn1(4, channels=1), torch.randn(4, 1, 12, 12)
    found = sites(model, example)
    assert [(site.name, site.kind, site.layers) for site in found] == [
        ("0", "conv2d", ("0", "1", "2")),
        ("4", "conv2d", ("4", "5", "6")),
        ("9", "linear", ("9",)),
    ]
    assert found.named("4").example is example
    assert "example" not in repr(found[0])
    with pytest.raises(NoSuchSite, match="no site 'x'"):
        found.named("x")


def test_names_survive_growth() -> None:
    model, example = cnn1(4, channels=1).eval(), torch.randn(4, 1, 12, 12)
    names = [site.name for site in sites(model, example)]
    grown = model
    for name in [*names, *names]:
        grown = deepen(grown, name, example=example)
    found = sites(grown, example)
    assert [site.name for site in found if site.original] == names
    assert len(found) == 9
    assert difference(model, grown, example) <= 1e-5


def test_the_table_shows_every_layer_once() -> None:
    model, example = FAMILIES["transformer"].build()
    found = sites(model, example)
    lines = str(found).splitlines()
    assert len(lines) == 1 + len(found) + len(found.refused)
    assert any("blocks.0.attention" in line and "can be widened (more heads), not deepened" in line for line in lines)


class _Net(nn.Module):
    """Two linear layers, which tests modify in various ways."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.relu(self.one(x)))


class _CalledTwice(_Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.relu(self.one(torch.relu(self.one(x)))))


class _InPlace(_Net):
    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        z = torch.relu_(y)
        return self.two(z) + y


class _ReadDirectly(_Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + F.linear(x, self.one.weight)


class _OwnForward(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight - self.weight.mean(), self.bias)


def _changed(how: str) -> nn.Module:
    model = {"called": _CalledTwice, "in place": _InPlace, "direct": _ReadDirectly}.get(how, _Net)()
    if how == "tied":
        model.two.weight = model.one.weight
    elif how == "aliased":
        model.three = model.one
    elif how == "frozen":
        model.one.weight.requires_grad_(False)
    elif how == "parametrised":
        parametrizations.weight_norm(model.one)
    elif how == "pruned":
        prune.random_unstructured(model.one, "weight", 0.5)
    elif how == "own":
        model.one = _OwnForward(4, 4)
    return model


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("called", "used more than once .called 2 times"),
        ("aliased", "registered as one, three"),
        ("tied", "its weights are shared with two.weight"),
        ("frozen", "frozen .weight: requires_grad is False"),
        ("parametrised", "parametrised"),
        ("pruned", "computed from other tensors"),
        ("in place", "changed in place by relu_ and also read by add"),
        ("direct", "reads one.weight directly"),
        ("own", "does not call it as a layer"),
    ],
)
def test_layers_that_must_not_be_touched_are_refused(how: str, reason: str) -> None:
    model, example = _changed(how), torch.randn(3, 4)
    before = fingerprint(model)
    site = sites(model, example).named("one")
    assert not site.can_deepen
    with pytest.raises(NoSuchSite, match=f"cannot deepen 'one': .*{reason}"):
        deepen(model, site)
    assert fingerprint(model) == before


def test_in_place_activations_of_the_block_itself_are_fine() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)).eval()
    example = torch.randn(5, 4)
    assert sites(model, example).named("0").can_deepen
    grown = deepen(deepen(model, "0", example=example), "2", example=example)
    assert difference(model, grown, example) <= 1e-5
    grown(example).sum().backward()


def test_layers_may_be_called_by_keyword_or_with_more_than_their_input() -> None:
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.norm = nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4)
            self.up = nn.ConvTranspose2d(4, 1, 3, stride=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.up(F.relu(self.norm(input=self.down(input=x)), inplace=True), output_size=(8, 8))

    model, example = Keywords().eval(), torch.randn(3, 1, 8, 8)
    grown = deepen(deepen(model, "down", example=example), "up", example=example)
    assert len(grown.norm.after) == 3
    assert [type(part) for part in grown.up.before] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert difference(model, grown, example) <= 1e-5


def test_an_in_place_change_of_the_input_makes_its_sign_unknown() -> None:
    class Shifted(_Net):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.one(x))
            y.sub_(1.0)
            return self.two(y)

    model, example = Shifted(), torch.randn(6, 4)
    assert difference(model, deepen(model, "two", example=example), example) <= 1e-5


def test_a_subclass_that_computes_the_same_is_a_layer() -> None:
    class MyLinear(nn.Linear):
        pass

    model, example = nn.Sequential(MyLinear(4, 3), nn.ReLU()), torch.randn(2, 4)
    assert difference(model, deepen(model, sites(model, example)[0]), example) <= 1e-5


def test_layers_inside_torch_transformers_say_why_they_can_not_be_deepened() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2))
    found = sites(model, torch.randn(2, 3, 8))
    assert "inside nn.TransformerEncoderLayer" in found.named("0.linear1").why_not["deepen"]
    assert found.named("1").can_deepen


def test_quantised_lazy_and_recurrent_layers() -> None:
    with pytest.raises(GrowError, match="lazy layer"):
        sites(nn.Sequential(nn.LazyLinear(3)), torch.randn(2, 4))

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    found = sites(Recurrent(), torch.randn(2, 3, 4))
    assert "GRU is a kind of layer" in found.named("rnn").why_not["deepen"]
    assert found.named("head").can_deepen


class _Branching(nn.Module):
    """A network that cannot be traced as a whole, because a branch depends on values."""

    def __init__(self, marked: bool) -> None:
        super().__init__()
        body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.body = Block(body) if marked else body
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        if y.sum() > 0:
            y = y * 2
        return self.head(y.mean((2, 3)))


def test_marked_blocks_can_grow_where_the_whole_can_not_be_traced() -> None:
    model, example = _Branching(marked=True).eval(), torch.randn(4, 1, 8, 8)
    found = sites(model, example)
    assert [site.name for site in found] == ["body.inner.0"]
    grown = deepen(deepen(model, found[0]), found[0])
    assert [site.name for site in sites(grown, example) if site.original] == ["body.inner.0"]
    assert difference(model, grown, example) <= 1e-5
    with pytest.raises(NoSuchSite, match="not inside a marked block"):
        deepen(model, "head", example=example)


def test_a_single_layer_can_be_marked() -> None:
    model, example = _Branching(marked=False), torch.randn(4, 1, 8, 8)
    model.head = Block(model.head)
    assert [site.name for site in sites(model, example)] == ["head.inner"]
    assert difference(model, deepen(model, "head.inner", example=example), example) <= 1e-5


def test_layers_called_through_a_plain_list_are_refused() -> None:
    class Listed(_Net):
        def __init__(self) -> None:
            super().__init__()
            self.steps = [self.one, self.two]

        def forward(self, x: Tensor) -> Tensor:
            return self.steps[1](torch.relu(self.steps[0](x)))

    with pytest.raises(GrowError, match="does not reach the new layers"):
        deepen(Listed(), "one", example=torch.randn(3, 4))


def test_the_example_is_left_alone_and_every_part_keeps_its_mode() -> None:
    class WritesIntoItsInput(_Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.mul_(2.0))

    model, example = WritesIntoItsInput(), torch.ones(3, 4)
    model.two.eval()
    grown = deepen(model, "one", example=example)
    assert torch.equal(example, torch.ones(3, 4))
    assert (model.training, model.one.training, model.two.training) == (True, True, False)
    assert (grown.training, grown.one.training, grown.two.training) == (True, True, False)


def test_a_network_that_can_not_be_copied_is_explained() -> None:
    model, example = _Net(), torch.randn(3, 4)
    model.cache = model.one.weight * 2.0
    with pytest.raises(GrowError, match="cannot be copied"):
        deepen(model, "two", example=example)


def test_without_marks_the_reason_is_given() -> None:
    with pytest.raises(NotTraceable, match="cannot be traced") as caught:
        sites(_Branching(marked=False), torch.randn(4, 1, 8, 8))
    assert "grow.Block" in str(caught.value)


def test_a_marked_block_that_runs_twice_is_shared() -> None:
    class Twice(_Branching):
        def forward(self, x: Tensor) -> Tensor:
            y = self.body(x) + self.body(2 * x)
            return self.head(y.mean((2, 3))) if y.sum() > 0 else self.head(y.amax((2, 3)))

    found = sites(Twice(marked=True), torch.randn(4, 1, 8, 8))
    assert "called 2 times" in found.named("body.inner.0").why_not["deepen"]


def test_an_example_of_the_wrong_shape_is_explained() -> None:
    model = cnn1(4)
    with pytest.raises(GrowError, match="does not accept an example input of shape 2x1x9x9"):
        sites(model, torch.zeros(2, 1, 9, 9))
    assert all(part.training for part in model.modules())


def test_a_size_written_into_the_forward_pass_is_no_obstacle_to_deepening() -> None:
    class Fixed(_Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.two(torch.relu(self.one(x)).view(-1, 4))

    model, example = Fixed(), torch.randn(3, 4)
    assert difference(model, deepen(model, "one", example=example), example) <= 1e-5


def test_a_network_that_draws_random_numbers_can_grow() -> None:
    class Noisy(_Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.randn_like(x)

    assert deepen(Noisy(), "one", example=torch.randn(3, 4)).one.after


def test_a_network_that_answers_differently_each_time_is_refused() -> None:
    calls: list[int] = []

    class Counting(_Net):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            return super().forward(x) + len(calls)

    with pytest.raises(GrowError, match=r"differs by .* from the original's"):
        deepen(Counting(), "one", example=torch.randn(3, 4))
