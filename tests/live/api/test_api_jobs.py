"""Jobs over the API: submit, list, read, change, cancel."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from serving import Serving

from argosy.live.states import State


def refused(answer: httpx.Response, status: int, *texts: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"what", "value", "hint"}
    for text in texts:
        assert text in str(error)


def test_one_job_and_an_array(api: Serving) -> None:
    with api.as_("ann") as ann:
        jobs = [{"run": "true"}, {"run": ["a", "b"], "array": 3, "resources": {"gpus": "1..4"}}]
        made = ann.post("/v1/jobs", json={"jobs": jobs, "workdir": "/tmp"})
        assert made.status_code == 201
        first, *array = made.json()["ids"]
        assert array == [first + 1, first + 2, first + 3]
        job = ann.get(f"/v1/jobs/{array[2]}").json()
    assert (job["owner"], job["state"], job["array_index"], job["workdir"]) == ("ann", "pending", 2, "/tmp")
    assert (job["gpus"], job["gpus_low"], job["gpus_high"]) == (0, 1, 4)
    assert job["spec"]["run"] == ["a", "b"]


def test_a_batch_is_taken_whole_or_not_at_all(api: Serving) -> None:
    with api.as_("ann") as ann:
        before = ann.get("/v1/jobs").json()["counts"]
        answer = ann.post("/v1/jobs", json={"jobs": [{"run": "true"}, {"run": "true", "resources": {"gpus": 999}}]})
        refused(answer, 422, "999 GPUs", "the cluster has 8")
        assert ann.get("/v1/jobs").json()["counts"] == before


@pytest.mark.parametrize(
    ("job", "texts"),
    [
        ({}, ["jobs[0].run"]),
        ({"run": "true", "gpu": 1}, ["jobs[0].gpu", "there is no such key"]),
        ({"run": "true", "resources": {"gpus": "4..1"}}, ["jobs[0].resources.gpus", "is not a range", "such as 1..8"]),
        ({"run": "true", "name": "../../etc/passwd"}, ["name", "is not a valid name"]),
        ({"run": "true", "priority": 1e999}, ["priority"]),
        ({"run": "true", "after": [2**70]}, []),
        ({"run": "true", "workdir": "here"}, ["workdir", "absolute"]),
        ({"run": "true", "env": {"A": "x" * 70_000}}, ["64 KiB"]),
        ({"run": "x" * 60_000, "array": 10_000}, ["several"]),
        ({"run": " "}, ["there is no command"]),
        ({"run": "a\0b"}, ["zero byte"]),
    ],
)
def test_jobs_that_can_not_be(api: Serving, job: dict[str, Any], texts: list[str]) -> None:
    import json

    with api.as_("ann") as ann:
        content = json.dumps({"jobs": [job]})
        answer = ann.post("/v1/jobs", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (404, 422), answer.text
    refused(answer, answer.status_code, *texts)


def test_a_relative_folder_starts_where_it_was_submitted(api: Serving) -> None:
    number = api.submit(workdir="project")
    assert api.do(lambda service: service.job(number)).workdir == "/project"


def test_pages_cover_everything_once(api: Serving) -> None:
    with api.as_("ann") as ann:
        made = ann.post("/v1/jobs", json={"jobs": [{"run": "true", "name": "pages", "array": 25}]}).json()["ids"]
        seen: list[int] = []
        before: int | None = None
        for _ in range(10):
            query = {"name": "pages", "limit": 10} | ({"before": before} if before else {})
            page = ann.get("/v1/jobs", params=query).json()
            seen += [job["id"] for job in page["jobs"]]
            before = page["next"]
            if before is None:
                break
    assert seen == made[::-1]


def test_filters(api: Serving) -> None:
    one, two = api.submit(name="f1"), api.submit(name="f2")
    with api.as_("ann") as ann:
        ann.delete(f"/v1/jobs/{two}")

        def found(**query: str) -> list[int]:
            return [job["id"] for job in ann.get("/v1/jobs", params=query).json()["jobs"]]

        assert found(name="f1") == [one]
        assert found(state="cancelled", ids=f"{one},{two}") == [two]
        assert found(state="pending,cancelled", ids=f"{one},{two}") == [two, one]
        assert found(queue="nowhere") == []
        refused(ann.get("/v1/jobs", params={"state": "lost"}), 422, "lost")
        refused(ann.get("/v1/jobs", params={"ids": "1;2"}), 422)
        refused(ann.get("/v1/jobs", params={"limit": 100_000}), 422, "limit")


def test_cancel_and_priority(api: Serving) -> None:
    number = api.submit()
    with api.as_("ann") as ann:
        assert ann.patch(f"/v1/jobs/{number}", json={"priority": 70}).json()["priority"] == 70
        assert ann.delete(f"/v1/jobs/{number}").json() == {"id": number, "state": "cancelled"}
        assert ann.delete(f"/v1/jobs/{number}").json()["state"] == "cancelled"
        refused(ann.patch(f"/v1/jobs/{number}", json={"priority": 1}), 409, "has ended")
        kinds = [event["kind"] for event in ann.get(f"/v1/jobs/{number}/events").json()["events"]]
    assert kinds == ["submitted", "priority", "cancelled"]


def test_cancelling_many_is_whole_or_nothing(api: Serving) -> None:
    mine, others = api.submit("ann"), api.submit("bob")
    with api.as_("ann") as ann:
        refused(ann.post("/v1/jobs/cancel", json={"ids": [mine, others]}), 404)
        assert ann.get(f"/v1/jobs/{mine}").json()["state"] == "pending"
        answer = ann.post("/v1/jobs/cancel", json={"ids": [mine, mine]}).json()
    assert answer == {"jobs": [{"id": mine, "state": "cancelled"}]}


def test_a_running_job(api: Serving) -> None:
    number = api.submit()
    api.start(number)
    with api.as_("ann") as ann:
        job = ann.get(f"/v1/jobs/{number}").json()
        assert (job["state"], job["gpus"], job["places"]) == ("running", 1, ["n1:0"])
        (run,) = ann.get(f"/v1/jobs/{number}/runs").json()["runs"]
        assert run["parts"] == [{"node": "n1", "devices": [0], "milli": 1000, "servers": 0}]
        assert ann.get(f"/v1/jobs/{number}/explain").json()["category"] == "held"
        nodes = {node["name"]: node for node in ann.get("/v1/nodes").json()["nodes"]}
        assert number in nodes["n1"]["jobs"]
        assert ann.delete(f"/v1/jobs/{number}").json()["state"] == "stopping"
    api.end(number, State.CANCELLED)
    with api.as_("ann") as ann:
        entries = {entry["id"]: entry for entry in ann.get("/v1/history").json()["jobs"]}
        assert entries[number]["state"] == "cancelled"
        assert f"\n{number}," in ann.get("/v1/history.csv").text


def test_after_names_only_what_one_may_see(api: Serving) -> None:
    others, mine = api.submit("bob"), api.submit("ann")
    with api.as_("ann") as ann:
        hidden = ann.post("/v1/jobs", json={"jobs": [{"run": "true", "after": [others]}]})
        missing = ann.post("/v1/jobs", json={"jobs": [{"run": "true", "after": [10**9]}]})
        assert hidden.status_code == missing.status_code == 404
        assert hidden.text.replace(str(others), "N") == missing.text.replace(str(10**9), "N")
        assert ann.post("/v1/jobs", json={"jobs": [{"run": "true", "after": [mine]}]}).status_code == 201
