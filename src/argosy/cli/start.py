"""The entry point of the command `argosy`, which starts and ends fast, and which Ctrl-C ends silently at any time."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    _open_streams()
    gc.set_threshold(10_000, 10, 10)  # imported objects stay, so frequent collections would find nothing
    try:
        from argosy.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        exec("")  # makes Python forget a Ctrl-C within another exec: it would kill itself, not return the exit code
        gc.freeze()  # the system frees the memory anyway; a last collection would take a fifth of a short run
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the process at once, without a message


def _open_streams() -> None:
    """Open streams that were closed (`>&-`) on the null device: else the next file that is opened would take their
    place.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 - open to the end


if __name__ == "__main__":
    main()
