"""Find out which channels of a network belong together.

An *atom* is a group of channels that are always adjacent. An axis of a tensor is a `Layout`: a sequence of atoms, each
channel of which has `inner` positions (in a flattened picture each channel has height x width positions). Operations
connect atoms:

- an addition *unites* atoms: they are the same channels from then on;
- a concatenation puts them in a sequence; a cut through an atom *splits* it;
- a grouped convolution *links* atoms: they are different channels, but have to grow in the same way;
- an operation that cannot be followed *fixes* atoms, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Role = Literal["out", "in"]  # "out": the layer makes these channels, or passes them on; "in": the layer reads them


class Family:
    """Atoms that have to grow in the same way: as many new channels, copied from the same positions."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reason: str | None = None  # why it cannot grow
        self.unit = 1  # channels are added and copied in groups of this size, for instance heads of attention
        self.uniform: str | None = None  # the layer because of which every channel has to be copied equally often
        self.atoms: list[Atom] = []


class Atom:
    """A group of channels that are always adjacent; `Layout.now` has the present ones after unions and splits."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.same_as: Atom | None = None
        self.parts: tuple[Atom, Atom] | None = None
        self.family = Family(size)
        self.family.atoms.append(self)

    def find(self) -> Atom:
        """Return the atom that represents this one after unions."""
        atom = self
        while atom.same_as is not None:
            atom = atom.same_as
        return atom


class Segment(NamedTuple):
    """One atom in a layout; each of its channels has `inner` positions."""

    atom: Atom
    inner: int = 1

    @property
    def places(self) -> int:
        return self.atom.size * self.inner


@dataclass(frozen=True)
class Layout:
    """The sequence of atoms along one axis of a tensor."""

    segments: tuple[Segment, ...]

    def now(self) -> tuple[Segment, ...]:
        """Return the segments after all unions and splits so far."""
        found: list[Segment] = []
        for atom, inner in self.segments:
            _leaves(atom, inner, found)
        return tuple(found)

    def families(self) -> list[Family]:
        """Return the families along the axis, each once."""
        return list({id(s.atom.family): s.atom.family for s in self.now()}.values())

    def spread(self, outer: int, inner: int) -> Layout:
        """Return the axis merged with an axis of `outer` positions before it and one of `inner` positions after it."""
        return Layout(tuple(Segment(s.atom, s.inner * inner) for s in self.now()) * outer)


def _leaves(atom: Atom, inner: int, found: list[Segment]) -> None:
    atom = atom.find()
    if atom.parts is None:
        found.append(Segment(atom, inner))
    else:
        for part in atom.parts:
            _leaves(part, inner, found)


def new_layout(size: int) -> Layout:
    """Return an axis of new channels."""
    return Layout((Segment(Atom(size)),))


def join(layouts: Sequence[Layout]) -> Layout:
    """Concatenate axes."""
    return Layout(tuple(segment for layout in layouts for segment in layout.now()))


def fix(layout: Layout, reason: str) -> None:
    """Record that these channels cannot grow; the first reason is kept."""
    for family in layout.families():
        family.reason = family.reason or reason


def unite(first: Layout, second: Layout, what: str) -> None:
    """Record that the two axes have the same channels."""
    _in_step([first, second], _unite_atoms, what)


def link(layouts: Sequence[Layout], what: str) -> None:
    """Record that the axes have different channels that must grow in the same way."""
    _in_step(list(layouts), _link_atoms, what)


def cut(layout: Layout, sizes: Sequence[int]) -> list[Layout] | None:
    """Return the axis in pieces of these sizes; None if a cut would go through a channel."""
    pieces: list[Layout] = []
    rest = list(layout.now())
    for size in sizes:
        piece: list[Segment] = []
        while size > 0:
            if not rest:
                return None
            head = rest[0]
            if head.places > size:
                if size % head.inner:
                    return None
                _split(head.atom, size // head.inner)
                rest = list(Layout(tuple(rest)).now())
                continue
            piece.append(rest.pop(0))
            size -= head.places
        pieces.append(Layout(tuple(piece)))
    return pieces


def _in_step(layouts: list[Layout], tie: Callable[[Atom, Atom], None], what: str) -> None:
    """Go along all axes at once and connect the atoms at the same positions, splitting them if needed."""
    rests = [list(layout.now()) for layout in layouts]
    while any(rests):
        rests = [list(Layout(tuple(rest)).now()) for rest in rests]
        if not all(rests) or len({rest[0].inner for rest in rests}) > 1:
            for layout in layouts:
                fix(layout, f"{what} joins channels that are laid out differently")
            return
        smallest = min(rest[0].atom.size for rest in rests)
        larger = [rest[0].atom for rest in rests if rest[0].atom.size > smallest]
        if larger:
            _split(larger[0], smallest)
            continue
        first = rests[0][0].atom
        for rest in rests[1:]:
            tie(first, rest[0].atom)
        rests = [rest[1:] for rest in rests]


def _unite_atoms(first: Atom, second: Atom) -> None:
    first, second = first.find(), second.find()
    if first is not second:
        _link_atoms(first, second)
        second.family.atoms.remove(second)
        second.same_as = first


def _link_atoms(first: Atom, second: Atom) -> None:
    keep, drop = first.find().family, second.find().family
    if keep is drop:
        return
    keep.reason = keep.reason or drop.reason
    for atom in drop.atoms:
        atom.family = keep
    keep.atoms += drop.atoms


def _split(atom: Atom, at: int) -> None:
    """Split an atom, and all that grow in the same way, after its first `at` channels."""
    family = atom.find().family
    heads, tails = Family(at), Family(family.size - at)
    heads.reason = tails.reason = family.reason
    for member in family.atoms:
        head, tail = Atom(at), Atom(family.size - at)
        head.family, tail.family = heads, tails
        heads.atoms.append(head)
        tails.atoms.append(tail)
        member.parts = (head, tail)


@dataclass(frozen=True)
class Value:
    """A tensor whose channels along `axis` (counted from the left) are known."""

    axis: int
    layout: Layout


@dataclass(frozen=True)
class Loose:
    """A parameter that the forward pass uses directly; it gets the channels of the tensor it is combined with."""

    module: str
    name: str
    shape: tuple[int, ...]


Found = Value | Loose | tuple["Value | None", ...] | None  # None: not a tensor, or one that is not followed


@dataclass(frozen=True)
class Use:
    """Says that dimension `dim` of a parameter or buffer has these channels."""

    module: str
    tensor: str
    dim: int
    layout: Layout
    role: Role


@dataclass(frozen=True)
class Size:
    """An attribute of a module that stores its number of channels, divided by `per`."""

    module: str
    attribute: str
    layout: Layout
    per: int = 1


@dataclass
class Channels:
    """Holds all channels of one network: the tensors that use them, and those that make up a layer's width."""

    uses: list[Use] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    width: dict[str, Layout] = field(default_factory=dict)  # weighted layer → the channels that widening adds to
    units: list[tuple[Layout, int, str]] = field(default_factory=list)  # copied in groups, because of a layer
    uniform: list[tuple[Layout, str]] = field(default_factory=list)  # copied equally often, because of a layer
    # where the number of some channels is used to arrange others (or for anything else); both must be the same
    numbers: list[tuple[Layout, Layout | None, str]] = field(default_factory=list)

    def settle(self) -> None:
        """Apply the conditions that need all unions and splits."""
        for layout, arranged, reason in self.numbers:
            same = {id(atom) for atom, _ in arranged.now()} if arranged is not None else set()
            if not all(id(atom) in same for atom, _ in layout.now()):
                fix(layout, reason)
        for layout, unit, what in self.units:
            for atom, inner in layout.now():
                if inner % unit == 0:
                    continue
                if unit % inner or atom.size * inner % unit:
                    fix(layout, f"the groups of {what} do not fit the channels that arrive")
                else:
                    atom.family.unit = math.lcm(atom.family.unit, unit // inner)
        for layout, what in self.uniform:
            if len(layout.families()) > 1:
                fix(layout, f"{what} normalises over channels of different layers")
            for family in layout.families():
                family.uniform = what
        for use in self.uses:
            for family in use.layout.families():
                if family.size % family.unit:
                    family.reason = family.reason or "its channels are grouped in ways that do not fit together"
