"""One thing that was looked at on a host: what it is, whether it will do, and how to get it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    name: str
    ok: bool
    value: str  # what is there
    problem: str = ""
    remedy: str = ""
    required: bool = True  # without it the node takes no allocation


def good(name: str, value: str) -> Finding:
    return Finding(name, True, value)


def bad(name: str, value: str, problem: str, remedy: str, *, required: bool = True) -> Finding:
    return Finding(name, False, value, problem, remedy, required)


def ready(findings: Iterable[Finding]) -> tuple[bool, str]:
    """Whether the node can take allocations, and if not, why."""
    blocking = [finding for finding in findings if finding.required and not finding.ok]
    return not blocking, "; ".join(f"{finding.name}: {finding.problem}" for finding in blocking)[:1000]


def render(findings: Iterable[Finding]) -> str:
    """For a terminal: one line each, and below what is wrong what to do about it."""
    findings = list(findings)
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        mark = "ok  " if finding.ok else "FAIL" if finding.required else "warn"
        lines.append(f"{mark}  {finding.name:<{width}}  {finding.value}".rstrip())
        lines += [
            f"      {' ' * width}  {text}" for text in (finding.problem, finding.remedy) if text and not finding.ok
        ]
    is_ready, _ = ready(findings)
    lines.append("This machine is ready." if is_ready else "This machine is not ready: see FAIL above.")
    return "\n".join(lines) + "\n"
