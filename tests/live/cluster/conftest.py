"""Pseudo-hosts for the tests of a cluster: three of them, made once; each test has a backend and agents of its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "local"))  # for yard, which tests of the local backend use too

from field import Field

from argosy.live.demo.pseudo_hosts import PseudoHosts, not_possible, pseudo_hosts

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def network() -> Iterator[PseudoHosts]:
    if why := not_possible():
        pytest.skip(why)
    with pseudo_hosts(3) as made:
        yield made


@pytest.fixture
def field(network: PseudoHosts) -> Iterator[Field]:
    made = Field(network, f"f{next(NUMBERS)}")
    made.start_agents()
    yield made
    made.end_field()
