"""Tokens end at their expiry or when they are rotated, and their owners are warned in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Serving, serving

from argosy.live.client import Address, Client, Refused
from argosy.live.daemon.tokens import DAY_S, EXPIRES_S, Tokens
from argosy.live.errors import TokenExpired
from argosy.live.home import Home
from argosy.live.store import Store


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "home") as running:
        yield running


def shift(api: Serving, seconds: float) -> None:
    """Advance the wall clock by this much time."""

    def later(service: Any) -> None:
        before = service.store.clock.wall
        service.store.clock.wall = lambda: before() + seconds

    api.do(later)


def add(api: Serving, **body: Any) -> dict[str, Any]:
    with api.as_("olga") as olga:
        answer = olga.post("/v1/tokens", json={"owner": "carl", **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def ask(api: Serving, secret: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx.get(f"{api.url}/v1/jobs", headers=headers, trust_env=False, timeout=60)


def test_a_token_ends_at_its_expiry_and_the_answer_says_so(api: Serving) -> None:
    made = add(api, expires_s=3600)
    assert ask(api, made["secret"]).status_code == 200
    shift(api, 3601)
    refused = ask(api, made["secret"])
    assert refused.status_code == 401 and f"token {made['id']} of carl expired" in refused.json()["error"]["what"]
    assert "argosy token rotate" in refused.json()["error"]["hint"]
    with Client(Address(api.url, made["secret"], "as given")) as client, pytest.raises(Refused, match="expired on"):
        client.get("/v1/jobs")
    with api.as_("olga") as olga:
        (line,) = olga.get("/v1/audit", params={"action": "authenticate"}).json()["entries"][:1]
    assert "expired" in line["detail"]


def test_the_default_is_three_months_and_never_must_be_said(api: Serving) -> None:
    usual, endless = add(api), add(api, expires_s=None)
    assert usual["expires_at"] - usual["created_at"] == pytest.approx(EXPIRES_S) == pytest.approx(90 * DAY_S)
    assert endless["expires_at"] is None
    shift(api, 20 * 365 * DAY_S)
    assert (ask(api, usual["secret"]).status_code, ask(api, endless["secret"]).status_code) == (401, 200)


@pytest.mark.parametrize("seconds", [0, -1, 1e30, "soon"])
def test_unusable_times_are_refused(api: Serving, seconds: object) -> None:
    with api.as_("olga") as olga:
        assert olga.post("/v1/tokens", json={"owner": "carl", "expires_s": seconds}).status_code == 422


def test_both_secrets_work_while_a_rotated_token_is_kept(api: Serving) -> None:
    old = add(api, expires_s=10 * DAY_S)
    with api.as_("olga") as olga:
        new = olga.post(f"/v1/tokens/{old['id']}/rotate", json={"keep_old_s": 3600}).json()
    assert new["owner"] == "carl" and new["expires_at"] - new["created_at"] == pytest.approx(10 * DAY_S)
    assert [ask(api, t["secret"]).status_code for t in (old, new)] == [200, 200]
    shift(api, 3601)
    assert [ask(api, t["secret"]).status_code for t in (old, new)] == [401, 200]
    with api.as_("olga") as olga:
        third = olga.post(f"/v1/tokens/{new['id']}/rotate", json={}).json()
        assert olga.post("/v1/tokens/999/rotate", json={}).status_code == 404
    assert [ask(api, t["secret"]).status_code for t in (new, third)] == [401, 200]
    with api.as_("ann") as ann:
        assert ann.post(f"/v1/tokens/{third['id']}/rotate", json={}).status_code == 403


def test_rotation_never_lengthens_the_life_of_the_old_secret(api: Serving) -> None:
    old = add(api, expires_s=60)
    with api.as_("olga") as olga:
        olga.post(f"/v1/tokens/{old['id']}/rotate", json={"keep_old_s": 7 * DAY_S})
    shift(api, 61)
    assert ask(api, old["secret"]).status_code == 401


def test_whose_token_ends_soon_is_told_once(api: Serving) -> None:
    made = add(api)
    told: list[str] = []
    with Client(Address(api.url, made["secret"], "as given"), warn=told.append) as client:
        client.get("/v1/jobs")
        assert told == []
        shift(api, EXPIRES_S - 3 * DAY_S)
        client.get("/v1/jobs")
        client.get("/v1/jobs")
    assert len(told) == 1 and "your token expires on" in told[0]


def test_the_day_of_the_last_use_is_kept_and_written_late(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    tokens = Tokens(store, home.key())
    token, secret = tokens.add("ann")
    assert tokens.list()[0].used_at is None
    tokens.find(secret)
    (used,) = (one.used_at for one in tokens.list())
    assert used is not None and used % DAY_S == 0
    assert store.query("SELECT used_at FROM tokens") == [(None,)]
    tokens.flush()
    assert store.query("SELECT used_at FROM tokens") == [(used,)]
    assert Tokens(store, home.key()).list()[0].used_at == used
    commits = store.query("SELECT count(*) FROM audit")
    tokens.find(secret)
    tokens.flush()  # the same day: nothing to write
    assert store.query("SELECT count(*) FROM audit") == commits
    store.clock.wall = lambda: token.created_at + EXPIRES_S
    with pytest.raises(TokenExpired):
        tokens.find(secret)
    store.close()


def test_the_file_of_the_local_operator_follows_a_rotation(api: Serving) -> None:
    with api.as_("olga") as olga:
        number = next(t["id"] for t in olga.get("/v1/tokens").json()["tokens"] if t["owner"] == "olga")
        new = olga.post(f"/v1/tokens/{number}/rotate", json={}).json()
    assert api.home.token.read_text().strip() == new["secret"]
    assert ask(api, api.home.token.read_text().strip()).status_code == 200
