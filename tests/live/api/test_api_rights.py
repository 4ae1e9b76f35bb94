"""Rights: no access without a token, users access their own jobs, a job only its own reports."""

from __future__ import annotations

import httpx
import pytest
from serving import Serving, serving

from argosy.live.states import State

OF_A_JOB = (
    ("GET", ""),
    ("DELETE", ""),
    ("PATCH", ""),
    ("GET", "/events"),
    ("GET", "/runs"),
    ("GET", "/explain"),
    ("GET", "/log"),
)
FOR_OPERATORS = (
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/1"),
    ("POST", "/v1/backup"),
    ("POST", "/v1/nodes/n1/drain"),
    ("POST", "/v1/nodes/n1/undrain"),
)
BODIES = {"PATCH": {"priority": 1}, "/v1/tokens": {"owner": "eve"}}


def call(client: httpx.Client, method: str, path: str) -> httpx.Response:
    body = BODIES.get(method, BODIES.get(path) if method == "POST" else None)
    return client.request(method, path, json=body) if body else client.request(method, path)


def every_route(api: Serving) -> list[tuple[str, str]]:
    with api.as_("olga") as olga:
        paths = olga.get("/v1/openapi.json").json()["paths"]
    found = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    return [(method, path.replace("{number}", "1").replace("{name}", "n1")) for method, path in found]


def test_without_a_token_there_is_only_health(api: Serving) -> None:
    routes = every_route(api)
    assert len(routes) > 20
    with api.as_(None) as nobody:
        for method, path in [*routes, ("GET", "/v1/openapi.json"), ("GET", "/docs"), ("GET", "/nowhere")]:
            answer = call(nobody, method, path)
            assert answer.status_code == (200 if path in ("/healthz", "/readyz") else 401), (method, path)
        assert nobody.get("/healthz").json() == {"status": "ok"}
        assert nobody.get("/readyz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer x",
        "Basic YTpi",
        "Bearer {token}x",
        "bearer\t{token}",
        "Bearer {token} {token}",
        "Bearer " + "x" * 5000,
        "Bearer argosy-job-1-1-" + "0" * 64,
    ],
)
def test_wrong_tokens(api: Serving, value: str) -> None:
    header = value.format(token=api.tokens["ann"])
    answer = httpx.get(f"{api.url}/v1/jobs", headers={"authorization": header}, trust_env=False)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_two_tokens_are_none(api: Serving) -> None:
    headers = [("authorization", f"Bearer {api.tokens[who]}") for who in ("ann", "bob")]
    assert httpx.get(f"{api.url}/v1/jobs", headers=headers, trust_env=False).status_code == 401


def test_a_revoked_token_opens_nothing(api: Serving) -> None:
    with api.as_("olga") as olga:
        made = olga.post("/v1/tokens", json={"owner": "carl"}).json()
        headers = {"authorization": f"Bearer {made['secret']}"}
        assert httpx.get(f"{api.url}/v1/jobs", headers=headers, trust_env=False).status_code == 200
        assert olga.delete(f"/v1/tokens/{made['id']}").status_code == 204
        assert httpx.get(f"{api.url}/v1/jobs", headers=headers, trust_env=False).status_code == 401
        assert olga.delete(f"/v1/tokens/{made['id']}").status_code == 404
        listed = olga.get("/v1/tokens").text
    assert made["secret"] not in listed


def test_the_jobs_of_others_are_not_there(api: Serving) -> None:
    number = api.submit("bob", name="secret-plan", env={"KEY": "swordfish"})
    api.start(number)
    api.write_log(number, b"swordfish\n")
    with api.as_("ann") as ann:
        for method, path in OF_A_JOB:
            answer = call(ann, method, f"/v1/jobs/{number}{path}")
            missing = call(ann, method, f"/v1/jobs/{number + 10**6}{path}")
            assert answer.status_code == missing.status_code == 404, (method, path)
            assert answer.text.replace(str(number), "N") == missing.text.replace(str(number + 10**6), "N")
        everything = [
            ann.get(path).text
            for path in (
                "/v1/jobs",
                "/v1/jobs?owner=bob",
                f"/v1/jobs?ids={number}",
                "/v1/nodes",
                "/v1/history",
                "/v1/history?owner=bob",
                "/v1/history.csv",
                "/metrics",
                "/v1/health",
                "/v1/queues",
            )
        ]
        assert not any("secret-plan" in text or "swordfish" in text or "bob" in text for text in everything)
        assert number not in [job for node in ann.get("/v1/nodes").json()["nodes"] for job in node["jobs"]]
    with api.as_("olga") as olga:
        assert olga.get(f"/v1/jobs/{number}").json()["spec"]["env"] == {"KEY": "swordfish"}
        assert [job["id"] for job in olga.get("/v1/jobs?owner=bob&name=secret-plan").json()["jobs"]] == [number]
        assert olga.delete(f"/v1/jobs/{number}").json()["state"] == "stopping"
    api.end(number, State.CANCELLED)


def test_what_only_operators_do(api: Serving) -> None:
    for method, path in FOR_OPERATORS:
        with api.as_("ann") as ann:
            assert call(ann, method, path).status_code == 403, path
    with api.as_("olga") as olga:
        drained = {node["name"]: node for node in olga.post("/v1/nodes/n2/drain").json()["nodes"]}
        assert (drained["n2"]["state"], drained["n2"]["drained_by"]) == ("draining", "olga")
        used = {node["name"]: node for node in olga.post("/v1/nodes/n2/undrain").json()["nodes"]}
        assert used["n2"]["state"] == "up"
        assert olga.post("/v1/nodes/n9/drain").status_code == 404


def test_a_job_can_only_report_for_itself(api: Serving) -> None:
    number, other = api.submit("ann"), api.submit("ann")
    token = api.start(number)
    api.start(other)
    with httpx.Client(base_url=api.url, headers={"authorization": f"Bearer {token}"}, trust_env=False) as job:
        report = {"step": 7, "progress": 0.5, "metrics": {"loss": 0.25, "note": None}}
        assert job.post(f"/v1/jobs/{number}/report", json=report).status_code == 204
        assert job.post(f"/v1/jobs/{other}/report", json=report).status_code == 404
        for method, path in every_route(api):
            if path not in ("/healthz", "/readyz", "/v1/jobs/1/report"):
                answer = call(job, method, path.replace("/jobs/1", f"/jobs/{number}"))
                assert answer.status_code in (403, 422), (method, path, answer.text)
    with api.as_("ann") as ann:
        found = ann.get(f"/v1/jobs/{number}").json()
        assert (found["progress"], found["report"]["metrics"]["loss"]) == (0.5, 0.25)
        assert ann.post(f"/v1/jobs/{number}/report", json=report).status_code == 403


def test_the_token_of_a_run_ends_with_it(api: Serving) -> None:
    number = api.submit()
    token = api.start(number)
    api.end(number)
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx.post(f"{api.url}/v1/jobs/{number}/report", json={"step": 1}, headers=headers, trust_env=False)
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("127.0.0.1:1", 200),
        ("127.8.8.8", 200),
        ("[::1]:7557", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("10.0.0.1", 421),
        ("", 421),
        ("127.0.0.1@evil.example", 421),
        ("127.0.0.1:80:80", 421),
        ("0.0.0.0", 421),
    ],
)
def test_host(api: Serving, host: str, status: int) -> None:
    with api.as_("ann") as ann:
        answer = ann.get("/v1/jobs", headers={"host": host})
    assert answer.status_code == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", ""])
def test_web_pages_may_not_call(api: Serving, origin: str) -> None:
    with api.as_("ann") as ann:
        assert ann.get("/v1/jobs", headers={"origin": origin}).status_code == 403
        assert ann.request("OPTIONS", "/v1/jobs", headers={"origin": origin}).status_code == 403


def test_names_and_pages_that_are_allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("home")
    with serving(folder, hosts=["Cluster.example"], origins=["https://board.example"]) as api, api.as_("ann") as ann:
        assert ann.get("/v1/jobs", headers={"host": "cluster.EXAMPLE:7557"}).status_code == 200
        assert ann.get("/v1/jobs", headers={"origin": "https://board.example"}).status_code == 200
        assert ann.get("/v1/jobs", headers={"origin": "https://other.example"}).status_code == 403
