"""Run benchmarks, print their tables, write benchmarks/results/<name>.json.

python -m benchmarks                          # speed and memory, some minutes
python -m benchmarks philly peers --data DIR  # some, with the public data in DIR
python -m benchmarks faithfulness             # the papers' claims, half an hour
python -m benchmarks growth                   # the study of networks that grow, most of an hour
python -m benchmarks --quick                  # small sizes, to see that they work; writes nothing
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path

from argosy.errors import ArgosyError, UnknownName
from benchmarks.harness import RESULTS, ROOT, Options, aligned, document, warm, write

SPEED = ("philly", "million", "decision", "peers", "startup", "schedulers")
LONG = ("growth", "faithfulness")
NAMES = (*SPEED, *LONG)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, memory and faithfulness.")
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(NAMES)}; default: all but growth and faithfulness")
    parser.add_argument("--data", type=Path, help="folder with the public traces; default: ../shared/data")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written")
    given = parser.parse_args(arguments)
    try:
        options = Options(data=find_data(given.data), quick=given.quick)
        for name in given.names or SPEED:
            if name not in NAMES:
                raise UnknownName("benchmark", name, NAMES)
        warm()
        for name in given.names or SPEED:
            measure_one(name, options)
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


def measure_one(name: str, options: Options) -> None:
    module = import_module(f"benchmarks.{name}")
    load, began = os.getloadavg()[0], time.perf_counter()
    figures = module.run(options)
    result = document(name, figures, module.SEEDS, load)
    print(f"\n{name}  ({time.perf_counter() - began:.0f} s, load average {load:.2f} before)\n")
    print(aligned(module.table(result["figures"])), flush=True)
    if not options.quick:
        print(f"\n→ {write(RESULTS, result).relative_to(ROOT)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
