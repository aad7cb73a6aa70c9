"""One thing that was looked at in the control plane: whether it will do, and what to do about it."""

from dataclasses import dataclass

OK, WARNING, FAILURE = "ok", "warning", "failure"


@dataclass(frozen=True)
class Finding:
    name: str
    level: str
    value: str  # what is there
    problem: str = ""
    remedy: str = ""


def good(name: str, value: str) -> Finding:
    return Finding(name, OK, value)


def warn(name: str, value: str, problem: str, remedy: str) -> Finding:
    return Finding(name, WARNING, value, problem, remedy)


def fail(name: str, value: str, problem: str, remedy: str) -> Finding:
    return Finding(name, FAILURE, value, problem, remedy)
