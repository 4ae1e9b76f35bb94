"""Cluster files: a correct file gives the cluster that was meant, a wrong one an error that names the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.cluster.cluster import Cluster, Network, Node, Queue, Reservation
from argosy.cluster.files import (
    ClusterFile,
    LimitSection,
    NetworkSection,
    NodeGroup,
    QueueSection,
    ReservationSection,
    WattsSection,
    collapse,
    expand,
    presets,
    read_agents,
    read_cluster,
    write_cluster,
)
from argosy.errors import ClusterError, InputError

Write = Callable[..., Path]
ONE = "nodes: [{gpus: 8}]\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(text: str, name: str = "c.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return file


def refusal(path: Path | str) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        read_cluster(path)
    return caught.value


# YAML


def test_the_agents_section(write: Write) -> None:
    agents = read_agents(write(f"{ONE}agents: {{shared: /nfs/argosy, silence: 1, lease: 3s, margin: 0.9}}\n"))
    assert agents is not None
    assert (agents.shared, agents.silence, agents.lease, agents.margin) == ("/nfs/argosy", 1.0, 3.0, 0.9)


@pytest.mark.parametrize(
    ("agents", "what", "hint"),
    [
        ("{margin: 0.05}", "margin (0.05 s) is shorter than the 0.9 s in which an agent kills what hangs", "at least"),
        ("{silence: 2, lease: 3}", "lease (3 s) must be at least twice silence (2 s)", ""),
        ("{shared: checkpoints}", "'checkpoints' is a relative path", "begin it with /"),
        ("{shared: ~/argosy}", "'~/argosy' is a relative path", "begin it with /"),
    ],
)
def test_agents_with_which_no_fence_holds_or_no_folder_is_common(
    write: Write, agents: str, what: str, hint: str
) -> None:
    refused = refusal(write(f"{ONE}agents: {agents}\n"))
    assert what in refused.what and hint in (refused.hint or "")
    assert refused.where is not None and refused.where.endswith("c.yaml:2")


def test_the_design_s_example(write: Write) -> None:
    cluster = read_cluster(
        write(
            "nodes:\n"
            "  - {count: 16, gpu: v100, gpus: 8, cpus: 96, memory_gib: 512, rack: r1, price_per_hour: 24.0}\n"
            "network: {intra_node_gbps: 300, intra_rack_gbps: 100, cross_rack_gbps: 25}\n",
            "mine.yaml",
        )
    )
    assert cluster.name == "mine"
    assert cluster.total_gpus == 128
    assert cluster.nodes[15] == Node("n15", "v100", 8, 96.0, 512.0, "r1", price_per_hour=24.0)
    assert cluster.network == Network(300.0, 100.0, 25.0)


def test_every_key_of_a_group(write: Write) -> None:
    cluster = read_cluster(
        write(
            "name: everything\n"
            "nodes:\n"
            "  - {name: 'dgx[01-02]', gpu: a100, gpus: 8, cpus: 128, memory_gib: 1024, gpu_memory_gib: 80,\n"
            "     rack: top, islands: [4, 4], price_per_hour: 32.77, watts: {idle: 800, busy: 6500}}\n"
            "  - {name: login, gpus: 0}\n"
        )
    )
    dgx = Node("dgx01", "a100", 8, 128.0, 1024.0, "top", (4, 4), 32.77, 800.0, 6500.0, 80.0)
    assert cluster.nodes == (
        dgx,
        replace(dgx, name="dgx02"),
        Node("login", gpus=0, cpus=8.0, memory_gib=64.0),  # as much as a node with one GPU
    )
    assert cluster.name == "everything"


def test_names_and_racks_are_numbered_through_the_file(write: Write) -> None:
    cluster = read_cluster(
        write(
            "nodes:\n"
            "  - {count: 3, gpus: 2, nodes_per_rack: 2}\n"
            "  - {count: 2, name: big, gpus: 8, nodes_per_rack: 2}\n"
            "  - {count: 2, gpus: 1, rack: edge, nodes_per_rack: 1}\n"
            "  - {gpus: 1}\n"
        )
    )
    assert [n.name for n in cluster.nodes] == ["n0", "n1", "n2", "big-0", "big-1", "n5", "n6", "n7"]
    assert [n.rack for n in cluster.nodes] == ["r0", "r0", "r1", "r1", "r2", "edge0", "edge1", "rack0"]
    assert (cluster.nodes[0].cpus, cluster.nodes[0].memory_gib) == (16.0, 128.0)  # 8 cores, 64 GiB per GPU


def test_queues_and_reservations(write: Write) -> None:
    cluster = read_cluster(
        write(
            "nodes: [{gpus: 0}, {count: 4, gpus: 8}]\n"
            "queues:\n"
            "  - {name: research, quota_gpus: 16, limit_gpus: 24, weight: 2}\n"
            "  - {name: prod}\n"
            "reservations:\n"
            "  - {nodes: ['n[1-2]', n4], queue: prod, start: 2h, end: 6h}\n"
            "  - {count: 1, queue: research, start: 3h, end: 4h}\n"
            "  - {count: 2, queue: research, end: 2h}\n"
        )
    )
    assert cluster.queues == (Queue("research", 16.0, 24.0, 2.0), Queue("prod"))
    assert cluster.reservations == (
        Reservation(("n1", "n2", "n4"), "prod", 7200.0, 21_600.0),
        Reservation(("n3",), "research", 10_800.0, 14_400.0),  # the others are taken then, n0 has no GPUs
        Reservation(("n1", "n2"), "research", 0.0, 7200.0),  # ends as the first begins
    )


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        ("nodes: []\n", 1, "no nodes", "nodes: [{count: 4"),
        ("network: {}\n", 1, "nodes is missing", "nodes: [{count: 4"),
        ("nodes:\n  - {gpu: v100}\n", 2, "nodes[0].gpus is missing", "GPUs in one node"),
        ("nodes:\n  - {gpus: 8}\n  - {gpus: -1}\n", 3, "nodes[1].gpus should be greater", "GPUs in one node"),
        ("nodes: [{gpus: 100001}]\n", 1, "less than or equal to 100000, is '100001'", None),
        ("nodes: [{gpus: 8, cpus: -2}]\n", 1, "nodes[0].cpus should be greater", "CPU cores"),
        ("nodes: [{gpus: 8, memory_gib: nan}]\n", 1, "memory_gib should be a finite number", None),
        ("nodes: [{gpus: 8, count: 0}]\n", 1, "count should be greater", None),
        ("nodes: [{gpus: 8, name: ''}]\n", 1, "name should have at least 1 character", None),
        ("nodes:\n  - {gpus: 8, memory_gb: 3}\n", 2, "unknown key 'memory_gb'", "did you mean memory_gib"),
        (ONE + "queue: []\n", 2, "unknown key 'queue'", "did you mean queues"),
        ("nodes:\n  - {gpus: 8, islands: [4, 3]}\n", 2, "islands [4, 3] do not add up to 8 GPUs", "every"),
        ("nodes: [{gpus: 8, watts: {idle: 9, busy: 3}}]\n", 1, "idle (9) is more than busy (3)", "swapped"),
        ("nodes:\n  - {gpus: 8, name: a}\n  - {gpus: 4, name: a}\n", 3, "two nodes are named 'a'", "`name`"),
        ("nodes:\n  - {gpus: 8, name: n1}\n  - {count: 2, gpus: 4}\n", 3, "two nodes are named 'n1'", None),
        ("nodes: [{gpus: 8, name: 'n[a-b]'}]\n", 1, "not a range of names: 'n[a-b]'", "n[0-15]"),
        ("nodes: [{gpus: 8, name: 'n[3-1]'}]\n", 1, "not a range of numbers: '3-1'", "0-15"),
        ("nodes: [{gpus: 8, name: 'n[1,]'}]\n", 1, "not a range of numbers: ''", "0-15"),
        ("nodes: [{gpus: 8, name: 'n[0-999999999]'}]\n", 1, "names more than 200,000 nodes", None),
        ("nodes: [{gpus: 8, count: 3, name: 'n[0-3]'}]\n", 1, "count is 3, but n[0-3] names 4", "no count"),
        ("nodes:\n  - {gpus: 1, count: 150000}\n  - {gpus: 1, count: 150000}\n", 3, "more than 200,", None),
        (ONE + "network: {cross_rack_gbps: 0}\n", 2, "cross_rack_gbps should be greater", None),
        (ONE + "queues:\n  - {name: a}\n  - {name: a}\n", 4, "'a' is listed twice", "remove"),
        (ONE + "queues:\n  - {name: a, quota_gpus: 9}\n", 2, "add up to 9 GPUs", "lower"),
        (ONE + "queues: [{name: a, weight: 0}]\n", 2, "weight should be greater than 0", None),
        (
            ONE + "queues: [{name: a, quota_gpus: 4, limit_gpus: 2}]\n",
            2,
            "limit_gpus (2) is below quota_gpus (4)",
            "raise the limit",
        ),
        (
            ONE + "queues: [{name: prod}]\nreservations:\n  - {count: 1, queue: prd, end: 1h}\n",
            4,
            "unknown queue 'prd'",
            "did you mean prod",
        ),
        (ONE + "reservations: [{queue: a, end: 1h}]\n", 2, "neither nodes nor count", "one of them"),
        (
            ONE + "reservations: [{queue: a, end: 1h, count: 1, nodes: [n0]}]\n",
            2,
            "both nodes and count",
            "one of them",
        ),
        (ONE + "reservations: [{queue: a, end: 1x, count: 1}]\n", 2, "not a duration: '1x'", "90s"),
        (
            ONE + "reservations: [{queue: a, start: 2h, end: 1h, count: 1}]\n",
            2,
            "end (3600 s) must be after start (7200 s)",
            "swap",
        ),
        (ONE + "reservations:\n  - {queue: a, end: 1h, count: 2}\n", 3, "1 with GPUs are free", "lower"),
        (
            ONE + "reservations:\n  - {queue: a, end: 1h, nodes: [n3]}\n",
            3,
            "unknown node 'n3'",
            "did you mean n0",
        ),
        (
            ONE + "reservations:\n  - {queue: a, end: 2h, count: 1}\n  - {queue: b, start: 1h, end: 3h, nodes: [n0]}\n",
            4,
            "n0 is already reserved at that time",
            "other nodes",
        ),
    ],
)
def test_mistakes(write: Write, text: str, line: int, what: str, hint: str | None) -> None:
    path = write(text)
    error = refusal(path)
    assert error.where == f"{path}:{line}"
    assert what in error.what
    assert hint is None or hint in (error.hint or "")


def test_an_unknown_name_lists_the_presets_and_says_how_to_write_a_file(tmp_path: Path) -> None:
    error = refusal("phily")
    assert error.what == "no cluster file or preset is called 'phily'"
    assert (error.hint or "").startswith("did you mean philly")
    far = refusal(tmp_path / "none.yaml").hint or ""
    assert all(name in far for name in presets())
    assert "nodes: [{count: 4, gpu: v100, gpus: 8}]" in far
    assert error.exit_code == 2


# CSV


def test_csv_with_the_traces_columns_and_blanks(write: Write) -> None:
    cluster = read_cluster(
        write("node,num_gpus,gpu_type,num_cpus,mem_gb\nm0,8,,,\n\nm1,2,T4,104.0,512\nm2,0,,32,\n", "n.csv")
    )
    assert cluster.name == "n"
    assert cluster.nodes == (
        Node("m0", "gpu", 8, 64.0, 512.0),
        Node("m1", "T4", 2, 104.0, 512.0),
        Node("m2", "gpu", 0, 32.0, 64.0),
    )


def test_csv_with_our_own_columns(write: Write) -> None:
    cluster = read_cluster(
        write(
            "rack,node,gpus,gpu_type,cpus,memory_gib,gpu_memory_gib,price_per_hour,watts_idle,watts_busy\n"
            '"r 1",a,4,v100,32,244,32,12.24,160,1200\n',
            "nodes.CSV",
        )
    )
    assert cluster.nodes == (Node("a", "v100", 4, 32.0, 244.0, "r 1", (), 12.24, 160.0, 1200.0, 32.0),)


def test_csv_of_virtual_clusters(write: Write) -> None:
    cluster = read_cluster(write("vc,nodes_8gpu\nvcA,2\nvcB,1\n", "vcs.csv"))
    assert [(n.name, n.gpus, n.cpus) for n in cluster.nodes] == [
        ("vcA-0", 8, 64.0),
        ("vcA-1", 8, 64.0),
        ("vcB-0", 8, 64.0),
    ]
    assert cluster.queues == (Queue("vcA", 16.0), Queue("vcB", 8.0))


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        ("", "", "empty", "columns: node,gpus"),
        ("node,gpus\n", "", "no nodes", None),
        ("node,gpuss\na,3\n", ":1", "unknown column 'gpuss'", "did you mean gpus"),
        ("node,gpu_type\na,v100\n", ":1", "one column for gpus", "the header is"),
        ("gpus,gpu_type\n8,v100\n", ":1", "one column for node", "the header is"),
        ("node,gpus,num_gpus\na,8,8\n", ":1", "one column for gpus", "the header is"),
        ("node,gpus\na,8\nb\n", ":3", "1 values in a row of 2 columns", None),
        ("node,gpus\na,8\n,8\n", ":3", "no name", "first column"),
        ("node,gpus\na,\n", ":2", "gpus must be a whole number 0..100000, is ''", "0 stands for"),
        ("node,gpus\na,2.5\n", ":2", "is '2.5'", None),
        ("node,gpus\na,100001\n", ":2", "is '100001'", None),
        ("node,gpus\na,-1\n", ":2", "gpus must be a number ≥ 0, is '-1'", None),
        ("node,gpus,cpus\na,1,nan\n", ":2", "cpus must be a number ≥ 0, is 'nan'", None),
        ("node,gpus,cpus\na,1,many\n", ":2", "is 'many'", None),
        ("node,gpus\na,1\nb,1\na,2\n", ":4", "two nodes are named 'a'", "remove"),
        ('node,gpus\n"a,1\n', ":2", "not a valid CSV row", None),
        ("node,gpus\n" + "x" * 200_000 + ",1\n", ":2", "not a valid CSV row", None),
        ("vc,nodes_8gpu\nvcA,two\n", ":2", "number of nodes must be a number", None),
        ("vc,nodes_8gpu\nvcA,1.5\n", ":2", "must be whole", None),
        ("vc,nodes_8gpu\nvcA,1\nvcA,1\n", ":3", "'vcA' is listed twice", None),
        ("vc,nodes_8gpu\n,1\n", ":2", "no name", None),
        ("vc,nodes_800000gpu\nvcA,1\n", "", "gpus must be 0..100000", None),
    ],
)
def test_csv_mistakes(write: Write, text: str, line: str, what: str, hint: str | None) -> None:
    path = write(text, "nodes.csv")
    error = refusal(path)
    assert error.where == f"{path}{line}"
    assert what in error.what
    assert hint is None or hint in (error.hint or "")


# Ranges of names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[0-2]", ["n0", "n1", "n2"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("gpu[08-10,2]-ib", ["gpu08-ib", "gpu09-ib", "gpu10-ib", "gpu2-ib"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("names", "ranges"),
    [
        (["n0", "n1", "n2"], ["n[0-2]"]),
        (["n9", "n10", "n12", "n3"], ["n[9-10,12,3]"]),
        (["m098", "m099", "m100"], ["m[098-100]"]),
        (["a", "b"], ["a", "b"]),
        (["a", "a0", "a1"], ["a", "a[0-1]"]),
        (["n1", "m2", "n2"], ["n1", "m2", "n2"]),
        ([], []),
    ],
)
def test_collapse(names: list[str], ranges: list[str]) -> None:
    assert collapse(names) == ranges


@given(st.lists(st.from_regex(r"[a-c-]{0,2}[0-9]{0,4}", fullmatch=True)))
def test_expand_undoes_collapse(names: list[str]) -> None:
    assert [n for text in collapse(names) for n in (expand(text) if "[" in text else [text])] == names


# Writing


NODES = st.builds(
    Node,
    name=st.from_regex(r"[a-z]{0,2}[0-9]{1,3}|no|null|1e5", fullmatch=True),
    gpu_type=st.sampled_from(["v100", "1080", "on", "GPU: odd #1"]),
    gpus=st.just(4),
    cpus=st.sampled_from([0.0, 32.0, 0.1]),
    memory_gib=st.sampled_from([1e20, 64.5]),
    rack=st.sampled_from(["r0", "010"]),
    islands=st.sampled_from([(), (2, 2), (1, 3)]),
    price_per_hour=st.sampled_from([None, 0.0, 3.912]),
    watts_idle=st.sampled_from([None, 30.0]),
    watts_busy=st.sampled_from([None, 300.0]),
    gpu_memory_gib=st.sampled_from([16.0, 0.5]),
)


@given(
    nodes=st.lists(NODES, min_size=1, max_size=8, unique_by=lambda n: n.name),
    island_gbps=st.sampled_from([None, 600.0]),
)
def test_what_is_written_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, nodes: list[Node], island_gbps: float | None
) -> None:
    names = tuple(n.name for n in nodes)
    cluster = Cluster(
        tuple(nodes),
        "träce: 1",
        Network(1.5, 2.0, 3.0, island_gbps),
        (Queue("q", 1.5, None, 0.5), Queue("8", 0.0, 4.0)),
        (Reservation(names[:1], "q", 0.0, 1.5), Reservation(names, "8", 1.5, 3600.0)),
    )
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    write_cluster(cluster, path)
    assert read_cluster(path) == cluster


def test_equal_neighbours_share_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    write_cluster(Cluster.uniform(40, 8, nodes_per_rack=20), path)
    assert path.read_text().count("name: 'n[") == 2  # one for each rack


def test_what_can_not_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("old")
    with pytest.raises(ClusterError, match="cannot be written"):
        write_cluster(Cluster((Node("n[0]"),)), path)
    assert path.read_text() == "old"
    with pytest.raises(InputError, match="cannot be written"):
        write_cluster(Cluster.uniform(1), tmp_path / "none" / "c.yaml")
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]


# Documentation


def test_the_files_shown_in_the_documentation_work(write: Write) -> None:
    page = Path(__file__).parents[2] / "docs" / "clusters.md"
    shown = re.findall(r"^```(yaml|csv)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(shown) >= 5
    for kind, text in shown:
        assert read_cluster(write(text, f"shown.{kind}")).nodes


def test_the_documentation_names_every_key_and_preset() -> None:
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text("utf-8")
    sections = (ClusterFile, NodeGroup, WattsSection, NetworkSection, QueueSection, ReservationSection, LimitSection)
    keys = [key for section in sections for key in section.model_fields]
    assert [name for name in (*keys, *presets()) if f"`{name}`" not in page] == []
