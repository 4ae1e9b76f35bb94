from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import Serving, serving


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One API for all tests of a file; each test makes jobs of its own."""
    with serving(tmp_path_factory.mktemp("home")) as running:
        yield running
