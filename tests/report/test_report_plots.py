from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_by_hand import HandJob, Stint, by_hand, list_scheduled

from argosy.cluster.cluster import Cluster, Node
from argosy.report import maps, plots
from argosy.report.comparison import Comparison
from argosy.sim.timeline import Timeline


def data(chart: Any) -> list[list[dict[str, Any]]]:
    """All inline data of a chart, the largest set first."""
    spec = chart.to_dict()
    found = list(spec.get("datasets", {}).values())
    layers = [spec, *spec.get("layer", [])]
    found += [layer["data"]["values"] for layer in layers if "values" in layer.get("data", {})]
    return sorted(found, key=len, reverse=True)


def test_every_chart_is_valid_and_becomes_a_picture(comparison: Comparison, tmp_path: Path) -> None:
    timeline = comparison.timelines["fifo"][0]
    charts = {
        "cdf": plots.jct_cdf(comparison),
        "queue": plots.queue_length(comparison),
        "use": plots.gpu_use(comparison),
        "size": plots.winners_and_losers(comparison, "size"),
        "queues": plots.winners_and_losers(comparison, "queue"),
        "paired": plots.paired_differences(comparison),
        "losses": plots.losses(comparison),
        "sweep": plots.sweep(comparison),
        "gantt": maps.gantt(timeline, end_s=timeline.result.end_s),
        "heat": maps.heat_map(timeline, end_s=timeline.result.end_s),
    }
    for name, chart in charts.items():
        path = tmp_path / f"{name}.png"
        plots.save_png(chart, path, width=300, scale=1)
        assert path.read_bytes().startswith(b"\x89PNG"), name


def test_cdf_rises_to_the_share_that_finished() -> None:
    jobs = [HandJob(f"j{i}", 0.0, [Stint(0.0, 10.0 * (i + 1), {0: [i]})]) for i in range(3)]
    jobs += [HandJob("open", 0.0, status="unfinished"), HandJob("never", 0.0, gpus=99, status="refused")]
    points = data(plots.jct_cdf(Comparison((by_hand(jobs, Cluster.uniform(1, 4)),))))[0]
    assert [(p["jct_s"], p["share"]) for p in points] == [(10.0, 0.25), (20.0, 0.5), (30.0, 0.75)]


def test_embedded_data_stay_small_whatever_the_number_of_jobs() -> None:
    result = list_scheduled("fifo", 3, jobs=3000)
    many = Comparison((result,))
    assert len(data(plots.jct_cdf(many))[0]) <= plots.CDF_POINTS
    assert len(data(plots.queue_length(many))[0]) == plots.TIME_POINTS
    big = Cluster(tuple(Node(f"n{i}", gpus=8) for i in range(500)))
    spec = maps.cluster_map(Timeline(by_hand([], big, end_s=100.0)), end_s=100.0).to_dict()
    assert len(json.dumps(spec)) < 100_000


def test_time_charts_average_over_seeds() -> None:
    def run(seed: int, gpus: int) -> Any:
        job = HandJob("a", 0.0, [Stint(0.0, 10.0, {0: list(range(gpus))})], gpus=gpus)
        return by_hand([job], Cluster.uniform(1, 4), seed=seed)

    points = data(plots.gpu_use(Comparison((run(0, 1), run(1, 3)))))[0]
    assert {round(p["value"], 6) for p in points} == {0.5}


@pytest.mark.parametrize(
    ("edge", "ticks"),
    [
        (1.19, [0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15]),
        (2.0, [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2]),
        (64.0, [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]),
        (1e5, [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000, 1e4, 1e5]),
    ],
)
def test_ticks_of_ratios_are_round_numbers(edge: float, ticks: list[float]) -> None:
    assert plots.ratio_ticks(1 / edge, edge) == ticks


def test_policies_keep_their_colours(comparison: Comparison) -> None:
    for chart in (plots.jct_cdf(comparison), plots.winners_and_losers(comparison, "size")):
        layer = chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]
        assert layer == {"domain": ["fifo", "sjf"], "range": list(plots.PALETTE[:2])}


def test_small_clusters_get_bars_and_large_ones_a_heat_map() -> None:
    small = Timeline(list_scheduled("fifo", 1, jobs=40, nodes=4))
    large = Timeline(list_scheduled("fifo", 1, jobs=40, nodes=20))
    assert "layer" in maps.cluster_map(small, end_s=100.0).to_dict()
    assert maps.cluster_map(large, end_s=100.0).to_dict()["mark"]["type"] == "rect"


def test_gantt_bars_of_a_large_node_are_whole() -> None:
    job = HandJob("a", 0.0, [Stint(0.0, 2.0, {1: [*range(40, 60), 100]})], gpus=21)
    result = by_hand([job], Cluster((Node("small", gpus=4), Node("big", gpus=128))))
    chart = maps.gantt(Timeline(result), end_s=4.0)
    bars = [row for rows in data(chart) for row in rows if "job" in row]
    assert [(bar["top"], bar["bottom"], bar["gpus"]) for bar in bars] == [(44, 64, 21.0), (104, 105, 21.0)]


def test_gantt_bars_cover_the_devices_held() -> None:
    job = HandJob("a", 0.0, [Stint(0.0, 4.0, {1: [0, 1, 3]})], gpus=3)
    chart = maps.gantt(Timeline(by_hand([job], Cluster.uniform(2, 4))), end_s=4.0)
    bars = [row for rows in data(chart) for row in rows if "job" in row]
    assert [(b["top"], b["bottom"]) for b in bars] == [(4, 6), (7, 8)]  # devices 0, 1 and 3 of node 1


def test_heat_map_shows_shares_held() -> None:
    job = HandJob("a", 0.0, [Stint(0.0, 50.0, {1: [0, 1]})], gpus=2)
    strips = data(maps.heat_map(Timeline(by_hand([job], Cluster.uniform(2, 4))), end_s=100.0))[0]
    assert np.mean(strips[0]["held"]) == 0.0
    assert np.mean(strips[1]["held"]) == pytest.approx(0.25, abs=0.01)  # half a node, half of the time
    assert max(strips[1]["held"]) == 0.5


def test_winners_show_the_ratio_in_words(comparison: Comparison) -> None:
    bars = data(plots.winners_and_losers(comparison, "size"))[0]
    assert bars
    for bar in bars:
        sign = "+" if bar["ratio"] > 1.005 else "−" if bar["ratio"] < 0.995 else ""
        assert bar["text"].startswith(sign) and bar["text"].endswith(" %")
