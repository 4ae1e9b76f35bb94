"""Run benchmarks, print their tables, write benchmarks/results/<name>.json.

python -m benchmarks                          # speed and memory, some minutes
python -m benchmarks philly peers --data DIR  # some, with the public data in DIR
python -m benchmarks rivals                   # the newest rivals' claims, ten minutes
python -m benchmarks gavel-peers --data DIR   # Gavel's own answers, some minutes
python -m benchmarks faithfulness             # the papers' claims, half an hour
python -m benchmarks growth                   # the study of networks that grow, most of an hour
python -m benchmarks growth-safety            # growth that never hurts: collapses and lost jobs, ten minutes
python -m benchmarks growth-left-out          # what the growth agent says of families it was not taught, seconds
python -m benchmarks growth-elsewhere         # the growth agent on networks it was not taught, hours
python -m benchmarks growth-spare             # spare GPUs of a cluster: grow-when-spare against its rivals, minutes
python -m benchmarks growth-shrink            # small networks taught by grown ones, half an hour
python -m benchmarks learning --parts jct     # a part of the study of learned policies; all of it takes hours
python -m benchmarks rltune                   # RLTune against its base heuristics, some minutes
python -m benchmarks joint                    # joint scheduling against the best rivals, most of an hour
python -m benchmarks joint --parts newest     # in the newest scenarios, against the newest rivals, a quarter of an hour
python -m benchmarks bounds                   # how far joint scheduling is from lower bounds, half a minute
python -m benchmarks windows                  # joint scheduling on windows of real traces, some minutes
python -m benchmarks joint-training           # argonaut's learning curves and ablations, half an hour
python -m benchmarks placement                # learned placement: searches, gangs and Harmony, some minutes
python -m benchmarks placement --parts times  # how long a gang of 32 GPUs takes on 1,000 nodes, seconds
python -m benchmarks live                     # real jobs on this machine, some minutes
python -m benchmarks cluster                  # several pseudo-hosts, Slurm and Ray, as root, some minutes
python -m benchmarks reference                # every finish time against a slow, plain simulator, ten minutes
python -m benchmarks dual-agent               # the dual-agent scheduler against its rivals, ten minutes
python -m benchmarks online                   # learning on the job when the mix of jobs changes, fifteen minutes
python -m benchmarks dual-agent-training      # its training: ES, MAPPO, IPPO and SAC, ten minutes
python -m benchmarks eta                      # estimates of when jobs start, a quarter of an hour
python -m benchmarks dashboard                # the dashboard in a real browser, ten minutes
python -m benchmarks goodput                  # Pollux and Sia: agreement, claims, speed, ten minutes
python -m benchmarks shadow                   # whether the guard catches poisoned policies, a quarter of an hour
python -m benchmarks shadow --seeds 20        # the target's number of promotions of each policy, an hour
python -m benchmarks live --parts answers     # eta and explain from the daemon's cache, 10,000 queued jobs, minutes
python -m benchmarks live --parts shadow      # what a shadow policy adds to the daemon's CPU time, five minutes
python -m benchmarks eta --parts costs        # roll-outs of 1,000 active jobs, two minutes
python -m benchmarks advise                   # argosy advise for 5,000 jobs, minutes
python -m benchmarks fidelity                 # real jobs against their simulation, ten minutes
python -m benchmarks --quick                  # small sizes, to see that they work; writes nothing
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path

from argosy.errors import ArgosyError, InputError, UnknownName
from benchmarks.harness import RESULTS, ROOT, Json, Options, aligned, document, warm, write

SPEED = ("philly", "million", "decision", "peers", "startup", "schedulers", "environments", "scaling")
LONG = (
    "growth",
    "growth-safety",
    "growth-left-out",
    "growth-elsewhere",
    "growth-spare",
    "growth-shrink",
    "faithfulness",
    "learning",
    "live",
    "cluster",
    "reference",
    "rltune",
    "placement",
    "joint",
    "windows",
    "bounds",
    "joint-training",
    "dual-agent",
    "online",
    "dual-agent-training",
    "eta",
    "dashboard",
    "goodput",
    "rivals",
    "gavel-peers",
    "shadow",
    "advise",
    "fidelity",
)
WITH_PARTS = (
    "learning",
    "live",
    "cluster",
    "goodput",
    "rivals",
    "schedulers",
    "dashboard",
    "joint",
    "placement",
    "eta",
)
WITH_SEEDS = ("shadow",)
NAMES = (*SPEED, *LONG)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, memory and faithfulness.")
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(NAMES)}; default: all but {', '.join(LONG)}")
    parser.add_argument("--data", type=Path, help="folder with the public traces; default: ../shared/data")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written")
    parser.add_argument("--parts", help=f"of {', '.join(WITH_PARTS)}: names separated by commas; default: all")
    parser.add_argument("--minutes", type=float, help="of live's soak, growth-elsewhere, -safety and -shrink: how long")
    parser.add_argument("--weights", type=Path, help="of learning: a folder of weights instead of those that ship")
    parser.add_argument("--seeds", type=int, help=f"of {', '.join(WITH_SEEDS)}: how many")
    given = parser.parse_args(arguments)
    try:
        options = Options(data=find_data(given.data), quick=given.quick, minutes=given.minutes)
        for name in given.names or SPEED:
            if name not in NAMES:
                raise UnknownName("benchmark", name, NAMES)
        more = further(given)
        warm()
        for name in given.names or SPEED:
            measure_one(name, options, more)
    except ArgosyError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


def find_data(given: Path | None) -> Path | None:
    """What was asked for must exist; the usual place need not."""
    if given is not None and not given.is_dir():
        raise ArgosyError(f"--data {given}: no such folder")
    usual = ROOT.parent / "shared" / "data"
    found = given if given is not None else usual if usual.is_dir() else None
    return found.resolve() if found is not None else None


def further(given: argparse.Namespace) -> Json:
    """What only a benchmark with parts understands."""
    more = {"parts": tuple(given.parts.split(",")) if given.parts else None, "weights": given.weights}
    found = {name: value for name, value in more.items() if value is not None}
    if found and not (given.names and set(given.names) <= set(WITH_PARTS)):
        hint = "name it, and no other benchmark"
        raise InputError(f"--{next(iter(found))} is for {', '.join(WITH_PARTS)}", hint=hint)
    if given.seeds is not None:
        if given.seeds < 1 or not (given.names and set(given.names) <= set(WITH_SEEDS)):
            raise InputError(f"--seeds {given.seeds} is for {', '.join(WITH_SEEDS)}", hint="give 1 or more")
        found["seeds"] = given.seeds
    return found


def measure_one(name: str, options: Options, more: Json) -> None:
    module = import_module(f"benchmarks.{name.replace('-', '_')}")
    load, began = os.getloadavg()[0], time.perf_counter()
    figures = module.run(options, **more)
    result = document(name, figures, range(more["seeds"]) if "seeds" in more else module.SEEDS, load)
    print(f"\n{name}  ({time.perf_counter() - began:.0f} s, load average {load:.2f} before)\n")
    print(aligned(module.table(result["figures"])), flush=True)
    if not options.quick:
        print(f"\n→ {write(RESULTS, result).relative_to(ROOT)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
