"""Limits through the API: who may read and set them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Serving, serving


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "home") as running:
        yield running


def test_operators_set_limits_and_users_see_their_own(api: Serving) -> None:
    with api.as_("olga") as olga, api.as_("ann") as ann:
        made = olga.patch("/v1/limits/ann", json={"gpus": 2, "queued": 1})
        assert made.status_code == 200 and (made.json()["gpus"], made.json()["set_by"]) == (2.0, "olga")
        assert olga.patch("/v1/limits/*", json={"priority": 70}).status_code == 200
        assert [row["owner"] for row in olga.get("/v1/limits").json()["limits"]] == ["*", "ann"]
        (mine,) = ann.get("/v1/limits").json()["limits"]
        assert (mine["owner"], mine["gpus"], mine["priority"], mine["queued_now"]) == ("ann", 2.0, 70.0, 0)
        for refused in (
            ann.get("/v1/limits", params={"owner": "bob"}),
            ann.patch("/v1/limits/ann", json={"gpus": 99}),
            ann.delete("/v1/limits/ann"),
        ):
            assert refused.status_code == 403
        api.submit("ann")
        too_many = ann.post("/v1/jobs", json={"jobs": [{"run": "true"}]})
        assert too_many.status_code == 403
        assert too_many.json()["error"]["what"] == "ann has 1 jobs waiting of 1 allowed, so 1 more are too many"
        (line,) = olga.get("/v1/audit", params={"who": "ann", "action": "submit", "limit": 1}).json()["entries"]
        assert line["result"] == "refused" and "of 1 allowed" in line["detail"]
        assert ann.patch("/v1/jobs/1", json={"priority": 71}).status_code == 403
        assert olga.patch("/v1/jobs/1", json={"priority": 71}).status_code == 200
        assert olga.delete("/v1/limits/ann").status_code == 204 and olga.delete("/v1/limits/ann").status_code == 404


@pytest.mark.parametrize(
    "body", [{}, {"gpus": -1}, {"gpus": "many"}, {"priority": 101}, {"queues": ["nowhere"]}, {"cpus": 1}, {"array": 0}]
)
def test_unusable_limits_are_refused(api: Serving, body: dict[str, object]) -> None:
    with api.as_("olga") as olga:
        assert olga.patch("/v1/limits/ann", json=body).status_code == 422
        assert olga.patch("/v1/limits/a%20b", json={"gpus": 1}).status_code == 422
