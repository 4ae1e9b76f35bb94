"""The presets are the clusters they are named after."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from argosy.cluster.cluster import Cluster
from argosy.cluster.files import presets, read_cluster, write_cluster

SIZES = {  # nodes, GPUs
    "alibaba-2023": (1523, 6212),
    "dl2-500": (500, 1000),
    "dl2-testbed": (13, 26),
    "gavel-108": (27, 108),
    "helios-venus": (135, 1080),
    "philly": (552, 3205),
    "philly-80x8": (80, 640),
    "pollux-64": (16, 64),
    "small": (4, 16),
}


def test_every_preset_is_listed_with_a_line_about_it() -> None:
    assert sorted(SIZES) == list(presets())
    assert all(20 < len(line) < 110 and "\n" not in line for line in presets().values())


@pytest.mark.parametrize("name", SIZES)
def test_size(name: str, tmp_path: Path) -> None:
    cluster = Cluster.read(name)
    assert cluster.name == name
    assert (len(cluster.nodes), cluster.total_gpus) == SIZES[name]
    write_cluster(cluster, tmp_path / "c.yaml")
    assert read_cluster(tmp_path / "c.yaml") == cluster


def test_gavel_has_36_gpus_of_each_type() -> None:
    gpus = Counter[str]()
    for node in read_cluster("gavel-108").nodes:
        gpus[node.gpu_type] += node.gpus
    assert gpus == {"v100": 36, "p100": 36, "k80": 36}


def test_venus_shares_all_its_gpus_out() -> None:
    cluster = read_cluster("helios-venus")
    assert len(cluster.queues) == 15
    assert sum(queue.quota_gpus for queue in cluster.queues) == cluster.total_gpus
    for queue in cluster.queues:
        assert sum(n.gpus for n in cluster.nodes if n.name.startswith(f"{queue.name}-")) == queue.quota_gpus


def test_a_dl2_node_fits_two_workers_and_two_parameter_servers() -> None:
    for name in ("dl2-testbed", "dl2-500"):
        assert {(n.gpus, n.cpus) for n in read_cluster(name).nodes} == {(2, 8.0)}


@pytest.mark.parametrize(
    ("preset", "file"), [("philly", "philly_nodes.csv"), ("alibaba-2023", "alibaba_v2023_nodes.csv")]
)
def test_presets_count_the_nodes_of_their_lists(shared_data: Path, preset: str, file: str) -> None:
    def kinds(cluster: Cluster) -> Counter[tuple[str, int, float, float]]:
        return Counter((n.gpu_type, n.gpus, n.cpus, n.memory_gib) for n in cluster.nodes)

    assert kinds(read_cluster(preset)) == kinds(read_cluster(shared_data / "clusters" / file))


def test_venus_agrees_with_its_list(shared_data: Path) -> None:
    listed = read_cluster(shared_data / "clusters" / "helios_venus_vc_nodes.csv")
    preset = read_cluster("helios-venus")
    assert preset.queues == listed.queues
    assert [(n.name, n.gpus) for n in preset.nodes] == [(n.name, n.gpus) for n in listed.nodes]


def test_the_largest_real_list_reads(shared_data: Path) -> None:
    cluster = read_cluster(shared_data / "clusters" / "alibaba_spot2026_nodes.csv")
    assert (len(cluster.nodes), cluster.total_gpus, len(cluster.gpu_types)) == (4278, 10_412, 6)
