"""The entry point of the command `argosy`: Ctrl-C is a quiet end also while the rest is still being imported."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    _open_streams()
    try:
        from argosy.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever presses it again does not want to wait, nor to read


def _open_streams() -> None:
    """Closed ones (`>&-`) lead nowhere: else the next file that is opened would be taken for one of them."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 - open to the end


if __name__ == "__main__":
    main()
