"""Our own trace files: what is read, what is written, and how every bad file is refused."""

from __future__ import annotations

import gzip
import os
import resource
import stat
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.atomic import writing
from argosy.errors import InputError, TraceError, UnknownName
from argosy.workload.conversion import STATUS_WORDS, normal_status
from argosy.workload.files import read_trace, read_trace_report, write_trace
from argosy.workload.trace import SCHEMA, Job, Trace

HEADER = "job_id,submit_s,duration_s,gpus"

EVERYTHING = Job(
    job_id="a,1",
    submit_s=0.0,
    duration_s=12.5,
    gpus=4.0,
    user='says "hi"',
    queue="q\n2",
    model="resnet-50",
    gpu_type="a100|v100",
    status="failed",
    cpus=16.0,
    memory_gib=0.1,
    min_gpus=1.0,
    max_gpus=8.0,
    work=1e6,
    batch_size=256.0,
    ps=2,
    app="search",
    weight=2.0,
    deadline_s=1e-7,
    priority=50.0,
    expected_s=13.0,
    name="ünï",
)


def write(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path, **options: object) -> str:
    """The whole message of the error that reading raises."""
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
    assert caught.value.hint
    return str(caught.value)


# Round trips


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "T.CSV"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    trace = Trace.of_jobs([EVERYTHING, Job("b", 3.25, 1e9, 0.5, cpus=3.0), Job("c", 3.25, None, 0, cpus=1, work=7)])
    write_trace(trace, tmp_path / name)
    again = read_trace(tmp_path / name)
    assert again.frame.equals(trace.frame)
    assert again.frame.schema == pl.Schema(SCHEMA)
    assert again.name.lower() == "t"


def test_columns_without_values_are_left_out_of_csv(tmp_path: Path) -> None:
    write_trace(Trace.of_jobs([Job("a", 0, 5, 1, user="u")]), tmp_path / "t.csv")
    assert (
        tmp_path / "t.csv"
    ).read_text() == "job_id,submit_s,duration_s,gpus,user,status\na,0.0,5.0,1.0,u,completed\n"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_same_trace_same_bytes(tmp_path: Path, name: str) -> None:
    trace = Trace.of_jobs([EVERYTHING])
    write_trace(trace, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    write_trace(trace, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
amounts = st.floats(0, 1e12, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(words, amounts, amounts, st.integers(0, 512), st.none() | words), min_size=1, max_size=6))
def test_any_text_and_number_survives_csv(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, ...]]
) -> None:
    jobs = [
        Job(f"{i}{name}", submit, duration, gpus, user=user, cpus=1)  # type: ignore[arg-type]
        for i, (name, submit, duration, gpus, user) in enumerate(rows)
    ]
    trace = Trace.of_jobs(jobs)
    path = tmp_path_factory.mktemp("any") / "t.csv"
    write_trace(trace, path)
    assert read_trace(path).frame.equals(trace.frame)


def test_trace_methods_use_these_files(tmp_path: Path) -> None:
    Trace.of_jobs([EVERYTHING]).write(tmp_path / "t.parquet")
    assert Trace.read(tmp_path / "t.parquet").frame["job_id"].to_list() == ["a,1"]


# What is accepted


def test_any_column_order_windows_line_ends_byte_order_mark_blank_lines(tmp_path: Path) -> None:
    text = "\ufeffgpus,job_id,submit_s,duration_s\r\n2,b,5,7\r\n\r\n 1 ,a,1, 3.5\r\n"
    frame = read_trace(write(tmp_path, text)).frame
    assert frame.select("job_id", "submit_s", "duration_s", "gpus").rows() == [
        ("a", 1.0, 3.5, 1.0),
        ("b", 5.0, 7.0, 2.0),
    ]
    assert frame["status"].to_list() == ["completed", "completed"]


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    assert len(read_trace(write(tmp_path, f"{HEADER}\na,0,1,1\nb,0,1,1"))) == 2


def test_gzip_and_parquet_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    assert len(read_trace(write(tmp_path, gzip.compress(f"{HEADER}\na,0,1,1\n".encode()), "t.csv"))) == 1
    Trace.of_jobs([EVERYTHING]).write(tmp_path / "p.parquet")
    (tmp_path / "p.parquet").rename(tmp_path / "p.csv")
    assert len(read_trace(tmp_path / "p.csv")) == 1


def test_jobs_are_sorted_by_submission_and_ties_keep_their_order(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, f"{HEADER}\nc,9,1,1\nb,1,1,1\na,1,1,1\n"))
    assert trace.frame["job_id"].to_list() == ["b", "a", "c"]


def test_mapping_renames_and_then_ignores_what_it_does_not_know(tmp_path: Path) -> None:
    path = write(tmp_path, "id,t,secs,num_gpu,noise\nx,10,60,2,zzz\n")
    mapping = {"job_id": "id", "submit_s": "t", "duration_s": "secs", "gpus": "num_gpu", "weight": "num_gpu"}
    row = read_trace(path, mapping).frame.row(0, named=True)
    assert {k: v for k, v in row.items() if v is not None} == {
        "job_id": "x",
        "submit_s": 10.0,
        "duration_s": 60.0,
        "gpus": 2.0,
        "weight": 2.0,
        "status": "completed",
    }


def test_an_empty_mapping_is_still_a_free_mapping(tmp_path: Path) -> None:
    assert len(read_trace(write(tmp_path, f"{HEADER},noise\na,0,1,1,z\n"), {})) == 1


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("Pass|COMPLETED|Completed|success|Succeeded|Terminated|Running| done ", "completed"),
        ("Failed|NotPass|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY", "failed"),
        ("Killed|CANCELLED|CANCELLED by 1001|Pending|PREEMPTED", "killed"),
        ("bogus||completedish|7", None),
    ],
)
def test_statuses_in_the_wild(words: str, status: str | None) -> None:
    spelled = pl.DataFrame({"status": words.split("|")})
    assert set(spelled.select(normal_status(pl.col("status"))).to_series()) == {status}


def test_every_status_word_maps_to_one_of_three() -> None:
    assert set(STATUS_WORDS.values()) == {"completed", "failed", "killed"}


# Bad rows


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,-5,1,1", "submit_s must be a time ≥ 0, is -5.0"),
        ("a,,1,1", "submit_s is missing"),
        ("a,soon,1,1", "submit_s is not a number: 'soon'"),
        ("a,NaN,1,1", "submit_s must be a time ≥ 0, is NaN"),
        ("a,1e999,1,1", "submit_s must be a time ≥ 0, is inf"),
        ("a,0,-1,1", "duration_s must be ≥ 0, is -1.0"),
        ("a,0,nan,1", "duration_s must be ≥ 0, is NaN"),
        ("a,0,,1", "neither duration_s nor work is given"),
        ("a,0,1,", "gpus is missing"),
        ("a,0,1,two", "gpus is not a number: 'two'"),
        ("a,0,1,-2", "gpus must be ≥ 0, is -2.0"),
        ("a,0,1,1.5", "gpus above 1 must be whole, is 1.5"),
        ("a,0,1,0", "asks for nothing"),
        (",0,1,1", "job_id is missing"),
        ("ok,0,1,1", "duplicate job_id ok"),
        ("a,0,1", "has 3 fields, not 4"),
        ("a,0,1,1,9", "has 5 fields, not 4"),
        ("a", "has 1 fields, not 4"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_reason(tmp_path: Path, row: str, reason: str) -> None:
    path = write(tmp_path, f"{HEADER}\nok,0,1,1\n\n{row}\nlast,0,1,1\n")
    message = refused(path)
    assert message.startswith(f"{path}:4: {reason}")
    assert "--on-error skip" in message
    report = read_trace_report(path, on_error="skip")
    assert report.trace.frame["job_id"].to_list() == ["ok", "last"]
    [(where, why)] = report.skipped
    assert where == f"{path}:4"
    assert why.startswith(reason)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("status", "exploded", "status is not a known status: 'exploded'"),
        ("ps", "1.5", "ps is not a whole number: '1.5'"),
        ("ps", "-1", "ps must be ≥ 0, is -1"),
        ("cpus", "nan", "cpus must be ≥ 0, is NaN"),
        ("memory_gib", "-1", "memory_gib must be ≥ 0, is -1.0"),
        ("weight", "0", "weight must be > 0, is 0.0"),
        ("weight", "nan", "weight must be > 0, is NaN"),
        ("priority", "nan", "priority must be a number, is NaN"),
        ("priority", "inf", "priority must be a number, is inf"),
        ("work", "inf", "work must be ≥ 0, is inf"),
        ("min_gpus", "2", "gpus = 1.0 lies outside min_gpus..max_gpus"),
        ("deadline_s", "x" * 90, f"deadline_s is not a number: '{'x' * 40}'"),
    ],
)
def test_a_bad_optional_cell(tmp_path: Path, column: str, value: str, reason: str) -> None:
    path = write(tmp_path, f"{HEADER},{column}\na,0,1,1,{value}\n")
    assert refused(path).startswith(f"{path}:2: {reason}")


def test_the_first_bad_rows_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "\n" + "".join(f"j{i},{'x' if i % 2 else 0},1,1\n" for i in range(30)))
    message = refused(path)
    assert [f"{path}:{line}:" in message for line in (3, 5, 7, 9, 11, 13)] == [True] * 5 + [False]
    assert "… and 10 more" in message
    assert "15 of 30 rows are bad" in message
    report = read_trace_report(path, on_error="skip")
    assert (len(report.trace), len(report.skipped)) == (15, 15)


def test_lines_are_right_after_quoted_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path, f'{HEADER},user\na,0,1,1,"two\nlines, ""quoted"""\nb,x,1,1,u\nc,0,1,1\n')
    report = read_trace_report(path, on_error="skip")
    assert report.trace.frame["user"].to_list() == ['two\nlines, "quoted"']
    assert [where for where, _ in report.skipped] == [f"{path}:4", f"{path}:5"]


def test_rows_of_parquet_are_numbered(tmp_path: Path) -> None:
    frame = pl.DataFrame({"job_id": [7, 8], "submit_s": [0.0, -1.0], "duration_s": ["5", "6"], "gpus": [1, 1]})
    frame.write_parquet(tmp_path / "t.parquet")
    assert f"{tmp_path}/t.parquet row 2: submit_s must be" in refused(tmp_path / "t.parquet")
    kept = read_trace(tmp_path / "t.parquet", on_error="skip").frame
    assert kept.select("job_id", "duration_s").rows() == [("7", 5.0)]


def test_types_of_parquet_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    good = {"job_id": ["a"], "submit_s": [0], "duration_s": [5], "gpus": [1]}
    pl.DataFrame(good | {"user": pl.Series(["u"], dtype=pl.Categorical), "ps": [None]}).write_parquet(path)
    assert read_trace(path).frame.select("submit_s", "user", "ps").row(0) == (0.0, "u", None)
    pl.DataFrame(good | {"submit_s": [datetime(2024, 1, 1)]}).write_parquet(path)
    assert "submit_s is not a number: '2024-01-01" in refused(path)
    pl.DataFrame(good | {"gpus": pl.Series(["4"], dtype=pl.Categorical)}).write_parquet(path)
    assert read_trace(path).frame["gpus"].to_list() == [4.0]
    for value in (["x"], timedelta(1), b"x"):
        pl.DataFrame(good | {"gpus": [value]}).write_parquet(path)
        assert "column 'gpus' holds" in refused(path)


def test_nothing_but_bad_rows(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEADER}\na,x,1,1\nb,y,1,1\n")
    assert "no good row is left" in refused(path, on_error="skip")


# Bad files


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.csv")
    assert "a folder" in refused(tmp_path)


def test_empty_blank_and_header_only(tmp_path: Path) -> None:
    assert "empty" in refused(write(tmp_path, ""))
    assert "empty" in refused(write(tmp_path, gzip.compress(b"")))
    assert "empty" in refused(write(tmp_path, "\ufeff"))
    assert "blank lines" in refused(write(tmp_path, "\n\r\n\n"))
    assert "no rows" in refused(write(tmp_path, f"{HEADER}\n"))


def test_truncated_and_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress("".join([HEADER, "\n", *(f"j{i},{i},1,1\n" for i in range(5000))]).encode())
    assert "cut off or damaged" in refused(write(tmp_path, whole[:-20], "t.csv.gz"))
    assert "cut off or damaged" in refused(write(tmp_path, whole[:200] + b"\xff" * 50 + whole[250:], "t.csv.gz"))
    assert "cut off or damaged" in refused(write(tmp_path, whole[:5], "t.csv.gz"))


def test_binary_garbage_and_other_encodings(tmp_path: Path) -> None:
    assert "zero bytes" in refused(write(tmp_path, bytes(range(256)) * 10))
    assert "zero bytes" in refused(write(tmp_path, f"{HEADER}\na,0,1,1\n".encode("utf-16")))
    latin = write(tmp_path, f"{HEADER},user\na,0,1,1,u\nb,0,1,1,Jürgen\n".encode("latin-1"))
    assert refused(latin).startswith(f"{latin}:3: not UTF-8")
    cut = write(tmp_path, f"{HEADER},user\na,0,1,1,".encode() + b"\xc3")
    assert refused(cut).startswith(f"{cut}:2: not UTF-8")
    assert "damaged Parquet" in refused(write(tmp_path, b"PAR1" + bytes(100)))
    assert "no header" in refused(write(tmp_path, f"{HEADER}\ra,0,1,1\r"))  # line ends of old Macs


def test_a_huge_line_is_refused_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv.gz"  # one line of 256 MiB is 1 MB on disk
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(f"{HEADER}\na,0,1,1\n".encode())
        block = b"x" * 2**24
        for _ in range(16):
            file.write(block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = refused(path)
    assert message.startswith(f"{path}:3: a line is longer than 1 MiB")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


def test_quotes_that_do_not_close(tmp_path: Path) -> None:
    path = write(tmp_path, f'{HEADER},user\na,0,1,1,u\nb,0,1,1,"open\nc,0,1,1,u\n')
    assert refused(path).startswith(f"{path}:3: quotation marks do not pair up")
    write(tmp_path, f'{HEADER},user\na,0,1,1,u\nb,0,1,1,5"\nc,0,1,1,6"\n')
    assert refused(path).startswith(f"{path}:3: quotation marks do not pair up")
    write(tmp_path, f'{HEADER},user\na,0,1,1,"x"y\n')
    assert refused(path).startswith(f"{path}: quotation marks do not pair up")


def test_unknown_columns_are_errors_with_a_suggestion(tmp_path: Path) -> None:
    message = refused(write(tmp_path, "job_id,submit_s,duration_s,gpus,Usr,zzz\na,0,1,1,u,1\n"))
    assert "unknown columns 'Usr', 'zzz'" in message
    assert "did you mean 'user'?" in message
    message = refused(write(tmp_path, ",".join(f"c{i}" for i in range(2000)) + "\n"))
    assert "'c4' and 1995 more" in message
    assert "did you mean 'gpus'?" in refused(write(tmp_path, "job_id,submit_s,duration_s, GPUs\na,0,1,1\n"))


def test_columns_that_are_missing_or_doubled(tmp_path: Path) -> None:
    assert "has no column 'gpus'" in refused(write(tmp_path, "job_id,submit_s,duration_s\na,0,1\n"))
    assert "neither a column 'duration_s' nor 'work'" in refused(write(tmp_path, "job_id,submit_s,gpus\na,0,1\n"))
    assert "two columns are named 'gpus'" in refused(write(tmp_path, f"{HEADER},gpus\na,0,1,1,1\n"))
    path = write(tmp_path, f"{HEADER}\na,0,1,1\n")
    message = refused(path, mapping={"gpus": "num_gpus"})
    assert "has no column 'num_gpus'" in message
    assert "did you mean 'gpus'?" in message
    with pytest.raises(UnknownName, match="unknown trace column 'gpuz'"):
        read_trace(path, {"gpuz": "gpus"})


# Writing


def test_writing_replaces_at_the_end_and_cleans_up_after_errors(tmp_path: Path) -> None:
    target = write(tmp_path, "old", "out.html")
    with pytest.raises(RuntimeError), writing(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".html"
        temporary.write_text("half")
        assert target.read_text() == "old"
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.html"]
    with writing(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.html"]


def test_writing_keeps_permissions_and_links(tmp_path: Path) -> None:
    target = write(tmp_path, "old", "out")
    target.chmod(0o640)
    (tmp_path / "link").symlink_to(target)
    with writing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    with writing(tmp_path / "fresh") as temporary:
        temporary.write_text("new")
    (tmp_path / "plain").touch()
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("place", ["none/t.csv", ".", "file/t.csv", "/dev/null", "x" * 300 + ".csv"])
def test_what_can_not_be_written(tmp_path: Path, place: str) -> None:
    write(tmp_path, "content", "file")
    with pytest.raises(InputError, match="cannot be written") as caught, writing(tmp_path / place):
        raise AssertionError("the block must not run")
    assert caught.value.hint
    assert os.listdir(tmp_path) == ["file"]


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown kind of trace file") as caught:
        write_trace(Trace.of_jobs([EVERYTHING]), tmp_path / "t.xlsx")
    assert ".parquet" in str(caught.value)
    assert not os.listdir(tmp_path)


# Real traces, where they are


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("philly_pass_80d", 70_717),
        ("philly_vc_7f04ca", 1_494),
        ("philly_vc_2869ce", 992),
        ("alibaba_2023_pods", 8_152),
    ],
)
def test_real_traces(shared_data: Path, name: str, jobs: int) -> None:
    trace = read_trace(shared_data / "traces" / f"{name}.csv.gz")
    assert (len(trace), trace.name) == (jobs, name)
    assert trace.frame["submit_s"].min() == 0.0
