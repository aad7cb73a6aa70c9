"""Every case that is promised is shown by a test, and no test shows one that nobody promised."""

import ast
from collections import defaultdict
from pathlib import Path

from acceptance import CASES, LATER

TESTS = Path(__file__).parent.parent


def shown() -> dict[str, set[str]]:
    """Case -> tests, as they are written: also those that are skipped on this machine."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text()
        if "mark.acceptance(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for case in (case for decorator in node.decorator_list for case in _cases(decorator)):
                    found[case].add(f"{file.relative_to(TESTS)}::{node.name}")
    return found


def _cases(decorator: ast.expr) -> list[str]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.acceptance":
        return [str(ast.literal_eval(argument)) for argument in decorator.args]
    return []


def test_every_case_has_a_test_and_every_marked_test_a_case() -> None:
    assert set(shown()) == set(CASES)
    assert set(LATER) <= set(CASES)
