"""The invented history of the demonstration is possible: no GPU is held twice at a time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from argosy.dashboard import demo_history
from argosy.dashboard.demo import Demo
from argosy.live.store import Store


def test_no_gpu_is_held_twice(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    store = Store(tmp_path / "history.db", demo.clock)
    demo_history.write(store, demo.cluster(), 600)
    spans: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for number in range(1, store.query("SELECT max(id) FROM jobs")[0][0] + 1):
        for run in store.all_runs(number):
            for part in run.parts:
                for device in part.devices:
                    spans.setdefault((part.node, device), []).append((run.launched_s, run.ended_s or 0.0))
    store.close()
    assert len(spans) == demo.cluster().total_gpus
    for held in spans.values():
        ends = sorted(held)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in pairwise(ends))
