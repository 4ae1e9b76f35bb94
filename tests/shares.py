"""How `pytest -n 2` divides the tests among its workers: whatever shares an expensive set-up stays together."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

ONE_BY_ONE = (  # tests that take seconds each and share nothing
    "tests/golden/test_golden.py::test_event_logs",
    "tests/live/daemon/test_live_policies.py",
    "tests/live/demo/test_live_demo.py",
    "tests/test_jit_loaded.py",
)
TOGETHER = (
    "tests/live/dashboard",
    "tests/live/growth",
    "tests/live/sdk",
)  # folders whose files share a process that takes seconds to start


class Shares(LoadScopeScheduling):
    """Deals out the tests of a file to one worker, in the order in which they were collected.

    Fast and slow tests of a file are two shares, because all fast tests come first.
    """

    _share_of: dict[str, str]

    def schedule(self) -> None:
        if self.collection is None:
            self._share_of = shares(next(iter(self.registered_collections.values())))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._share_of[nodeid]


def shares(collected: list[str]) -> dict[str, str]:
    """Return the name of the share of each test: those of a file that stand together in the list."""
    found: dict[str, str] = {}
    number, before = 0, ""
    for name in collected:
        path = name.partition("::")[0]
        folder = path.rpartition("/")[0]
        place = folder if folder in TOGETHER else path
        number += place != before
        before = place
        found[name] = name if name.startswith(ONE_BY_ONE) else f"{number} {place}"
    return found
