"""The table of events: every `emit` of the product is in it, and everything in it is emitted somewhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuaas
from gpuaas.model.event import EVENTS, is_event
from gpuaas.model.webhook import is_filter, pause, wants

SOURCE = Path(gpuaas.__file__).parent
# Types that are put together: a state of a lifecycle, or the kind of a fact, which nodes tell.
FAMILIES = {"allocation.*", "operation.*", "reservation.*", "fact.*"}


def types() -> Iterator[tuple[str, str]]:
    """(type, where) of every call of `emit`, followed into the functions that pass a type on."""
    trees = {file: ast.parse(file.read_text()) for file in (SOURCE / "control").rglob("*.py")}
    for file, tree in trees.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for call in (node for node in ast.walk(function) if _calls(node, "emit")):
                where = f"{file.name}:{call.lineno}"
                first = call.args[0]
                if isinstance(first, ast.Name):
                    place = [argument.arg for argument in function.args.args].index(first.id)
                    within = [tree] if function.name.startswith("_") else trees.values()
                    callers = [node for each in within for node in ast.walk(each) if _calls(node, function.name)]
                    assert callers, where
                    for caller in callers:
                        yield from ((type, where) for type in _said(caller.args[place]))
                else:
                    yield from ((type, where) for type in _said(first))


def _calls(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", None) == name or getattr(node.func, "id", None) == name


def _said(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from (*_said(node.body), *_said(node.orelse))
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
    elif isinstance(node, ast.Constant) and node.value is not None:
        yield node.value
    else:
        assert isinstance(node, ast.Constant), ast.dump(node)


def test_every_emitted_type_is_in_the_table() -> None:
    found = list(types())
    assert len(found) >= 15
    unknown = [f"{where}: {type}" for type, where in found if type not in EVENTS and type not in FAMILIES]
    assert not unknown, f"say in model/event.py what these are: {unknown}"


def test_everything_in_the_table_is_emitted() -> None:
    emitted = {type for type, _ in types()}
    for type in EVENTS:
        assert type in emitted or type.partition(".")[0] + ".*" in emitted & FAMILIES, type


def test_the_table_is_complete() -> None:
    for type, found in EVENTS.items():
        assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", type)
        assert found.summary
        assert found.kind
        assert is_event(type)
    assert is_event("fact.something.new")
    assert not is_event("allocation.melted")


def test_filters_fit_types() -> None:
    for wanted, type, fits in (
        ("*", "a.b", True),
        ("allocation.*", "allocation.active", True),
        ("allocation.*", "allocations.active", False),
        ("fact.session.*", "fact.session.opened", True),
        ("fact.*", "fact.session.opened", True),
        ("operation.failed", "operation.failed", True),
        ("operation.failed", "operation.failed.x", False),
    ):
        assert wants((wanted,), type) is fits
    assert [is_filter(text) for text in ("*", "fact.*", "fact.session.*", "machine.*", "all", "operation")] == [
        *(True, True, True, False, False, False)
    ]


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_pauses_grow_to_an_hour_and_end(chance: float) -> None:
    found = [pause(attempts, chance) for attempts in range(1, 17)]
    assert found[-1] is None
    seconds = [one.total_seconds() for one in found if one is not None]
    assert seconds == sorted(seconds)
    assert seconds[0] == pytest.approx(5 * (0.8 + 0.4 * chance))
    assert seconds[-1] == pytest.approx(3600 * (0.8 + 0.4 * chance))
