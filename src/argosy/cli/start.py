"""The entry point of the command `argosy`: it starts quickly, ends quickly, and Ctrl-C ends it quietly at any time."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    _open_streams()
    gc.set_threshold(10_000, 10, 10)  # what is imported stays: to look through it often finds nothing
    try:
        from argosy.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        gc.freeze()  # the system takes the memory back: a search for garbage would cost a fifth of a short run
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever presses it again does not want to wait, nor to read


def _open_streams() -> None:
    """Open streams that were closed (`>&-`) on the null device: else the next file that is opened would take their
    place.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 - open to the end


if __name__ == "__main__":
    main()
