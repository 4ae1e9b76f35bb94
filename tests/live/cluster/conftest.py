"""Pseudo-hosts for the tests of a cluster: three of them, made once; each test has a backend and agents of its own."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "local"))  # for yard, which tests of the local backend use too

from field import Field
from small_ray import SmallRay, small_ray, why_no_ray
from small_slurm import SmallSlurm, small_slurm, why_no_slurm

from argosy.live.backends.cluster.engines.base import Engine
from argosy.live.backends.cluster.engines.ray import Ray
from argosy.live.backends.cluster.engines.slurm import Slurm
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


@pytest.fixture(scope="session")
def slurm() -> Iterator[SmallSlurm]:
    if why := why_no_slurm():
        pytest.skip(why)
    with small_slurm() as made:
        yield made


@pytest.fixture(scope="session")
def slurm_engine(slurm: SmallSlurm) -> Iterator[Callable[[str], Engine]]:
    """Return what makes an adapter for this Slurm, with the given mark."""
    before = {name: os.environ.get(name) for name in ("SLURM_CONF",)}
    os.environ["SLURM_CONF"] = str(slurm.conf)
    yield lambda mark: Slurm(mark, len(slurm.names), logs=slurm.folder)
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[SmallRay]:
    if why := why_no_ray():
        pytest.skip(why)
    with small_ray() as made:
        yield made


@pytest.fixture(scope="session")
def ray_engine(ray_cluster: SmallRay) -> Callable[[str], Engine]:
    return lambda mark: Ray(mark, ray_cluster.address)
