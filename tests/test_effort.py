"""A loop over things is noticed by the lines that it runs, and work in compiled code is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from effort import assert_no_loops


def test_a_loop_is_noticed() -> None:
    with pytest.raises(AssertionError, match="lines for 10"):
        assert_no_loops(lambda n: lambda: [number + 1 for number in range(n)], few=10, many=1000)


def test_work_in_compiled_code_is_none() -> None:
    assert_no_loops(lambda n: lambda: np.arange(n) + 1, few=10, many=1000)
