"""The audit log through the API: every change and every refusal has a line, and no line has a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Serving, serving


def entries(api: Serving, **query: Any) -> list[dict[str, Any]]:
    with api.as_("olga") as olga:
        found: list[dict[str, Any]] = olga.get("/v1/audit", params=query).json()["entries"]
    return found


def test_each_change_has_a_line_that_says_who_what_and_from_where(api: Serving) -> None:
    number = api.submit("ann", name="train", array=1)
    with api.as_("ann") as ann, api.as_("olga") as olga:
        ann.patch(f"/v1/jobs/{number}", json={"priority": 60})
        olga.delete(f"/v1/jobs/{number}")
        olga.post("/v1/nodes/n2/drain", params={"now": True})
        olga.post("/v1/nodes/n2/undrain")
        made = olga.post("/v1/tokens", json={"owner": "carl"}).json()
        new = olga.post(f"/v1/tokens/{made['id']}/rotate", json={"keep_old_s": 60}).json()
        olga.delete(f"/v1/tokens/{new['id']}")
        olga.post("/v1/backup")
    of_job = entries(api, job=number)
    assert [(e["who"], e["action"], e["object"], e["result"]) for e in of_job] == [
        ("olga", "cancel", f"job {number}", "done"),
        ("ann", "priority", f"job {number}", "done"),
        ("ann", "submit", f"job {number}", "done"),
    ]
    assert of_job[1]["detail"] == "50 → 60" and of_job[2]["detail"] == "train"
    assert {e["address"] for e in of_job} == {"127.0.0.1"} and all(e["token"] for e in of_job)
    by_olga = [(e["action"], e["object"]) for e in entries(api, who="olga", limit=7)]
    assert by_olga == [
        ("backup", ""),
        ("token-revoke", f"token {new['id']}"),
        ("token-rotate", f"token {made['id']}"),
        ("token-add", f"token {made['id']}"),
        ("undrain", "node n2"),
        ("drain", "node n2"),
        ("cancel", f"job {number}"),
    ]


def test_refusals_have_lines_too(api: Serving) -> None:
    number = api.submit("bob")
    with api.as_("ann") as ann:
        assert ann.post("/v1/tokens", json={"owner": "ann", "role": "operator"}).status_code == 403
        assert ann.get("/v1/audit").status_code == 403
        assert ann.delete(f"/v1/jobs/{number}").status_code == 404
        assert ann.get(f"/v1/jobs/{number}").status_code == 404  # a look that finds nothing is no attempt
    found = [(e["action"], e["object"], e["detail"]) for e in entries(api, who="ann") if e["result"] == "refused"]
    assert found[:3] == [
        ("cancel", f"DELETE /v1/jobs/{number}", f"404: there is no job {number}"),
        ("audit", "GET /v1/audit", "403: only operators may do this"),
        ("token-add", "POST /v1/tokens", "403: only operators may do this"),
    ]


def test_wrong_tokens_are_seen_and_never_written_down(api: Serving) -> None:
    secret = "argosy-thisIsASecretOfSomebodyElse0123456789"
    headers = {"authorization": f"Bearer {secret}"}
    assert httpx.get(f"{api.url}/v1/jobs", headers=headers, params={"token": secret}).status_code == 401
    with api.as_("olga") as olga:
        assert olga.delete(f"/v1/tokens/{secret}").status_code == 422  # pasted where the number belongs
    first = entries(api, action="authenticate")[0]
    assert (first["who"], first["address"], first["object"]) == ("", "127.0.0.1", "GET /v1/jobs")
    assert all(secret not in str(entry) for entry in entries(api, limit=1000))
    assert secret.encode() not in b"".join(p.read_bytes() for p in api.home.folder.glob("argosy.db*"))


def test_an_array_is_one_line(api: Serving) -> None:
    with api.as_("ann") as ann:
        body = {"jobs": [{"run": "true", "array": 500}, {"run": "true", "name": "last"}]}
        ids = ann.post("/v1/jobs", json=body).json()["ids"]
    (line,) = entries(api, job=ids[250])
    assert (line["first_job"], line["last_job"], line["detail"]) == (ids[0], ids[-1], "job, last")


def test_the_log_comes_in_pages(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as api:
        for _ in range(5):
            api.submit("ann")
        with api.as_("olga") as olga:
            page = olga.get("/v1/audit", params={"limit": 3, "who": "ann"}).json()
            rest = olga.get("/v1/audit", params={"limit": 3, "who": "ann", "before": page["next"]}).json()
        assert len(page["entries"]) == 3 and len(rest["entries"]) == 2 and rest["next"] is None


@pytest.mark.parametrize("query", ["job=0", "since=nan", "since=-1", "limit=0", "limit=99999", "before=0"])
def test_unusable_questions_are_refused(api: Serving, query: str) -> None:
    with api.as_("olga") as olga:
        assert olga.get(f"/v1/audit?{query}").status_code == 422
