"""Scenario files: those that ship, one of your own, mistakes in them, and real jobs in place of generated ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import ArgosyError, InputError
from argosy.policies.base import POLICIES, create
from argosy.scenario import read_scenario, scenario_names
from argosy.sim.compare import offered_load

SHIPPED = [
    "deadline",
    "dl2-100",
    "dl2-500",
    "dl2-heavy",
    "dl2-short",
    "dl2-testbed",
    "dynamic-batch",
    "elastic-64",
    "faulty",
    "fluctuating",
    "hetero-108",
    "hetero-elastic-64",
    "llm-64",
    "loaned",
    "mixed",
    "overload",
    "packed",
    "philly-rigid",
    "spare",
    "stormy",
]


def test_the_promised_scenarios_are_there() -> None:
    assert scenario_names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_can_be_run_by_every_policy(name: str) -> None:
    scenario = read_scenario(name)
    assert all(policy in POLICIES for policy in scenario.file.parameters)
    for policy in POLICIES:
        create(scenario.spec(policy))
    for seed in (0, 1):
        trace = scenario.trace(seed)
        assert len(trace) == scenario.file.jobs.count
        load = scenario.file.jobs.load
        assert load is None or offered_load(trace, scenario.cluster, scenario.settings) == pytest.approx(load)
        assert trace.frame["gpus"].max() <= scenario.cluster.total_gpus  # type: ignore[operator]
    assert len(read_scenario(name, quick=True).trace(0)) == scenario.file.jobs.quick < scenario.file.jobs.count


@pytest.mark.parametrize("name", ["mixed", "dl2-testbed"])
def test_seeds_are_repeatable_and_different(name: str) -> None:
    first, again = (read_scenario(name).trace(0).frame for _ in range(2))
    assert first.equals(again)
    assert not first.equals(read_scenario(name).trace(1).frame)


def test_the_testbed_gets_at_most_one_job_a_slot() -> None:
    submit = read_scenario("dl2-testbed").trace(0).frame["submit_s"].to_list()
    assert submit[:10] == [1200.0 * slot for slot in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)]
    assert len(set(submit)) == 30


def test_what_the_scenarios_of_the_papers_fix() -> None:
    dl2 = read_scenario("dl2-500")
    assert (dl2.cluster.total_gpus, dl2.settings.overheads, dl2.settings.min_run_s) == (1000, "none", 0.0)
    assert dl2.spec("drf") == "drf:slot_s=1200"
    assert dl2.spec("drf:slot_s=600") == "drf:slot_s=600"
    assert dl2.spec("drf:stop_at_refusal=yes") == "drf:stop_at_refusal=yes:slot_s=1200"
    assert dl2.spec("fifo") == "fifo"
    assert read_scenario("dl2-100").cluster.total_gpus == 200
    hetero = read_scenario("hetero-108").cluster
    assert [sum(n.gpus for n in hetero.nodes if n.gpu_type == t) for t in hetero.gpu_types] == [36, 36, 36]
    assert read_scenario("faulty").settings.node_mtbf_h == 240.0
    assert read_scenario("fluctuating").settings.drifting and not read_scenario("fluctuating").settings.storms
    assert read_scenario("stormy").settings.storms and read_scenario("stormy").settings.measurement_noise == 0.1


def test_mixed_has_every_kind_of_job() -> None:
    jobs = read_scenario("mixed").trace(0).frame
    elastic = jobs["max_gpus"].is_not_null()
    assert 0.2 < elastic.mean() < 0.6  # type: ignore[operator]
    assert (jobs["gpus"] < 1).any()
    assert not (elastic & (jobs["gpus"] < 1)).any()
    assert 2 < len(jobs) / jobs["app"].n_unique() < 4
    assert jobs["model"].n_unique() == 6


def test_only_a_part_of_the_arrivals_is_measured() -> None:
    scenario = read_scenario("packed")
    trace = scenario.trace(0)
    window = scenario.window(trace)
    span_s = trace.frame["submit_s"].max()
    assert window == (pytest.approx(0.1 * span_s), pytest.approx(0.9 * span_s))  # type: ignore[operator]
    assert read_scenario("overload").window(trace) is None


def test_all_arrivals_include_the_last(scenario_file: Path) -> None:
    scenario_file.write_text(scenario_file.read_text() + "measure: {start: 0.5}\n")
    scenario = read_scenario(str(scenario_file))
    trace = scenario.trace(0)
    window = scenario.window(trace)
    assert window is not None
    assert window[0] < trace.frame["submit_s"][-1] < window[1]


def with_line(path: Path, old: str, new: str) -> str:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return str(path)


@pytest.mark.parametrize(
    ("old", "new", "line", "texts"),
    [
        ("title:", "titel:", 2, ["unknown key 'titel'", "did you mean title?"]),
        ("quick: 20", "quik: 20", 4, ["unknown key 'quik' in jobs"]),
        ("longest: 2h", "longest: soon", 5, ["not a duration", "soon"]),
        ("cluster: {nodes: [{count: 2, gpu: v100, gpus: 4}]}", "preset: smal", 6, ["'smal'", "did you mean small?"]),
        ("gpus: 4}]", "gpu_count: 4}]", 6, ["unknown key 'gpu_count'"]),
        ("gpus: 4}]}", "gpus: 4}]}\npreset: small", 2, ["both preset and cluster"]),
        ("cluster: {nodes: [{count: 2, gpu: v100, gpus: 4}]}", "", 2, ["neither preset nor cluster"]),
        ("gpus: 4}]}", "gpus: 4}]}\nsettings: {drift: true}", 7, ["unknown setting 'drift'", "drifting"]),
        ("gpus: 4}]}", "gpus: 4}]}\nsettings: {seed: 3}", 7, ["unknown setting 'seed'"]),
        ("gpus: 4}]}", "gpus: 4}]}\nsettings:\n  overheads: none\n  locality: oh", 9, ["locality", "'oh'"]),
        ("gpus: 4}]}", "gpus: 4}]}\nsettings:\n  overheads: no", 8, ["overheads must be realistic, none or"]),
        ("gpus: 4}]}", "gpus: 4}]}\nmeasure: {start: 0.9, end: 0.1}", 7, ["start (0.9) is not before end"]),
        ("largest_gpus: 4}", "models: [resnet-51]}", 5, ["'resnet-51'", "resnet-50"]),
        ("load: 1.0,", "real: {file: a.csv, forget: [gpu]},", 4, ["there is no column 'gpu'"]),
    ],
)
def test_mistakes_are_told_with_their_line(
    scenario_file: Path, old: str, new: str, line: int, texts: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        read_scenario(with_line(scenario_file, old, new))
    assert f"mine.yaml:{line}: " in str(caught.value)
    for text in texts:
        assert text in str(caught.value)


def test_an_unknown_profile_is_told_when_jobs_are_made(scenario_file: Path) -> None:
    scenario = read_scenario(with_line(scenario_file, "like: philly", "like: filly"))
    with pytest.raises(ArgosyError, match="filly"):
        scenario.trace(0)


@pytest.fixture
def data(tmp_path: Path, scenario_file: Path) -> Path:
    """A folder with a real trace of 100 jobs, which the scenario asks for."""
    rows = [f"j{i},{100 + 60 * i},{600 + i},{i % 3},{'v100' if i % 2 else 'h900'},4" for i in range(100)]
    folder = tmp_path / "data" / "traces"
    folder.mkdir(parents=True)
    (folder / "real.csv").write_text("\n".join(["job_id,submit_s,duration_s,gpus,gpu_type,cpus", *rows]) + "\n")
    real = "real: {file: traces/real.csv, longest: 630s, forget: [gpu_type], only_gpu_jobs: true}, load: 1.0,"
    with_line(scenario_file, "load: 1.0,", real)
    return tmp_path / "data"


def test_real_jobs_take_the_place_of_generated_ones(scenario_file: Path, data: Path) -> None:
    scenario = read_scenario(str(scenario_file), data=data)
    traces = [scenario.trace(seed) for seed in (0, 1, 2)]
    firsts = [int(trace.frame["job_id"][0][1:]) for trace in traces]
    assert len(set(firsts)) == 3
    for trace in traces:
        assert len(trace) == 40
        assert trace.frame["submit_s"][0] == 0
        assert trace.frame["gpu_type"].null_count() == 40
        assert trace.frame["gpus"].min() == 1.0
        assert trace.frame["duration_s"].max() <= 630.0  # type: ignore[operator]
        assert offered_load(trace, scenario.cluster, scenario.settings) == pytest.approx(1.0)
    assert read_scenario(str(scenario_file)).trace(0).frame["job_id"][0] == "j00"  # generated without --data


def test_a_data_folder_without_the_file(scenario_file: Path, data: Path) -> None:
    (data / "traces" / "real.csv").unlink()
    with pytest.raises(InputError, match=r"traces/real\.csv: the scenario mine needs this file"):
        read_scenario(str(scenario_file), data=data)


def test_philly_itself(shared_data: Path) -> None:
    scenario = read_scenario("philly-rigid", data=shared_data)
    assert scenario.real is not None and scenario.real.name == "philly_vc_7f04ca.csv.gz"
    trace = scenario.trace(1)
    assert len(trace) == scenario.count
    assert trace.frame["job_id"][0].startswith("m1_")


def test_the_documented_scenario_can_be_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "league.md").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    scenario = read_scenario(str(path))
    assert len(scenario.trace(0)) == 400
    shown = set(scenario.file.changes.model_dump(exclude_none=True)) | {"large"}  # which needs larger GPUs: see llm-64
    assert shown == set(type(scenario.file.changes).model_fields)
    assert "`large: {language: 0.3}` under `changes`" in page
    for name in scenario_names():
        assert f"| `{name}` |" in page
