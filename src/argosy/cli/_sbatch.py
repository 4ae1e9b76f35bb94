"""Reads the `#SBATCH` lines of a script for Slurm as a job file, and tells what each of them means here."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from argosy.errors import InputError
from argosy.live.notify_spec import MOST_TARGETS

# The tables below are laid out by hand: with an entry on each line they would fill two pages.
SHORT = {
    "A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "H": "hold", "J": "job-name", "L": "licenses",
    "M": "clusters", "N": "nodes", "W": "wait", "a": "array", "b": "begin", "c": "cpus-per-task", "d": "dependency",
    "e": "error", "i": "input", "k": "no-kill", "m": "distribution", "n": "ntasks", "o": "output", "p": "partition",
    "q": "qos", "s": "oversubscribe", "t": "time", "v": "verbose", "w": "nodelist", "x": "exclude",
}  # fmt: skip
FLAGS = {"hold", "requeue", "no-requeue", "no-kill", "oversubscribe", "verbose", "wait", "exclusive", "get-user-env"}
LOG = "what it prints is in argosy logs"
NODES = "the policy chooses the nodes"
WHY_IGNORED = {
    "output": LOG, "error": LOG, "open-mode": LOG, "input": "jobs read from /dev/null",
    "account": "there are no accounts; use the limits of users and queues",
    "qos": "there are no classes of service; use --partition or priority",
    "constraint": "name GPU types with --gres=gpu:TYPE:N", "nodelist": NODES, "exclude": NODES, "distribution": NODES,
    "exclusive": NODES, "oversubscribe": NODES, "requeue": "a run that is lost with its node is always tried again",
    "no-requeue": "a run that is lost with its node is always tried again",
    "begin": "hold the job (--hold), and release it then", "verbose": "", "no-kill": "",
}  # fmt: skip
MAIL_ON = {  # --mail-type; in Slurm, ALL leaves out what is not about the job as a whole
    "BEGIN": ("start",), "END": ("end",), "FAIL": ("failed",), "REQUEUE": ("preempted", "lost"),
    "ALL": ("start", "end", "failed", "preempted", "lost"), "TIME_LIMIT": ("failed",), "NONE": (),
}  # fmt: skip
SIGNALS = {"10": "USR1", "12": "USR2", "1": "HUP", "2": "INT", "18": "CONT"}
MOST_LISTED = 1000  # indices of an array that is not a range
_OTHER_PROGRAMS = re.compile(r"^\s*(?:exec\s+|time\s+)?(srun|sbatch|module|scontrol|squeue)\b")


@dataclass
class Told:
    """What one option means."""

    line: int
    option: str
    means: str = ""  # in a job file
    ignored: str = ""  # why it means nothing

    def text(self, file: str) -> str:
        said = f"means {self.means}" if self.means else f"is ignored{': ' * bool(self.ignored)}{self.ignored}"
        return f"{file}:{self.line}: {self.option} {said}"


@dataclass
class Script:
    """A script for Slurm: the job file that it stands for, and what was made of its options."""

    job: dict[str, Any]
    told: list[Told]

    def without_mail(self) -> None:
        """Leave out the mails, for a daemon that sends none: it would refuse the job."""
        if self.job.pop("notify", None) is not None:
            for one in self.told:
                if one.option.startswith("--mail-"):
                    one.means, one.ignored = "", "this daemon sends no mail (argosy serve --smtp)"


@dataclass
class _Wants:
    """What the options ask for, until all of them are read."""

    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    types: list[str] = field(default_factory=list)
    nodes: int = 1
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    cpus_per_gpu: float | None = None
    memory_gib: float | None = None  # of a node
    memory_per_gpu_gib: float | None = None
    memory_per_cpu_gib: float | None = None
    mail_to: list[str] = field(default_factory=list)
    mail_on: list[str] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)


def is_script(text: str) -> bool:
    """Return whether a file is a script with `#SBATCH` lines."""
    return text.startswith("#!") and any(line.startswith("#SBATCH") for line in text.splitlines())


def read_script(path: str, text: str) -> Script:
    """Read a script; raise InputError for an option that cannot be ignored without changing what the job means."""
    lines = text.splitlines()
    job: dict[str, Any] = {"name": _name(Path(path).name), "env": {"SLURM_SUBMIT_DIR": os.getcwd()}}
    reader = _Reader(path, job)
    for number, line in enumerate(lines, 1):
        if line.startswith("#SBATCH"):
            reader.read(number, line.removeprefix("#SBATCH"))
        elif line.strip() and not line.lstrip().startswith("#"):
            break  # as in Slurm, options end at the first command
    reader.finish()
    job["run"] = _command(path, lines[0], reader.wants.indices)
    for number, line in enumerate(lines, 1):
        if found := _OTHER_PROGRAMS.match(line):
            why = "this is not part of Argosy; the job fails if it is not on its PATH"
            reader.told.append(Told(number, f"the command {found[1]}", ignored=why))
    return Script(job, reader.told)


class _Reader:
    """Reads options one by one into a job file."""

    def __init__(self, path: str, job: dict[str, Any]) -> None:
        self.path, self.job, self.wants, self.told = path, job, _Wants(), list[Told]()
        self.line = 0
        self._known: dict[str, Callable[[str], str]] = {
            "job-name": self._job_name,
            "partition": lambda v: self._put("queue", v),
            "chdir": lambda v: self._put("workdir", v),
            "hold": lambda v: self._put("hold", True),
            "time": self._time,
            "dependency": self._dependency,
            "export": self._export,
            "signal": self._signal,
            "mail-user": self._mail_to,
            "mail-type": self._mail_on,
            "array": self._array,
            "gres": lambda v: self._gres(v, "gpus_per_node"),
            "gpus": lambda v: self._gpus(v, "gpus"),
            "gpus-per-node": lambda v: self._gpus(v, "gpus_per_node"),
            "gpus-per-task": lambda v: self._gpus(v, "gpus_per_task"),
            "nodes": lambda v: self._count("nodes", v.partition("-")[0]),
            "ntasks": lambda v: self._count("tasks", v),
            "ntasks-per-node": lambda v: self._count("tasks_per_node", v),
            "cpus-per-task": lambda v: self._count("cpus_per_task", v),
            "cpus-per-gpu": lambda v: self._count("cpus_per_gpu", v),
            "mem": lambda v: self._memory("memory_gib", v),
            "mem-per-gpu": lambda v: self._memory("memory_per_gpu_gib", v),
            "mem-per-cpu": lambda v: self._memory("memory_per_cpu_gib", v),
        }
        self._open: list[Told] = []  # options whose meaning is known when all are read

    def read(self, number: int, text: str) -> None:
        """Read one `#SBATCH` line, which may have several options."""
        self.line = number
        try:
            words = shlex.split(text, comments=True)
        except ValueError as problem:
            raise self._wrong(f"the line cannot be read: {problem}", "close the quotes") from None
        while words:
            word = words.pop(0)
            if word == "hetjob":
                raise self._wrong("jobs of several parts (hetjob) are not supported", "submit each part as a job")
            name, value = self._split(word, words)
            shown = f"--{name}" + (f"={value}" if value else "")
            read = self._known.get(name)
            if read is None:
                why = WHY_IGNORED.get(name, "Argosy has nothing like it")
                self.told.append(Told(number, shown, ignored=why))
                continue
            told = Told(number, shown, means=read(value))
            self.told.append(told)
            self._open += [] if told.means else [told]

    def _split(self, word: str, words: list[str]) -> tuple[str, str]:
        """Return the name and the value of an option."""
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif len(word) >= 2 and word[0] == "-" and word[1] in SHORT:
            name, equals, value = SHORT[word[1]], word[2:3], word[2:].removeprefix("=")
        else:
            raise self._wrong(f"{word!r} is not an option", "write options such as --gres=gpu:4 or -t 2:00:00")
        if name in FLAGS:
            return name, value
        if not equals:
            if not words:
                raise self._wrong(f"--{name} has no value", f"write --{name}=VALUE")
            value = words.pop(0)
        return name, value

    def finish(self) -> None:
        """Work out the resources and the mails from all options together."""
        w = self.wants
        self._notify([told for told in self._open if told.option.startswith("--mail-")])
        tasks = w.tasks or (w.tasks_per_node * w.nodes if w.tasks_per_node else None)
        gpus = w.gpus
        if gpus is None and w.gpus_per_node is not None:
            gpus = w.gpus_per_node * w.nodes
        if gpus is None and w.gpus_per_task is not None:
            gpus = w.gpus_per_task * (tasks or 1)
        gpus = gpus or 0
        per, resources = max(gpus, 1), dict[str, Any](gpus=gpus)
        cpus = (w.cpus_per_task or 1) * (tasks or w.nodes) if w.cpus_per_task or tasks else None
        if w.cpus_per_gpu is not None or cpus is not None:
            resources["cpus_per_gpu"] = w.cpus_per_gpu if w.cpus_per_gpu is not None else (cpus or 0) / per
        memory = w.memory_per_gpu_gib
        if memory is None and w.memory_gib is not None:
            memory = w.memory_gib * w.nodes / per
        if memory is None and w.memory_per_cpu_gib is not None:
            memory = w.memory_per_cpu_gib * (cpus or 1) / per
        if memory:  # in Slurm, 0 means all that there is
            resources["memory_per_gpu_gib"] = round(memory, 3)
        if w.types:
            resources["gpu_types"] = w.types
        self.job["resources"] = resources
        whole = ", ".join(f"{key}: {_shown(value)}" for key, value in resources.items())
        for told in self._open:
            told.means = told.means or ("" if told.ignored else f"resources: {{{whole}}}")
        env = self.job["env"]
        env["SLURM_JOB_NAME"] = self.job["name"]
        counts = {"SLURM_NTASKS": tasks, "SLURM_CPUS_PER_TASK": w.cpus_per_task, "SLURM_JOB_NUM_NODES": w.nodes}
        env |= {name: str(count) for name, count in counts.items() if count is not None}

    # -- one option each; they return what it means in a job file, or nothing for a resource

    def _put(self, key: str, value: Any) -> str:
        if value == "":
            raise self._wrong(f"{key} is empty", "write a value, or remove the line")
        self.job[key] = value
        return f"{key}: {_shown(value)}"

    def _job_name(self, value: str) -> str:
        return self._put("name", _name(value))

    def _time(self, value: str) -> str:
        if value.upper() in ("UNLIMITED", "INFINITE", "0"):
            return "no max_duration"
        days, dash, rest = value.rpartition("-")
        parts = rest.split(":")
        try:
            numbers = [int(part) for part in parts]
            whole_days = int(days) if dash else 0
        except ValueError:
            numbers, whole_days = [], -1
        if not 1 <= len(numbers) <= 3 or min([whole_days, *numbers]) < 0:
            raise self._wrong(f"--time={value} is not a time", "write MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS")
        units = (3600, 60, 1) if dash or len(numbers) == 3 else (60, 1)
        seconds = 86_400 * whole_days + sum(n * unit for n, unit in zip(numbers, units))
        return self._put("max_duration", float(max(1, seconds)))

    def _dependency(self, value: str) -> str:
        if "?" in value:
            raise self._wrong(f"--dependency={value}: alternatives (?) are not supported", "write all of them with ,")
        kinds = {"afterok": "succeeded", "afterany": "any", "afternotok": "failed"}
        after: dict[str, list[int]] = self.job.get("after", {})
        for part in value.split(","):
            kind, *jobs = part.split(":")
            if kind not in kinds or not jobs or not all(re.fullmatch(r"[1-9]\d{0,17}", job) for job in jobs):
                hint = "use afterok, afterany or afternotok with numbers of Argosy's jobs, such as afterok:7:8"
                raise self._wrong(f"--dependency={value} is not understood", hint)
            after.setdefault(kinds[kind], []).extend(map(int, jobs))
        return self._put("after", after)

    def _export(self, value: str) -> str:
        given = dict(pair.split("=", 1) for pair in value.split(",") if "=" in pair)
        self.job["env"] |= given
        plain = [pair for pair in value.split(",") if "=" not in pair]
        told = [f"env: {_shown(given)}"] if given else []
        told += ["the variables that argosy submit passes on (--here, --clean)"] if plain else []
        return " and ".join(told) or "nothing"

    def _signal(self, value: str) -> str:
        name, _, seconds = value.rpartition(":")[2].partition("@")
        name = SIGNALS.get(name, name.upper().removeprefix("SIG"))
        if name not in SIGNALS.values() or not re.fullmatch(r"\d{0,5}", seconds):
            hint = "write such as --signal=B:USR1@120 (USR1, USR2, INT, HUP or CONT)"
            raise self._wrong(f"--signal={value} is not understood", hint)
        return self._put("warning", {"signal": name, "before": float(seconds or 60) or 1.0})

    def _mail_to(self, value: str) -> str:
        self.wants.mail_to += [one.strip() for one in value.split(",") if one.strip()]
        return ""

    def _mail_on(self, value: str) -> str:
        for kind in value.upper().split(","):
            # TIME_LIMIT_90 and the like come before the end, and there is nothing that could be sent then
            self.wants.mail_on += [when for when in MAIL_ON.get(kind.strip(), ()) if when not in self.wants.mail_on]
        return ""

    def _notify(self, told: list[Told]) -> None:
        """Set `notify` from --mail-user and --mail-type, or say why it means nothing."""
        to, on = self.wants.mail_to, self.wants.mail_on
        why = ""
        if not to or not all("@" in one for one in to):
            why = "there are no mailboxes of users: name a whole address, --mail-user=me@example.org"
        elif len(to) > MOST_TARGETS:
            why = f"a job has at most {MOST_TARGETS} addresses"
        elif not on:
            why = "without --mail-type=BEGIN, END, FAIL, REQUEUE or ALL nothing is sent"
        meaning = "" if why or not told else self._put("notify", {"mail": to, "on": on})
        for one in told:
            one.means, one.ignored = meaning, why

    def _array(self, value: str) -> str:
        listed, percent, most = value.partition("%")
        indices: list[int] = []
        for part in listed.split(","):
            found = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", part)
            if found is None or int(found[3] or 1) < 1 or int(found[2] or found[1]) < int(found[1]):
                raise self._wrong(f"--array={value} is not understood", "write such as --array=0-15, 1-9:2 or 1,3,5")
            indices += range(int(found[1]), int(found[2] or found[1]) + 1, int(found[3] or 1))
            if len(indices) > 10_000:
                raise self._wrong(f"--array={value} has more than 10000 jobs", "submit it in parts")
        if len(indices) > MOST_LISTED and _step(indices) is None:
            raise self._wrong(f"--array={value} lists more than {MOST_LISTED} indices", "write a range, such as 0-4999")
        self.wants.indices = indices
        limit = f"; the limit of {most} at once is ignored, use limits of users" if percent else ""
        return f"{self._put('array', len(indices))}, with the indices in SLURM_ARRAY_TASK_ID{limit}"

    def _gres(self, value: str, key: str) -> str:
        for part in value.split(","):
            name, _, rest = part.partition(":")
            if name != "gpu":
                raise self._wrong(f"--gres={value}: there is no resource {name!r}", "ask for GPUs: --gres=gpu:4")
            self._gpus(rest or "1", key)
        return ""

    def _gpus(self, value: str, key: str) -> str:
        total = 0
        for part in value.split(","):
            kind, _, count = part.rpartition(":")
            if not count.isdigit():
                kind, count = part, "1"
            if kind and not re.fullmatch(r"[A-Za-z0-9._-]+", kind):
                raise self._wrong(f"{value!r} is not a number of GPUs", "write 4 or a100:4")
            total += int(count)
            self.wants.types += [kind] if kind and kind not in self.wants.types else []
        setattr(self.wants, key, total)
        return ""

    def _count(self, key: str, value: str) -> str:
        if not re.fullmatch(r"\d{1,7}", value) or int(value) < 1:
            raise self._wrong(f"{value!r} is not a number above 0", "write a whole number")
        setattr(self.wants, key, int(value))
        return ""

    def _memory(self, key: str, value: str) -> str:
        found = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([KMGT]?)B?", value.upper())
        if found is None:
            raise self._wrong(f"{value!r} is not an amount of memory", "write 64G, 4000M or a number of MiB")
        scale = {"K": 2.0**-20, "M": 2.0**-10, "": 2.0**-10, "G": 1.0, "T": 1024.0}[found[2]]
        setattr(self.wants, key, float(found[1]) * scale)
        return ""

    def _wrong(self, what: str, hint: str) -> InputError:
        return InputError(what, where=f"{self.path}:{self.line}", hint=hint)


def _command(path: str, shebang: str, indices: list[int]) -> str:
    """Return the line that runs the script with Slurm's variables, which depend on the job's number."""
    try:
        interpreter = shlex.split(shebang.removeprefix("#!"))
    except ValueError:
        interpreter = []
    if not interpreter:
        raise InputError("the first line names no interpreter", where=f"{path}:1", hint="write #!/bin/bash")
    parts = ["export SLURM_JOB_ID=$ARGOSY_JOB_ID SLURM_JOBID=$ARGOSY_JOB_ID"]
    if indices:
        step = _step(indices)
        if step is None:
            parts.append(f"set -- {' '.join(map(str, indices))}; shift $ARGOSY_ARRAY_INDEX")
            index = "$1"
        else:
            index = f"$((ARGOSY_ARRAY_INDEX * {step} + {indices[0]}))"
        parts.append("export SLURM_ARRAY_JOB_ID=$((ARGOSY_JOB_ID - ARGOSY_ARRAY_INDEX))")
        parts.append(f"export SLURM_ARRAY_TASK_ID={index} SLURM_ARRAY_TASK_COUNT={len(indices)}")
    return "; ".join([*parts, f"exec {shlex.join([*interpreter, os.path.abspath(path)])}"])


def _step(indices: list[int]) -> int | None:
    """Return the step of a range; None if the indices are no range."""
    steps = {after - before for before, after in pairwise(indices)} or {1}
    return steps.pop() if len(steps) == 1 else None


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).strip(".-_")[:100] or "job"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)
