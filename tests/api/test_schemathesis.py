"""Schemathesis over the OpenAPI document: valid and invalid data on every route, for an administrator and an editor.

Nothing answers with a status of 500 or more, what comes back is what the document says, and bad data is refused.
"""

import copy
from collections import Counter
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import text

from api.routes import openapi, routes
from api.server import Replica
from api.world import Person, World

EXAMPLES = 8  # per route, persona, kind of data; with and without real objects in the path
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
STREAMS = {route.path for route in routes() if route.streams}  # they do not end; test_events follows them
BOUNDED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def without_security() -> dict[str, Any]:
    """Invalid tokens are for the matrix; here they would hide what comes after them."""
    document = copy.deepcopy(openapi())
    document.pop("security", None)
    document["components"].pop("securitySchemes")
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    return document


def people(world: World) -> dict[str, Person]:
    promote = text("UPDATE users SET platform_role = 'platform_admin' WHERE id = :id")
    admin = world.people["tenant_admin"]
    world.store.transact(lambda tx: tx.conn.execute(promote, {"id": admin.id}))
    return {"admin": admin, "editor": world.people["editor"]}


def real(world: World) -> dict[str, str]:
    """For the path: names that exist."""
    return {
        "allocation": world.own.allocations["restarted"],
        "operation": world.own.operations["active"],
        "project": world.own.project.id,
        "user": world.guest.id,
        "node": world.agent.node_id,
        "slot": "gpu-0",
    }


def anchored(case: Case[Any], world: World) -> None:
    """References in a valid body name something that exists, so that the request gets past its look-ups."""
    if isinstance(case.body, dict):
        known = {"project": world.own.project.id, "offer": "h100-1", "org": "acme", "confirm": "restarted"}
        case.body.update({name: value for name, value in known.items() if name in case.body})


@pytest.mark.slow
@pytest.mark.timeout(600)  # it grows with every route
@pytest.mark.parametrize("who", ["admin", "editor"])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_the_document_is_the_truth(world: World, replica: Replica, who: str, mode: GenerationMode) -> None:
    person = people(world)[who]
    answers: Counter[int] = Counter()
    failures: dict[str, str] = {}
    session = requests.Session()

    def attempt(operation: Any, fixed: dict[str, str], anchor: bool) -> None:
        strategy = operation.as_strategy(generation_mode=mode, path_parameters=fixed or None)

        @BOUNDED
        @given(case=strategy)
        def run(case: Case[Any]) -> None:
            if anchor:
                anchored(case, world)
            try:
                answer = case.call_and_validate(
                    base_url=replica.url, session=session, headers=person.headers, checks=CHECKS
                )
                answers[answer.status_code] += 1
            except (Exception, BaseExceptionGroup) as error:
                failures.setdefault(f"{case.method} {case.operation.path}: {type(error).__name__}", str(error))

        run()

    for result in schemathesis.openapi.from_dict(without_security()).get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        if operation.path in STREAMS:
            continue
        positive = mode is GenerationMode.POSITIVE
        named = {part.name for part in operation.path_parameters}
        beside = [*operation.query, *operation.headers, *operation.body]
        if positive or named or beside:  # else there is nothing to get wrong
            attempt(operation, {}, anchor=False)
        if positive or (named and beside):
            fixed = {name: value for name, value in real(world).items() if name in named}
            attempt(operation, fixed, anchor=positive)
    print(f"{who}, {mode.value}: {sum(answers.values())} cases: {dict(sorted(answers.items()))}")
    assert not failures, "\n\n".join(f"{where}\n{why[:900]}" for where, why in list(failures.items())[:12])
    assert sum(answers.values()) > 200
