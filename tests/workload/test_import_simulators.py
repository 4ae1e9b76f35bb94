"""Workload files of published simulators, by hand and, where they are, as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import TraceError
from argosy.workload.importers import ImportReport, OnError, get_importer


def run(name: str, *paths: Path, on_error: OnError = "fail") -> ImportReport:
    return get_importer(name).run(paths, on_error=on_error)


def write(tmp_path: Path, text: str, name: str = "jobs.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def job(**columns: object) -> dict[str, object]:
    return columns


def known(report: ImportReport) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if v is not None} for row in report.trace.frame.rows(named=True)]


# Tiresias

TIRESIAS = """\
job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,5,606,VGG19,164,30
1,8,35,133,vgg11,147,23
"""


def test_tiresias(tmp_path: Path) -> None:
    assert known(run("tiresias", write(tmp_path, TIRESIAS))) == [
        job(
            job_id="0",
            submit_s=0.0,
            duration_s=164.0,
            gpus=1.0,
            model="vgg19",
            status="completed",
            work=606.0,
        ),
        job(
            job_id="1",
            submit_s=30.0,
            duration_s=147.0,
            gpus=8.0,
            model="vgg11",
            status="completed",
            work=133.0,
        ),
    ]


def test_tiresias_needs_neither_models_nor_iterations(tmp_path: Path) -> None:
    assert known(run("tiresias", write(tmp_path, "job_id,num_gpu,submit_time,duration\n7,2,0,9\n"))) == [
        job(job_id="7", submit_s=0.0, duration_s=9.0, gpus=2.0, status="completed")
    ]


def test_tiresias_bad_rows(tmp_path: Path) -> None:
    path = write(tmp_path, TIRESIAS.replace("147", "").replace("1,5,", "1,-5,"))
    with pytest.raises(TraceError) as caught:
        run("tiresias", path)
    assert f"{path}:2: submit_s must be a time ≥ 0, is -5.0" in str(caught.value)
    assert f"{path}:3: duration is missing" in str(caught.value)
    with pytest.raises(TraceError, match="no column num_gpu"):
        run("tiresias", write(tmp_path, TIRESIAS.replace("num_gpu", "gpus")))


# Gavel

RESNET = "ResNet-50 (batch size 64)\tpython3 main.py -a resnet50 -b 64 %s/imagenet"


@pytest.mark.parametrize(
    ("rest", "weight"),
    [
        ("\timage_classification/imagenet\t--num_minibatches\t1\t7931\t2\t5\t-1.000000\t60.5\n", 5.0),
        ("\timage_classification/imagenet\t--num_minibatches\t1\t7931\t2\tstatic\t5\t-1.000000\t60.5\n", 5.0),
        ("\t--num_minibatches\t1\t7931\t2\t5\t-1.000000\t60.5\n", 5.0),
        ("\t--num_minibatches\t1\t7931\t60.500000\t2\n", None),
        ("\t--num_minibatches\t7931\t60.5\t2\n", None),
    ],
    ids=["gavel", "shockwave", "before", "old", "oldest"],
)
def test_gavel_in_every_layout(tmp_path: Path, rest: str, weight: float | None) -> None:
    lines = RESNET + rest + 'A3C\tpython3 main.py --env "Pong'  # a quotation mark has no meaning here
    lines += rest.replace("60.5", "70.5").replace("7931", "8857")
    report = run("gavel", write(tmp_path, lines, "msr.trace"))
    more = {} if weight is None else {"weight": weight}
    assert known(report) == [
        job(
            job_id="0",
            submit_s=0.0,
            gpus=2.0,
            model="resnet-50",
            status="completed",
            work=7931.0,
            batch_size=64.0,
        )
        | more,
        job(job_id="1", submit_s=10.0, gpus=2.0, model="a3c", status="completed", work=8857.0) | more,
    ]
    assert report.trace.name == "msr"
    assert "steps" in report.notes[0]


def test_gavel_short_csv(tmp_path: Path) -> None:
    text = "job_id,model,batch_size,total_steps,arrival_s,scale_factor,priority,slo\n"
    text += "0,ResNet-18,128,925982,3.0,4,1.0,-1.0\n45,A3C,,620721,4.0,1,2.0,-1.0\n"
    assert known(run("gavel", write(tmp_path, text))) == [
        job(
            job_id="0",
            submit_s=0.0,
            gpus=4.0,
            model="resnet-18",
            status="completed",
            work=925_982.0,
            batch_size=128.0,
            weight=1.0,
        ),
        job(job_id="45", submit_s=1.0, gpus=1.0, model="a3c", status="completed", work=620_721.0, weight=2.0),
    ]


def test_gavel_bad_rows(tmp_path: Path) -> None:
    good = RESNET + "\tdir\t--num_minibatches\t1\t7931\t1\t1\t-1.000000\t0\n"
    path = write(tmp_path, good + good.replace("7931", "") + "short\tline\n" + good.replace("7931", "-1"))
    with pytest.raises(TraceError) as caught:
        run("gavel", path)
    assert str(caught.value).startswith(f"{path}:2: total_steps is missing")
    assert run("gavel", path, on_error="skip").skipped == [
        (f"{path}:2", "total_steps is missing"),
        (f"{path}:3", "has 2 fields, not 10"),
        (f"{path}:4", "work must be ≥ 0, is -1.0"),
    ]
    with pytest.raises(TraceError, match="has 3 columns") as caught:
        run("gavel", write(tmp_path, "a\tb\tc\n"))
    assert "6, 7, 9, 10, 11" in str(caught.value)
    with pytest.raises(TraceError, match="tab-separated"):
        run("gavel", write(tmp_path, "a,b,c\n1,2,3\n"))


# Pollux

POLLUX = """\
name,time,application,num_replicas,batch_size
cifar10-0,107.5,CIFAR10,6,2048
deepspeech2-1,110,deepspeech2,96,320
"""


def test_pollux(tmp_path: Path) -> None:
    report = run("pollux", write(tmp_path, POLLUX, "workload-1.csv"))
    assert known(report) == [
        job(
            job_id="cifar10-0",
            submit_s=0.0,
            gpus=6.0,
            model="cifar10",
            status="completed",
            min_gpus=1.0,
            max_gpus=64.0,
            work=5_000_064.0,
            batch_size=2048.0,
        ),
        job(
            job_id="deepspeech2-1",
            submit_s=2.5,
            gpus=96.0,
            model="deepspeech2",
            status="completed",
            min_gpus=1.0,
            max_gpus=96.0,
            work=570_720.0,
            batch_size=320.0,
        ),
    ]
    assert "samples" in report.notes[0]


def test_pollux_bad_rows(tmp_path: Path) -> None:
    path = write(tmp_path, POLLUX + "x-2,120,alexnet,1,32\ny-3,,ncf,1,32\n")
    assert [(where, why[:34]) for where, why in run("pollux", path, on_error="skip").skipped] == [
        (f"{path}:4", "application 'alexnet' is not one o"),
        (f"{path}:5", "time is missing"),
    ]
    with pytest.raises(TraceError, match="application 'alexnet' is not one of bert, cifar10"):
        run("pollux", path)


# As published


@pytest.mark.parametrize(
    ("name", "file", "jobs"),
    [
        ("tiresias", "tiresias/60_job.csv", 60),
        ("tiresias", "tiresias/syn4000_g128.csv", 4000),
        ("gavel", "gavel/physical_max_min_fairness.csv", 96),
        ("gavel", "gavel/msr_seed0_ed69ec.csv", 951),
        ("pollux", "pollux/workload-1.csv", 160),
        ("pollux", "pollux/workload-6.csv", 160),
    ],
)
def test_published_files(shared_data: Path, name: str, file: str, jobs: int) -> None:
    report = run(name, shared_data / "peers" / file)
    assert (len(report.trace), report.skipped) == (jobs, [])
    assert report.trace.frame["submit_s"].min() == 0.0
    assert report.trace.frame["model"].null_count() == 0
