from __future__ import annotations

import json

from command_line import Argosy

from argosy.policies.base import POLICIES, create


def test_json_lists_every_policy(argosy: Argosy) -> None:
    answer = argosy("policies", "-o", "json")
    found = {policy["name"]: policy for policy in json.loads(answer.out)}
    assert list(found) == sorted(POLICIES)
    assert found["las"]["parameters"] == {"quantum_s": 600.0}
    assert found["las"]["sees"] == ["service"]
    assert found["fifo"]["decides"] == "order"
    assert found["srsf"]["reference"]


def test_what_is_listed_can_be_created(argosy: Argosy) -> None:
    listed = json.loads(argosy("policies", "-o", "json").out)
    assert {policy["name"] for policy in listed} == set(POLICIES)
    for policy in listed:
        pairs = [f"{name}={value}" for name, value in policy["parameters"].items()]
        assert create(":".join([policy["name"], *pairs])).name == policy["name"]


def test_table_names_every_policy(argosy: Argosy) -> None:
    answer = argosy("policies")
    assert answer.code == 0
    for name in POLICIES:
        assert any(line.startswith(name) for line in answer.out.splitlines())
    assert "quantum_s=600.0" in answer.out
