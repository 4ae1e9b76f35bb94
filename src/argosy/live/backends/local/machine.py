"""Finds the nodes of this machine: one with its real GPUs or, without GPUs, some with virtual slots on CPU cores."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from argosy.cluster.cluster import Node
from argosy.live.supervisor.places import Place


def default_nodes(nodes: int = 2, slots: int = 2) -> tuple[tuple[Node, ...], bool]:
    """Return the nodes of this machine, and whether their GPUs are real."""
    cpus, memory = float(os.cpu_count() or 1), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = real_gpus()
    if found:
        return (Node("n1", found[0], len(found), cpus, memory, rack="local"),), True
    return tuple(
        Node(f"n{i + 1}", "cpu", slots, cpus / nodes, memory / nodes, rack="local") for i in range(nodes)
    ), False


def real_gpus() -> list[str]:
    """Return the names of the GPUs, without loading a GPU library."""
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        try:
            text = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            text = ""
        names = re.findall(r"^GPU \d+: (.+?) \(UUID", text, re.MULTILINE)
        if names:
            return [_short(name) for name in names]
    return ["gpu" for _ in Path("/proc/driver/nvidia/gpus").glob("*")]


def places(nodes: Sequence[Node], cuda: bool) -> dict[str, Place]:
    """Return for each node where its slots are on this machine."""
    found, first = {}, 0
    for node in nodes:
        found[node.name] = Place(first, node.gpus, cuda)
        first += node.gpus
    return found


def _short(name: str) -> str:
    """Shorten a product name: `NVIDIA A100-SXM4-40GB` → `a100`."""
    known = re.search(r"\b([avhlbtp]\d{1,3}|rtx ?\d{4}|k80|gtx ?\d{4})\b", name, re.IGNORECASE)
    return (known[1] if known else name).lower().replace(" ", "")
