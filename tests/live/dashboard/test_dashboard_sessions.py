"""Sessions and pages without a browser: cookies, keys, one-time links, and headers that forbid all else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from serving import Serving, serving

from argosy.dashboard import PAGES
from argosy.live.api import sessions as rules

ADDRESSES = ("/", "/jobs", "/jobs/7", "/timeline", "/signin", "/health", "/pages/js/main.js", "/pages/css/parts.css")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("home"), pages=PAGES) as running:
        yield running


@contextmanager
def signed_in(api: Serving, who: str = "ann") -> Iterator[tuple[httpx.Client, str]]:
    """Yield a client with the cookie of a session, and the key that belongs to it."""
    with httpx.Client(base_url=api.url, timeout=60, trust_env=False) as client:
        answer = client.post("/v1/session", json={"token": api.tokens[who]})
        assert answer.status_code == 201, answer.text
        yield client, answer.json()["key"]


def status(client: httpx.Client, key: str = "", **headers: str) -> int:
    given = {"x-argosy-key": key} if key else {}
    return client.get("/v1/session", headers=given | headers).status_code


def test_the_cookie(api: Serving) -> None:
    with api.as_(None) as client:
        answer = client.post("/v1/session", json={"token": api.tokens["ann"]})
        told = answer.headers["set-cookie"].lower()
        assert "httponly" in told and "samesite=strict" in told and "path=/" in told and "max-age=" in told
        assert "secure" not in told  # over plain HTTP it could not be set at all
        assert answer.headers["cache-control"] == "no-store"
        cookie = next(iter(client.cookies.values()))
        assert cookie != answer.json()["key"] and api.tokens["ann"] not in answer.text + told
        kept = api.home.database.read_bytes() + api.home.database.with_name("argosy.db-wal").read_bytes()
        assert cookie.encode() not in kept and answer.json()["key"].encode() not in kept


def test_a_cookie_is_worth_nothing_without_its_key(api: Serving) -> None:
    with signed_in(api) as (client, key), signed_in(api) as (_, other_key):
        assert status(client, key) == 200
        assert status(client) == 401
        assert status(client, "wrong") == 401
        assert status(client, other_key) == 401
        with api.as_(None) as stranger:
            assert status(stranger, key) == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_pages_cannot_use_a_session(api: Serving, site: str) -> None:
    with signed_in(api) as (client, key):
        assert status(client, key, **{"sec-fetch-site": "same-origin"}) == 200
        assert status(client, key, **{"sec-fetch-site": site}) == 401
        answer = client.get("/v1/session", headers={"x-argosy-key": key, "origin": "http://elsewhere.example"})
        assert answer.status_code == 403
        number = api.submit("ann")
        form = {"content-type": "text/plain", "origin": api.url}
        assert client.post("/v1/jobs/cancel", content=f'{{"ids":[{number}]}}', headers=form).status_code == 401


def test_signing_out_ends_the_session_everywhere(api: Serving) -> None:
    with signed_in(api) as (client, key):
        cookies = dict(client.cookies)
        assert client.delete("/v1/session", headers={"x-argosy-key": key}).status_code == 204
        assert not client.cookies
        client.cookies.update(cookies)
        assert status(client, key) == 401
    with signed_in(api) as (one, one_key), signed_in(api) as (two, two_key):
        one.delete("/v1/session?everywhere=true", headers={"x-argosy-key": one_key})
        assert status(two, two_key) == 401


def test_a_session_ends_with_its_token(api: Serving) -> None:
    token, secret = api.do(lambda service: service.tokens.add("carl", "user"))
    with api.as_(None) as client:
        key = client.post("/v1/session", json={"token": secret}).json()["key"]
        assert status(client, key) == 200
        api.do(lambda service: service.tokens.revoke(token.id))
        assert status(client, key) == 401


def test_a_session_ends_by_itself(api: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    with signed_in(api) as (client, key):
        monkeypatch.setattr(rules, "IDLE_S", 0.0)
        assert status(client, key) == 401
        monkeypatch.setattr(rules, "IDLE_S", 1e9)
        assert status(client, key) == 200
        monkeypatch.setattr(rules, "MOST_S", 0.0)
        assert status(client, key) == 401


def test_a_link_signs_in_once_and_not_for_long(api: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    with api.as_("ann") as ann, api.as_(None) as client:
        code = ann.post("/v1/session/links").json()["code"]
        assert client.post("/v1/session", json={"code": code}).json()["owner"] == "ann"
        assert client.post("/v1/session", json={"code": code}).status_code == 401
        monkeypatch.setattr(rules, "LINK_S", 0.0)
        old = ann.post("/v1/session/links").json()["code"]
        assert client.post("/v1/session", json={"code": old}).status_code == 401
        assert client.post("/v1/session/links").status_code == 401


def test_a_demonstration_gives_people_no_less_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "LINK_S", 1e-4)
    monkeypatch.setattr(rules, "IDLE_S", 1e-4)
    with serving(tmp_path, pages=PAGES, speed=1e6) as api, api.as_("ann") as ann, api.as_(None) as client:
        code = ann.post("/v1/session/links").json()["code"]
        key = client.post("/v1/session", json={"code": code}).json()["key"]
        assert status(client, key) == 200


def test_the_token_of_a_job_cannot_sign_in(api: Serving) -> None:
    secret = api.start(api.submit("ann"))
    with api.as_(None) as client:
        assert client.post("/v1/session", json={"token": secret}).status_code == 401
        answer = client.post("/v1/session/links", headers={"authorization": f"Bearer {secret}"})
        assert answer.status_code == 403


def test_pages_forbid_all_else_and_hold_no_secrets(api: Serving) -> None:
    with signed_in(api, "olga") as (client, key):
        api.submit("ann", name="only-for-ann")
        for address in ADDRESSES:
            answer = client.get(address, headers={"x-argosy-key": key})
            assert answer.status_code == 200, address
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            with api.as_(None) as stranger:
                assert stranger.get(address).content == answer.content  # the same to everybody
            assert "only-for-ann" not in answer.text and key not in answer.text
            if "html" in answer.headers["content-type"]:
                assert (
                    "<script>" not in answer.text and "style=" not in answer.text and " on" + "click" not in answer.text
                )


def test_the_files_load_nothing_from_elsewhere() -> None:
    files = [path for path in PAGES.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    assert len(files) > 20
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text and "//cdn" not in text, path
        for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert sink not in text, f"{path}: {sink}"


def test_the_first_view_is_small() -> None:
    files = [path for path in PAGES.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    assert sum(path.stat().st_size for path in files) < 300_000


@pytest.mark.parametrize(
    "path", ["/pages/../live/api/app.py", "/pages/%2e%2e/__init__.py", "/pages/", "/jobs/1/../../etc"]
)
def test_only_pages_are_served(api: Serving, path: str) -> None:
    with api.as_(None) as client:
        assert client.get(path).status_code in (401, 404)
        assert client.post("/jobs").status_code == 401


def test_no_secret_is_logged(api: Serving, tmp_path: Path) -> None:
    with signed_in(api) as (client, key):
        cookie = next(iter(client.cookies.values()))
        audit = api.do(lambda service: service.audit.entries(limit=1000))
    told = "".join(str(entry) for entry in audit)
    assert "sign-in" in told
    assert not any(secret in told for secret in (key, cookie, *api.tokens.values()))


def test_wrong_tokens_are_slowed_down(tmp_path: Path) -> None:
    answers: list[int] = []
    with serving(tmp_path, pages=PAGES) as api, api.as_(None) as client:
        while 429 not in answers and len(answers) < 2000:  # on a busy machine the limit refills meanwhile
            answers.append(client.post("/v1/session", json={"token": f"argosy-{len(answers)}"}).status_code)
    assert len(answers) > 100 and set(answers[:-1]) == {401} and answers[-1] == 429


def test_without_pages_there_is_no_way_in(tmp_path: Path) -> None:
    with serving(tmp_path) as api, api.as_("ann") as ann:
        assert ann.post("/v1/session", json={"token": api.tokens["ann"]}).status_code == 404
        assert ann.post("/v1/session/links").status_code == 404
        assert ann.get("/jobs").status_code == 404
