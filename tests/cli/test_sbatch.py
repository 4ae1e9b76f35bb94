"""`argosy submit job.sbatch`: what #SBATCH lines mean, what is ignored, and that the script runs as under Slurm."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Argosy
from live_daemon import LiveDaemon, live_daemon

from argosy.cli._sbatch import is_script, read_script
from argosy.config import load_yaml
from argosy.errors import InputError
from argosy.live.spec import JobSpec

SCRIPT = """#!/bin/bash -e
#SBATCH --job-name="my train"   # a comment
#SBATCH -N 2 --gres=gpu:a100:4
#SBATCH --ntasks-per-node=4 -c8
#SBATCH --mem=256G
#SBATCH -t 1-12:30
#SBATCH -p research
#SBATCH --account=lab7
#SBATCH --output=slurm-%j.out
#SBATCH --signal=B:SIGUSR1@120
#SBATCH --dependency=afterok:3:4,afterany:5,afternotok:6
#SBATCH --export=ALL,SEED=3
##SBATCH --time=1
module load cuda

#SBATCH --partition=too-late
srun python train.py
"""


def read(*options: str) -> JobSpec:
    text = "#!/bin/sh\n" + "".join(f"#SBATCH {option}\n" for option in options) + "true\n"
    return load_yaml(json.dumps(read_script("job.sbatch", text).job), JobSpec)


@pytest.mark.parametrize(
    ("options", "on"),
    [
        (("--mail-type=BEGIN,END",), ("start", "end")),
        (("--mail-type=fail", "--mail-type=REQUEUE,TIME_LIMIT_80"), ("failed", "preempted", "lost")),
        (("--mail-type=ALL",), ("start", "end", "failed", "preempted", "lost")),
    ],
)
def test_mails_become_notices(options: tuple[str, ...], on: tuple[str, ...]) -> None:
    spec = read("--mail-user=ann@example.org,bob@example.org", *options)
    assert spec.notify is not None
    assert (spec.notify.mail, spec.notify.on) == (("ann@example.org", "bob@example.org"), on)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--mail-user=ann@example.org",), "without --mail-type"),
        (("--mail-user=ann@example.org", "--mail-type=NONE"), "without --mail-type"),
        (("--mail-type=END",), "--mail-user=me@example.org"),
        (("--mail-user=ann", "--mail-type=END"), "--mail-user=me@example.org"),
    ],
)
def test_mails_that_nobody_would_get(options: tuple[str, ...], why: str) -> None:
    text = "#!/bin/sh\n" + "".join(f"#SBATCH {option}\n" for option in options) + "true\n"
    script = read_script("job.sbatch", text)
    assert "notify" not in script.job
    assert all(why in one.ignored and not one.means for one in script.told)


def test_a_usual_script() -> None:
    assert is_script(SCRIPT) and not is_script("#!/bin/sh\necho\n") and not is_script("run: x\n#SBATCH\n")
    script = read_script("job.sbatch", SCRIPT)
    spec = load_yaml(json.dumps(script.job), JobSpec)
    wants = spec.resources
    assert (spec.name, spec.queue, spec.max_duration) == ("my-train", "research", 36.5 * 3600)
    assert (wants.gpus.asked, wants.gpu_types, wants.cpus_per_gpu, wants.memory_per_gpu_gib) == (
        8,
        ("a100",),
        8.0,
        64.0,
    )
    assert spec.warning is not None and (spec.warning.signal, spec.warning.before) == ("USR1", 120.0)
    assert (spec.after.succeeded, spec.after.any, spec.after.failed) == ((3, 4), (5,), (6,))
    assert spec.env["SEED"] == "3" and spec.env["SLURM_NTASKS"] == "8" and spec.env["SLURM_CPUS_PER_TASK"] == "8"
    told = {one.option: one for one in script.told}
    assert told["--gres=gpu:a100:4"].means == told["--mem=256G"].means
    assert "gpus: 8" in told["--gres=gpu:a100:4"].means
    assert [o for o, one in told.items() if one.ignored] == [
        "--account=lab7",
        "--output=slurm-%j.out",
        "the command module",
        "the command srun",
    ]
    assert told["the command srun"].text("a") == (
        "a:17: the command srun is ignored: this is not part of Argosy; the job fails if it is not on its PATH"
    )


@pytest.mark.parametrize(
    ("options", "gpus", "cpus", "memory"),
    [
        ((), 0, None, None),
        (("--gpus=2",), 2, None, None),
        (("--gpus-per-task=1 -n 4",), 4, 1.0, None),
        (("-G v100:3", "--cpus-per-gpu=6", "--mem-per-gpu=32G"), 3, 6.0, 32.0),
        (("-n 4", "--mem-per-cpu=2000M"), 0, 4.0, 7.812),
        (("--gres=gpu", "--mem=0"), 1, None, None),
    ],
)
def test_resources(options: tuple[str, ...], gpus: int, cpus: float | None, memory: float | None) -> None:
    wants = read(*options).resources
    assert (wants.gpus.asked, wants.cpus_per_gpu, wants.memory_per_gpu_gib) == (gpus, cpus, memory)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("90:30", 5430), ("2:00:00", 7200), ("2-0", 172_800), ("1-1:1:1", 90_061), ("UNLIMITED", None)],
)
def test_times(text: str, seconds: float | None) -> None:
    assert read(f"--time={text}").max_duration == seconds


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--time=soon", "--time=soon is not a time"),
        ("--time=1:-2:3", "is not a time"),
        ("--gpus=many:of:them", "not a number of GPUs"),
        ("--gres=fpga:1", "no resource 'fpga'"),
        ("--mem=lots", "not an amount of memory"),
        ("-n 0", "not a number above 0"),
        ("--dependency=singleton", "not understood"),
        ("--dependency=afterok:3?afterok:4", "alternatives"),
        ("--dependency=afterok:x", "not understood"),
        ("--array=9-1", "not understood"),
        ("--array=0-99999", "more than 10000"),
        ("--signal=KILL@9", "not understood"),
        ("--job-name", "has no value"),
        ("hetjob", "several parts"),
        ("train.py", "'train.py' is not an option"),
        ("--comment='open", "cannot be read"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_line(option: str, text: str) -> None:
    with pytest.raises(InputError) as refused:
        read("--nodes=1", option)
    assert text in str(refused.value) and refused.value.where == "job.sbatch:3"


@pytest.mark.parametrize(
    ("array", "indices"), [("0-3", [0, 1, 2, 3]), ("1-9:4", [1, 5, 9]), ("7", [7]), ("2,3,11%2", [2, 3, 11])]
)
def test_a_script_sees_the_variables_of_slurm(tmp_path: Path, array: str, indices: list[int]) -> None:
    path = tmp_path / "it's a job.sbatch"
    path.write_text(
        f"#!/bin/sh\n#SBATCH --array={array}\n"
        "echo $SLURM_JOB_ID $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_NAME\n"
    )
    job = read_script(str(path), path.read_text()).job
    assert job["array"] == len(indices)
    seen = []
    for number in range(len(indices)):
        env = os.environ | job["env"] | {"ARGOSY_JOB_ID": str(20 + number), "ARGOSY_ARRAY_INDEX": str(number)}
        seen.append(
            subprocess.run(["/bin/sh", "-c", job["run"]], env=env, capture_output=True, text=True).stdout.split()
        )
    assert seen == [[str(20 + n), "20", str(index), "it-s-a-job.sbatch"] for n, index in enumerate(indices)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live_daemon(tmp_path_factory.mktemp("live") / "home") as running:
        yield running


@pytest.fixture
def live(daemon: LiveDaemon, argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> Argosy:
    monkeypatch.setenv("ARGOSY_HOME", str(daemon.home))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return argosy


def test_submit_a_script_with_changes(live: Argosy, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n#SBATCH -G 2 --qos=high\n#SBATCH -H\nhostname\n")
    answer = live("submit", "job.sbatch", "--env", "A=1=2", "--time-limit", "2h", "--name", "other", "--retries", "1")
    assert answer.code == 0, answer.err
    assert "job.sbatch:2: --gpus=2 means resources: {gpus: 2}" in answer.err
    assert "job.sbatch:2: --qos=high is ignored" in answer.err
    told = json.loads(live("status", answer.out.strip(), "-o", "json").out)
    spec = told["spec"]
    assert (told["name"], told["gpus_low"], spec["max_duration"], spec["retries"]) == ("other", 2.0, 7200.0, 1)
    assert spec["env"]["A"] == "1=2" and spec["env"]["SLURM_SUBMIT_DIR"] == str(tmp_path)
    assert spec["run"].endswith(f"exec /bin/bash {tmp_path}/job.sbatch")
    assert told["state"] == "pending" and "held back" in told["why"]
    asked = json.loads(live("submit", "job.sbatch", "-o", "json").out)
    assert [one["option"] for one in asked["sbatch"]["job.sbatch"]] == ["--gpus=2", "--qos=high", "--hold"]


def test_a_script_that_wants_mail_is_accepted_without_a_mail_server(live: Argosy, tmp_path: Path) -> None:
    lines = "#SBATCH --mail-user=ann@example.org\n#SBATCH --mail-type=END\n#SBATCH -H\n"
    (tmp_path / "job.sbatch").write_text(f"#!/bin/bash\n{lines}hostname\n")
    answer = live("submit", "job.sbatch")
    assert answer.code == 0, answer.err
    assert "job.sbatch:2: --mail-user=ann@example.org is ignored: this daemon sends no mail" in answer.err


def test_flags_of_submit(live: Argosy, tmp_path: Path) -> None:
    first = live("submit", "--run", "fake seconds=0.1 exit=1", "--workdir", "sub").out.strip()
    options = ["--after", f"failed:{first}", "--after", f"any:{first}", "--hold"]
    second = live("submit", "--run", "fake seconds=0.1", *options).out.strip()
    told = json.loads(live("status", first, "-o", "json").out)
    assert told["workdir"] == str(tmp_path / "sub")
    assert json.loads(live("status", second, "-o", "json").out)["spec"]["after"] == {
        "succeeded": [],
        "any": [int(first)],
        "failed": [int(first)],
    }
    assert live("release", second).code == 0
    assert live("wait", second, "--timeout", "2m").code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--env", "A"], "--env 'A' is not a variable"),
        (["--after", "soon"], "--after 'soon' is not understood"),
        (["--after", "never:3"], "not understood"),
        (["--time-limit", "x"], "not a duration"),
        (["--retries", "-1"], "greater than or equal to 0"),
    ],
)
def test_wrong_flags(live: Argosy, arguments: list[str], text: str) -> None:
    answer = live("submit", "--run", "fake", *arguments)
    assert (answer.code, answer.out) == (2, "") and text in answer.err
