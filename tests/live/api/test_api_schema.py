"""Random valid and invalid requests from the OpenAPI document: every response matches the document."""

from __future__ import annotations

from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import Serving

from argosy.live.api import create_app
from argosy.live.daemon.service import Service


def document() -> dict[str, Any]:
    """Return the document without its security section, so that every request carries the right token."""
    found = create_app(cast(Service, None)).openapi()
    del found["components"]["securitySchemes"]
    for methods in found["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    return found


SCHEMA = schemathesis.openapi.from_dict(document())
SCHEMA.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


@pytest.fixture(scope="module", autouse=True)
def some_jobs(api: Serving) -> None:
    """Make some jobs; the generator tries small numbers most often, so they are found."""
    for _ in range(3):
        number = api.submit()
        api.start(number)
        api.write_log(number, b"step 1\n")
        api.end(number)  # or whoever follows its log would wait for ever


@SCHEMA.parametrize()
@settings(
    max_examples=7,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_promised(case: schemathesis.Case, api: Serving) -> None:
    _, secret = api.do(lambda service: service.tokens.add("olga", "operator"))  # the one before may be revoked by now
    headers = {"authorization": f"Bearer {secret}"}
    answer = case.call(base_url=api.url, headers=headers, timeout=60)
    assert answer.status_code != 401
    case.validate_response(
        answer,
        checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
    )
