"""Hostile and malformed requests: each is refused with a plain message, and has no effect."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from serving import Serving

from argosy.live.api.models import Submission
from argosy.live.api.request_guard import MAX_BODY
from argosy.live.daemon.service import Service

JSON = {"content-type": "application/json"}


def plain_refusal(answer: httpx.Response, *statuses: int) -> None:
    assert answer.status_code in (statuses or (400, 404, 405, 413, 422)), answer.text
    assert set(answer.json()["error"]) == {"what", "value", "hint"}
    assert "Traceback" not in answer.text
    assert len(answer.text) < 2000


def alive(api: Serving) -> None:
    with api.as_("ann") as ann:
        assert ann.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"\xff\xfe",
        b"\x00",
        b'{"jobs": 7}',
        b'{"jobs": [7]}',
        b'{"jobs": []}',
        b'{"jobs": [{"run": NaN}]}',
        b'{"jobs": [{"run": "true", "priority": NaN}]}',
        b'{"jobs": [{"run": "true", "priority": -Infinity}]}',
        b'{"jobs": [{"run": "true", "retries": 1e400}]}',
        b'{"jobs": [{"run": "true", "retries": ' + b"9" * 5000 + b"}]}",
        b'{"jobs": [{"run": "true", "array": 99999999999999999999}]}',
        b'{"jobs": [{"run": "true", "expected_duration": "1e999"}]}',
        b'{"jobs": [{"run": "\\ud800"}]}',
        b'{"jobs": [{"run": "true", "env": {"\\udfff": "x"}}]}',
        b'{"jobs": [{"run": "true"}], "workdir": "\\ud800"}',
        b'{"jobs": [{"run": "true"}], "workdir": "../.."}',
        b'{"jobs": [{"run": "true"}], "workdir": "/a\\u0000b"}',
        b'{"jobs": [{"run": "true", "name": "a\\u001b[2Jb"}]}',
        b'{"jobs": [{"run": "true", "name": "\\u202egnp.exe"}]}',
        b'{"jobs": [{"run": "true", "progress": {"pattern": "(("}}]}',
        b'{"jobs": [{"run": "true", "deadline": "9999999999999999999"}]}',
        b'{"jobs": [{"run": "true", "deadline": "0001-01-01T00:00:00"}]}',
        b'{"jobs": [{"run": "true", "progress": {"pattern": "(a{99999999999999999999})"}}]}',
        b'{"jobs": [{"run": "true", "resources": {"gpus": "' + b"1" * 30_000 + b'"}}]}',
        b"[" * 100_000,
        b'{"jobs":' * 50_000,
        b'{"jobs": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"jobs": [' + b'{"run": "true"},' * 1000 + b'{"run": "true"}]}',
    ],
    ids=lambda body: repr(body[:60]),
)
def test_bodies_that_are_no_submission(api: Serving, body: bytes) -> None:
    before = api.do(lambda service: service.counts())
    with api.as_("ann") as ann:
        plain_refusal(ann.post("/v1/jobs", content=body, headers=JSON))
    assert api.do(lambda service: service.counts()) == before


MANY = 150_000
COSTLY: dict[str, dict[str, object]] = {
    "keys": {"run": "true"} | {f"k{number}": 1 for number in range(MANY)},
    "deep keys": {"run": "true", "resources": {f"k{number}": 1 for number in range(MANY)}},
    "words": {"run": [None] * MANY},
    "variables": {"run": "true", "env": {f"k{number}": 1 for number in range(MANY)}},
    "numbers": {"run": "true", "after": ["x"] * MANY},
    "pattern": {"run": "true", "progress": {"pattern": "(?i)(a)" + "[\0-\uffff]" * 95}},  # a second each to compile
}


@pytest.mark.parametrize("job", COSTLY.values(), ids=list(COSTLY))
def test_what_is_wrong_is_found_without_holding_up_everybody(job: dict[str, object]) -> None:
    """Requests are checked where everybody waits: what a stranger sends must not take long to look at."""
    text = json.dumps(COSTLY["keys"])
    begun = time.process_time()
    json.loads(text)
    reading_s = time.process_time() - begun
    begun, problems = time.process_time(), 0
    try:
        Submission.model_validate({"jobs": [job]})
    except ValidationError as wrong:
        problems = len(wrong.errors())
    assert time.process_time() - begun < reading_s  # what everybody waits for anyway, on this machine
    assert problems < 10


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_form_is_no_submission(api: Serving, kind: str) -> None:
    with api.as_("ann") as ann:
        content = b'{"jobs": [{"run": "true"}]}'
        plain_refusal(ann.post("/v1/jobs", content=content, headers={"content-type": kind}))


@pytest.mark.parametrize("metric", ["NaN", "1e400", '"x"', "[1]", "{}"])
def test_reports_that_are_none(api: Serving, metric: str) -> None:
    number = api.submit()
    headers = {"authorization": f"Bearer {api.start(number)}", **JSON}
    for body in (f'{{"metrics": {{"loss": {metric}}}}}', f'{{"step": {metric}}}', f'{{"progress": {metric}}}'):
        url = f"{api.url}/v1/jobs/{number}/report"
        plain_refusal(httpx.post(url, content=body, headers=headers, trust_env=False), 400, 422)
    many = json.dumps({"metrics": {str(i): 1.0 for i in range(51)}})
    plain_refusal(httpx.post(url, content=many, headers=headers, trust_env=False), 422)
    api.end(number)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/0",
        "/v1/jobs/-1",
        "/v1/jobs/99999999999999999999999",
        "/v1/jobs/" + "9" * 5000,
        "/v1/jobs/1e3",
        "/v1/jobs/%00",
        "/v1/jobs/..%2f..%2fetc%2fpasswd",
        "/v1/jobs/../../etc/passwd",
        "/v1/jobs/1%20OR%201=1",
        "/v1/jobs/;id",
        "/v1/jobs/$(touch x)",
        "/v1/nodes/..%2f..%2fx/drain",
        "/v1//jobs",
        "/v1/jobs/",
        "/%ff",
        "/v1/jobs?limit=NaN",
        "/v1/jobs?before=1e9",
        "/v1/jobs?limit=-1",
        "/v1/jobs?ids=" + "1," * 5000 + "1",
        "/v1/jobs?state=" + "x" * 5000,
        "/v1/jobs?name=" + "x" * 5000,
        "/v1/jobs?ids=%00",
        "/v1/jobs?limit=" + "9" * 99,
        "/v2/jobs",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/static/../token",
        "/token",
        "/argosy.db",
    ],
)
def test_paths_that_lead_nowhere(api: Serving, path: str) -> None:
    with api.as_("olga") as olga:
        plain_refusal(olga.get(path), 404, 405, 422)


@pytest.mark.parametrize("query", ["name=';DROP TABLE jobs;--", "queue=%00", "owner=%F0%9F%92%A5", "name=%ED%A0%80"])
def test_filters_are_only_values(api: Serving, query: str) -> None:
    api.submit("ann")
    with api.as_("olga") as olga:
        answer = olga.get(f"/v1/jobs?{query}")
        assert answer.status_code == 200
        assert answer.json()["jobs"] == []
        assert olga.get("/v1/jobs").json()["jobs"]


@pytest.fixture(params=["$(touch {})", "; touch {}", "`touch {}`", "| touch {} #", "\n touch {}\n"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    made = tmp_path / "made"
    return request.param.format(made), made


def test_taking_a_job_in_runs_nothing(api: Serving, shell: tuple[str, Path]) -> None:
    text, made = shell
    number = api.submit(run=text, env={"A": text}, workdir="/" + text.strip(), model=text)
    with api.as_("ann") as ann:
        assert ann.get(f"/v1/jobs/{number}").json()["spec"]["run"] == text
        for path in ("explain", "events", "runs", "log"):
            ann.get(f"/v1/jobs/{number}/{path}")
        ann.get("/v1/jobs", params={"name": text, "queue": text})
        ann.post("/v1/jobs", json={"jobs": [{"run": "true", "name": text}]})
        assert ann.post("/v1/jobs", json={"jobs": [{"run": "true", "queue": text}]}).status_code == 422
        ann.delete(f"/v1/jobs/{number}")
    assert not made.exists()


def test_a_body_that_says_it_is_too_large(api: Serving) -> None:
    with api.as_("ann") as ann:
        plain_refusal(ann.post("/v1/jobs", content=b" " * (MAX_BODY + 1), headers=JSON), 413)
    alive(api)


def test_a_body_that_does_not_say_how_large_it_is(api: Serving) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(MAX_BODY // 2**16 + 2):
            yield b" " * 2**16

    with api.as_("ann") as ann:
        plain_refusal(ann.post("/v1/jobs", content=endless(), headers=JSON), 413)
    alive(api)


def test_a_body_without_end_is_not_read_to_its_end(api: Serving) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    head = f"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {api.tokens['ann']}\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as raw:
        raw.sendall(f"{head}content-length: {10**15}\r\n\r\n".encode())
        sent = 0
        try:
            while sent < 64 * MAX_BODY:
                raw.sendall(b" " * 2**16)
                sent += 2**16
        except OSError:
            pass  # it has hung up
    assert sent < 64 * MAX_BODY
    alive(api)


def test_nobody_sends_a_body_without_a_token(api: Serving) -> None:
    with api.as_(None) as nobody:
        assert nobody.post("/v1/jobs", content=b"{" * 1000, headers=JSON).status_code == 401


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET /v1/jobs HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET http://evil.example/v1/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /" + b"x" * 200_000,
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_what_is_hardly_http(api: Serving, raw: bytes) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(2**16)
        except OSError:
            answer = b""
    assert not answer or answer.startswith((b"HTTP/1.1 4",)), answer
    alive(api)


def test_a_fault_of_ours_is_told_without_its_insides(api: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Service) -> None:
        raise RuntimeError("swordfish")

    monkeypatch.setattr(Service, "queues", broken)
    with api.as_("ann") as ann:
        answer = ann.get("/v1/queues")
    assert answer.status_code == 500
    assert "swordfish" not in answer.text
    assert set(answer.json()["error"]) == {"what", "value", "hint"}
    alive(api)


def say(service: Service, number: int, report: dict[str, object]) -> None:
    """Put a report into memory, as if a backend had read it from a job."""
    service.store.jobs[number] = replace(service.store.jobs[number], report=report)


SAYINGS = (float("nan"), float("inf"), "\ud800", "\x1b[2J", 10**400, {"deep": [[[[[[[[1]]]]]]]]}, ["x"] * 5000, None)


@pytest.mark.parametrize("value", SAYINGS, ids=lambda value: ascii(value)[:20])
def test_whatever_a_job_says_can_be_shown(api: Serving, value: object) -> None:
    number = api.submit()
    api.start(number)
    told = {"progress": value, "step": value, "metrics": {"loss": value}, "\udfff": 1}
    api.do(lambda service: say(service, number, told))
    with api.as_("ann") as ann:
        one, all_ = ann.get(f"/v1/jobs/{number}"), ann.get("/v1/jobs")
    api.do(lambda service: say(service, number, {}))
    api.end(number)
    assert (one.status_code, all_.status_code) == (200, 200)
    json.loads(one.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
