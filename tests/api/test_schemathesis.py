"""Schemathesis over the OpenAPI document: valid and invalid data on every route, for an administrator and an editor.

Nothing answers with a status of 500 or more, what comes back is what the document says, and bad data is refused.
"""

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

    for result in schemathesis.openapi.from_dict(openapi()).get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        nothing_to_get_wrong = not [*operation.path_parameters, *operation.query, *operation.headers, *operation.body]
        if operation.path in STREAMS or (nothing_to_get_wrong and mode is GenerationMode.NEGATIVE):
            continue
        named = {part.name for part in operation.path_parameters}
        attempt(operation, {}, anchor=False)
        if named or mode is GenerationMode.POSITIVE:
            fixed = {name: value for name, value in real(world).items() if name in named}
            attempt(operation, fixed, anchor=mode is GenerationMode.POSITIVE)
    print(f"{who}, {mode.value}: {sum(answers.values())} cases: {dict(sorted(answers.items()))}")
    assert not failures, "\n\n".join(f"{where}\n{why[:900]}" for where, why in list(failures.items())[:12])
    assert sum(answers.values()) > 200
