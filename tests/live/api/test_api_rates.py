"""Limits on the rate of requests."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from serving import serving

from argosy.live.api.rate_limits import Buckets, Rate
from argosy.live.daemon_log import MOST_ALIKE, BoundedRate


def test_a_bucket_fills_again() -> None:
    clock = [0.0]
    buckets = Buckets(Rate(2.0, 3.0), lambda: clock[0])
    assert [buckets.take("ann") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("bob") == 0.0
    clock[0] = 0.5
    assert [buckets.take("ann") == 0.0 for _ in range(2)] == [True, False]
    clock[0] = 1000.0
    assert [buckets.take("ann") == 0.0 for _ in range(4)] == [True, True, True, False]


def test_no_rate_is_no_limit() -> None:
    buckets = Buckets(Rate(0.0, 0.0))
    assert not any(buckets.take("ann") for _ in range(100))


def test_users_have_a_limit_each_and_operators_none(tmp_path: Path) -> None:
    with serving(tmp_path, user_rate=Rate(0.01, 10.0)) as api:
        with api.as_("ann") as ann:
            answers = [ann.get("/v1/queues") for _ in range(12)]
        assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 2
        assert int(answers[-1].headers["retry-after"]) > 1
        assert set(answers[-1].json()["error"]) == {"what", "value", "hint"}
        with api.as_("bob") as bob, api.as_("olga") as olga:
            assert bob.get("/v1/queues").status_code == 200
            assert {olga.get("/v1/queues").status_code for _ in range(50)} == {200}
        number = api.submit("olga")
        with api.as_(None) as job:
            headers = {"authorization": f"Bearer {api.start(number)}"}
            sent = [job.post(f"/v1/jobs/{number}/report", json={"step": 1}, headers=headers) for _ in range(20)]
            assert {answer.status_code for answer in sent} == {204}


def test_errors_are_logged_at_a_bounded_rate() -> None:
    bounded = BoundedRate()
    written = 0
    for _ in range(1000):
        record = logging.LogRecord("asyncio", logging.ERROR, "", 1, "socket.accept() out of system resource", (), None)
        record.created = 1000.0
        written += bounded.filter(record)
    assert written == MOST_ALIKE
    record = logging.LogRecord("asyncio", logging.ERROR, "", 1, "socket.accept() out of system resource", (), None)
    record.created = 2000.0
    assert bounded.filter(record)
    assert record.fields == {"left_out_before": 1000 - MOST_ALIKE}  # type: ignore[attr-defined]
    other = logging.LogRecord("x", logging.ERROR, "", 1, "something else", (), None)
    assert bounded.filter(other)


@pytest.mark.parametrize("keys", [20_000])
def test_buckets_of_many_are_forgotten(keys: int) -> None:
    buckets = Buckets(Rate(1.0, 1.0))
    for key in range(keys):
        buckets.take(key)
    assert len(buckets._left) <= 10_000
