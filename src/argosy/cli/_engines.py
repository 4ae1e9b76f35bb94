"""What `argosy serve` needs for a cluster whose agents an engine starts: Slurm or Ray."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.live.backends.cluster.engines.base import Engine
    from argosy.live.home import Home

RAY = "ray://"


def is_engine(cluster: str) -> bool:
    """Return whether a cluster is named by its engine."""
    return cluster == "slurm" or cluster.startswith(RAY)


def check_engine_options(cluster: str, host: str, **of_slurm: object) -> None:
    """Refuse options that do not go together, before anything is started."""
    if host in ("0.0.0.0", "::"):
        hint = "give the address or name of this machine that the nodes can reach"
        raise InputError("agents must be told one address of the daemon", where=f"--host {host}", hint=hint)
    given = [f"--{name.replace('_', '-')}" for name, value in of_slurm.items() if value]
    if cluster != "slurm" and given:
        raise InputError(f"{', '.join(given)}: only for --cluster slurm", hint="leave it out")


def check_encryption(agents: bool, own: bool, cert: Path | None, key: Path | None) -> None:
    """Refuse options for encryption that do not go together, or that the agents of other hosts cannot do without."""
    if (cert is None) != (key is None) or (own and cert is not None):
        hint = "give both --tls-cert and --tls-key; or --tls alone, for certificates of its own"
        raise InputError("the options for encryption cannot be combined in this way", hint=hint)
    if agents and not own and cert is None:
        hint = "add --tls, and --host with an address that the nodes can reach"
        raise InputError("agents of other hosts register over the network, which must be encrypted", hint=hint)


def make_engine(
    cluster: str,
    home: Home,
    nodes: int | None,
    slots: int | None,
    shared: Path | None,
    *,
    partition: str | None,
    time_limit: str | None,
    sbatch: Sequence[str],
) -> tuple[Engine, Cluster]:
    """Return the engine's adapter, and the cluster that it offers."""
    from argosy.cluster.cluster import Cluster

    mark = f"argosy-{hashlib.sha256(os.fsencode(home.folder.resolve())).hexdigest()[:8]}"
    engine: Engine
    if cluster == "slurm":
        from argosy.live.backends.cluster.engines.slurm import Slurm

        logs = shared.absolute() / "agents" if shared else None
        engine = Slurm(
            mark, nodes or 2, partition=partition, slots=slots, time_limit=time_limit, options=sbatch, logs=logs
        )
    else:
        from argosy.live.backends.cluster.engines.ray import Ray

        engine = Ray(mark, cluster.removeprefix(RAY), count=nodes, slots=slots)
    found = Cluster(tuple(engine.nodes()), cluster.partition(":")[0])
    if cluster == "slurm" and shared is not None:
        _make(shared.absolute() / "agents")
    return engine, found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        hint = "give a folder that the head and all nodes mount at the same path"
        raise InputError(
            f"the shared folder cannot be used: {problem.strerror}", where=str(folder), hint=hint
        ) from None
