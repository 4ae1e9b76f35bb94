"""Logs of production clusters other than Philly's, in small files of the real formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import TraceError
from argosy.workload.importers import ImportReport, OnError, get_importer


def run(name: str, *paths: Path, on_error: OnError = "fail") -> ImportReport:
    return get_importer(name).run(paths, on_error=on_error)


def write(tmp_path: Path, text: str, name: str = "log.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def job(**columns: object) -> dict[str, object]:
    return columns


def known(report: ImportReport) -> list[dict[str, object]]:
    """Rows without the columns that are null, and without what `test_recorded_times.py` looks at."""
    frame = report.trace.frame.drop("start_s", "end_s", "attempts")
    return [{k: v for k, v in row.items() if v is not None} for row in frame.rows(named=True)]


# Helios

HELIOS = """\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,train,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,n2,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:30,2020-06-09 18:45:36,246,3
1425513,uzqls,vcpDC,n3,0,8,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,,60,0
1425514,uzqls,vcpDC,n3,1,8,1,CANCELLED,2020-06-09 18:41:29,,,,
1425515,uzqls,vcpDC,n3,1,8,1,NODE_FAIL,2020-06-09 18:41:30,2020-06-09 18:41:31,2020-06-09 18:41:31,0,1
"""


def test_helios(tmp_path: Path) -> None:
    report = run("helios", write(tmp_path, HELIOS, "cluster_log.csv"))
    assert known(report) == [
        job(
            job_id="1425511",
            submit_s=0.0,
            duration_s=36_848.0,
            gpus=1.0,
            user="uXBbc",
            queue="vcJkd",
            status="completed",
            cpus=1.0,
            name="train",
        ),
        job(
            job_id="1425512",
            submit_s=26.0,
            duration_s=246.0,
            gpus=4.0,
            user="uVMrF",
            queue="vchbv",
            status="failed",
            cpus=16.0,
            name="n2",
        ),
        job(
            job_id="1425513",
            submit_s=27.0,
            duration_s=60.0,
            gpus=0.0,
            user="uzqls",
            queue="vcpDC",
            status="killed",
            cpus=8.0,
            name="n3",
        ),
        job(
            job_id="1425515",
            submit_s=29.0,
            duration_s=0.0,
            gpus=1.0,
            user="uzqls",
            queue="vcpDC",
            status="failed",
            cpus=8.0,
            name="n3",
        ),
    ]
    assert report.notes == ["1 rows left out: the job never started"]


def test_helios_without_jobname_as_in_its_readme(tmp_path: Path) -> None:
    lines = [line.split(",") for line in HELIOS.splitlines()]
    text = "\n".join(",".join(cells[:3] + cells[4:]) for cells in lines)
    assert len(run("helios", write(tmp_path, text)).trace) == 4


def test_helios_bad_rows(tmp_path: Path) -> None:
    text = HELIOS.replace("2020-06-09 18:41:27", "2020-13-09 18:41:27").replace(",0,8,1,CANC", ",0,,1,CANC")
    path = write(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        run("helios", path)
    assert str(caught.value).startswith(f"{path}:3: submit_time is not a time: '2020-13-09 18:41:27'")
    report = run("helios", path, on_error="skip")
    assert report.skipped == [
        (f"{path}:3", "submit_time is not a time: '2020-13-09 18:41:27'"),
        (f"{path}:4", "asks for nothing: gpus, cpus and memory_gib are all 0 or missing"),
    ]
    assert report.trace.frame["job_id"].to_list() == ["1425511", "1425515"]


def test_several_files_share_one_clock_and_one_set_of_ids(tmp_path: Path) -> None:
    header, first, second, *_ = HELIOS.splitlines()
    one, two = (
        write(tmp_path, f"{header}\n{second}\n", "1.csv"),
        write(tmp_path, f"{header}\n{first}\n", "2.csv"),
    )
    assert run("helios", one, two).trace.frame.select("job_id", "submit_s").rows() == [
        ("1425511", 0.0),
        ("1425512", 26.0),
    ]
    with pytest.raises(TraceError, match=r"1\.csv:2: duplicate job_id 1425512"):
        run("helios", one, two, one)


# Acme

SEREN = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,\
2023-03-01 00:20:51+08:00,117,32,936.0
5778469,u5907,1,0,128,Eval,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,\
2023-03-01 01:09:04+08:00,2693,13,0.0
"""
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,\
fail_time,stop_time,duration,queue,gpu_time
dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,\
2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlc1t2ypl09b8qtp,uf794,8,64,960,1000,100.0,Pretrain,RUNNING,2023-05-17 11:28:42+00:00,\
2023-05-17 11:28:54+00:00,,,,,12.0,
"""


def test_acme_seren(tmp_path: Path) -> None:
    assert known(run("acme", write(tmp_path, SEREN, "trace_seren.csv"))) == [
        job(
            job_id="5778432",
            submit_s=0.0,
            duration_s=117.0,
            gpus=8.0,
            user="u5907",
            status="failed",
            cpus=128.0,
            name="Other",
        ),
        job(
            job_id="5778469",
            submit_s=336.0,
            duration_s=2693.0,
            gpus=0.0,
            user="u5907",
            status="completed",
            cpus=128.0,
            name="Eval",
        ),
    ]


def test_acme_kalos_runs_from_start_to_end_whatever_its_duration_says(tmp_path: Path) -> None:
    report = run("acme", write(tmp_path, KALOS, "trace_kalos.csv"))
    assert known(report) == [
        job(
            job_id="dlctk696s0jbvitv",
            submit_s=0.0,
            duration_s=8.0,
            gpus=64.0,
            user="uf794",
            status="failed",
            cpus=960.0,
            memory_gib=8000.0,
            name="Other",
        ),
    ]
    assert report.notes == ["1 rows left out: the job had not ended when the log was written"]


def test_acme_zones_are_honoured(tmp_path: Path) -> None:
    text = SEREN.replace("2023-03-01 00:23:58+08:00", "2023-02-28 16:23:58+00:00")
    assert run("acme", write(tmp_path, text)).trace.frame["submit_s"].to_list() == [0.0, 336.0]


def test_acme_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path, SEREN.replace(",0,128", ",many,128"))
    with pytest.raises(TraceError) as caught:
        run("acme", path)
    assert str(caught.value).startswith(f"{path}:3: gpu_num is not a number: 'many'")
    assert len(run("acme", path, on_error="skip").trace) == 1


# Alibaba 2023

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437500
openb-pod-0022,4000,15360,1,220,nan,BE,Running,9679175,9973826,9679175
openb-pod-0035,16000,32768,1,1000,V100M16|V100M32,LS,Failed,9967058,9968575,9967063
openb-pod-0048,8000,30720,0,0,,BE,Running,9992086,10013821,9992086
openb-pod-0061,11908,47104,1,1000,,BE,Pending,10001278,10001403,
"""


def test_pai2023(tmp_path: Path) -> None:
    report = run("pai2023", write(tmp_path, PODS, "openb_pod_list_default.csv"))
    assert known(report) == [
        job(
            job_id="openb-pod-0017",
            submit_s=0.0,
            duration_s=1_332_354.0,
            gpus=8.0,
            status="completed",
            cpus=88.0,
            memory_gib=320.0,
        ),
        job(
            job_id="openb-pod-0022",
            submit_s=241_678.0,
            duration_s=294_651.0,
            gpus=0.22,
            status="completed",
            cpus=4.0,
            memory_gib=15.0,
        ),
        job(
            job_id="openb-pod-0035",
            submit_s=529_561.0,
            duration_s=1_512.0,
            gpus=1.0,
            gpu_type="V100M16|V100M32",
            status="failed",
            cpus=16.0,
            memory_gib=32.0,
        ),
        job(
            job_id="openb-pod-0048",
            submit_s=554_589.0,
            duration_s=21_735.0,
            gpus=0.0,
            status="completed",
            cpus=8.0,
            memory_gib=30.0,
        ),
    ]
    assert report.notes == ["1 rows left out: the job never started"]


def test_pai2023_bad_rows_and_files_without_times(tmp_path: Path) -> None:
    path = write(tmp_path, PODS.replace("9973826", "9600000"))
    with pytest.raises(TraceError) as caught:
        run("pai2023", path)
    assert str(caught.value).startswith(f"{path}:3: duration_s must be ≥ 0, is -79175.0")
    assert len(run("pai2023", path, on_error="skip").skipped) == 1
    with pytest.raises(TraceError, match="no column creation_time") as caught:
        run(
            "pai2023",
            write(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nopenb-pod-0000,12000,16384,1,1000\n"),
        )
    assert "have times" in str(caught.value)


# Alibaba 2020

TASKS = """\
job0,ps,1.0,Terminated,1000.0,1400.0,600.0,29.5,,
job0,worker,2.0,Terminated,1010.0,1500.0,400.0,10.0,50.0,T4
job1,tensorflow,1.0,Terminated,900.0,950.0,600.0,29.296875,25.0,MISC
job2,worker,3.0,Failed,1200.0,1300.0,100.0,1.0,50.0,P100
job2,evaluator,,Terminated,1200.0,1310.0,100.0,1.0,,
job3,worker,1.0,Waiting,,,100.0,1.0,100.0,V100
job4,worker,1.0,Running,1400.0,,100.0,1.0,100.0,V100
job5,worker,2.0,Terminated,1400.0,1401.0,100.0,2.0,,
"""
JOBS = """\
job0,inst-a,user0,Terminated,980.0,1500.0
job1,inst-b,user1,Failed,880.0,950.0
job2,inst-c,user2,Failed,1200.0,1310.0
"""
TAGS = """\
inst-a,user0,V100M32,group-x,nmt
inst-b,user1,,group-y,
"""


def test_pai_jobs_are_the_sum_of_their_tasks(tmp_path: Path) -> None:
    report = run("pai", write(tmp_path, TASKS, "pai_task_table.csv"))
    assert known(report) == [
        job(
            job_id="job1", submit_s=0.0, duration_s=50.0, gpus=0.25, status="completed", cpus=6.0, memory_gib=29.296875
        ),
        job(job_id="job0", submit_s=100.0, duration_s=500.0, gpus=1.0, status="completed", cpus=14.0, memory_gib=49.5),
        job(job_id="job2", submit_s=300.0, duration_s=110.0, gpus=2.0, status="failed", cpus=4.0, memory_gib=4.0),
        job(job_id="job5", submit_s=500.0, duration_s=1.0, gpus=0.0, status="completed", cpus=2.0, memory_gib=4.0),
    ]
    assert report.notes == [
        "1 rows left out: the job never started",
        "1 rows left out: the job had not ended when the log was written",
        "1 jobs ask for fractions of several GPUs; rounded up to whole ones",
    ]


def test_pai_with_job_and_tag_tables_in_any_order(tmp_path: Path) -> None:
    tables = [("tags.csv", TAGS), ("tasks.csv", TASKS), ("jobs.csv", JOBS)]
    report = run("pai", *(write(tmp_path, text, name) for name, text in tables))
    columns = ("job_id", "submit_s", "duration_s", "user", "status", "gpu_type", "name", "model")
    assert report.trace.frame.select(columns).rows() == [
        ("job1", 0.0, 50.0, "user1", "failed", None, "group-y", None),
        ("job0", 100.0, 500.0, "user0", "completed", "V100M32", "group-x", "nmt"),
        ("job2", 320.0, 110.0, "user2", "failed", None, None, None),
        ("job5", 520.0, 1.0, None, "completed", None, None, None),
    ]


def test_pai_bad_rows_and_tables(tmp_path: Path) -> None:
    tasks, tags = (
        write(tmp_path, TASKS.replace("job1,tensorflow,1.0", "job1,tensorflow,one"), "t.csv"),
        write(tmp_path, TAGS),
    )
    with pytest.raises(TraceError) as caught:
        run("pai", tasks)
    assert str(caught.value).startswith(f"{tasks}:3: inst_num is not a number: 'one'")
    assert run("pai", tasks, on_error="skip").trace.frame["job_id"].to_list() == ["job0", "job2", "job5"]
    bad_jobs = write(tmp_path, JOBS.replace("880.0", "x"), "j.csv")
    with pytest.raises(TraceError, match=r"j\.csv:2: start_time is not a number: 'x'"):
        run("pai", write(tmp_path, TASKS, "t.csv"), bad_jobs)
    with pytest.raises(TraceError, match="without the job table"):
        run("pai", tasks, tags)
    with pytest.raises(TraceError, match="no task table"):
        run("pai", tags)
    with pytest.raises(TraceError, match="a second pai_group_tag_table"):
        run("pai", tags, tags)
    with pytest.raises(TraceError, match="has 3 columns"):
        run("pai", write(tmp_path, "a,b,c\n", "x.csv"))


# Slurm

SACCT = """\
JobID|User|Partition|JobName|Submit|Start|End|Elapsed|State|NNodes|NCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit
100|ann|gpu|train "x"|2024-01-01T00:00:10|2024-01-01T00:01:00|2024-01-02T01:01:01|1-01:00:01|COMPLETED|2|64|\
500G|billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=500G,node=2|\
billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=512000M,node=2|2-00:00:00
100.batch|||batch|2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-02T01:01:01|1-01:00:01|COMPLETED|1|32|||\
cpu=32,mem=250G,node=1|
101_3|bob|cpu|prep|2024-01-01T00:00:00|2024-01-01T00:00:05|2024-01-01T00:02:35|00:02:30|CANCELLED by 1001|\
1|4|2000Mc|||UNLIMITED
102|bob|gpu|t|2024-01-01T00:00:20|2024-01-01T00:00:20|Unknown|10:00|RUNNING|1|8|16Gn||\
cpu=8,gres/gpu:v100=1,gres/gpu:a100=2|01:00:00
103_[4-9]|bob|gpu|t|2024-01-01T00:00:30|Unknown|Unknown|00:00:00|PENDING|1|8|0n|||01:00:00
104|eve|gpu|t|2024-01-01T00:00:40|2024-01-01T00:00:40|2024-01-01T00:00:50|00:00:10|OUT_OF_MEMORY|1|1|0n|\
gres/gpu=1||01:00:00
"""


def test_sacct(tmp_path: Path) -> None:
    report = run("sacct", write(tmp_path, SACCT, "jobs.txt"))
    assert known(report) == [
        job(
            job_id="101_3",
            submit_s=0.0,
            duration_s=150.0,
            gpus=0.0,
            user="bob",
            queue="cpu",
            status="killed",
            cpus=4.0,
            memory_gib=7.8125,
            name="prep",
        ),
        job(
            job_id="100",
            submit_s=10.0,
            duration_s=90_001.0,
            gpus=8.0,
            user="ann",
            queue="gpu",
            gpu_type="a100",
            status="completed",
            cpus=64.0,
            memory_gib=500.0,
            expected_s=172_800.0,
            name='train "x"',
        ),
        job(
            job_id="102",
            submit_s=20.0,
            duration_s=600.0,
            gpus=3.0,
            user="bob",
            queue="gpu",
            status="completed",
            cpus=8.0,
            memory_gib=16.0,
            expected_s=3600.0,
            name="t",
        ),
        job(
            job_id="104",
            submit_s=40.0,
            duration_s=10.0,
            gpus=1.0,
            user="eve",
            queue="gpu",
            status="failed",
            cpus=1.0,
            expected_s=3600.0,
            name="t",
        ),
    ]
    assert report.notes == [
        "1 rows left out: job steps, such as 123.batch",
        "1 rows left out: the job never started",
    ]


def test_sacct_with_few_columns_old_gres_and_closing_bars(tmp_path: Path) -> None:
    text = "JobID|Submit|Start|ElapsedRaw|State|AllocCPUS|AllocGRES|\n"
    text += "1|2024-01-01T00:00:00|2024-01-01T00:00:00|60|TIMEOUT|2|gpu:v100:4|\n"
    text += "2|2024-01-01T00:00:00|2024-01-01T00:00:00|60|COMPLETED|2|gpu:2|\n"
    frame = run("sacct", write(tmp_path, text)).trace.frame
    assert frame.select("job_id", "duration_s", "gpus", "cpus", "status").rows() == [
        ("1", 60.0, 4.0, 2.0, "failed"),
        ("2", 60.0, 2.0, 2.0, "completed"),
    ]


def test_sacct_bad_rows_and_headers(tmp_path: Path) -> None:
    path = write(tmp_path, SACCT.replace("|00:02:30|", "|2.5 min|").replace("|t|", "|t|s|", 1))
    with pytest.raises(TraceError) as caught:
        run("sacct", path)
    assert f"{path}:4: Elapsed is not a span of time like 1-02:30:00: '2.5 min'" in str(caught.value)
    assert run("sacct", path, on_error="skip").skipped[1] == (f"{path}:5", "has 16 fields, not 15")
    with pytest.raises(TraceError, match="no column JobID"):
        run("sacct", write(tmp_path, "\n".join(SACCT.splitlines()[1:])))
    with pytest.raises(TraceError, match="no run times"):
        run(
            "sacct",
            write(tmp_path, "JobID|Submit|Start|State\n1|2024-01-01T00:00:00|2024-01-01T00:00:00|FAILED\n"),
        )
