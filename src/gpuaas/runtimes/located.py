"""YAML that remembers where everything stands, so that an error can point at the line.

Every scalar stays the text that was written: `version: 3.10` is "3.10", never 3.1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import yaml

from gpuaas.kit.errors import Problem

MAX_BYTES = 256 * 1024
_MAX_DEPTH = 12
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    line: int
    where: str  # mounts[0].target
    what: str


@dataclass
class Findings:
    """Everything that is wrong with one file, not only the first thing."""

    file: str
    found: list[Finding] = field(default_factory=list)

    def raise_if_any(self) -> None:
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda each: each.line)
        lines = [f"{self.file}:{each.line}: {f'{each.where}: ' if each.where else ''}{each.what}" for each in ordered]
        raise Problem(
            "invalid_recipe",
            422,
            lines[0],
            "\n".join(lines[1:]),
            extra={"errors": [{"line": each.line, "field": each.where, "message": each.what} for each in ordered]},
        )


def parse(text: str, findings: Findings) -> "Place | None":
    """The one document in `text`, or None with the reason in `findings`."""
    if len(text.encode()) > MAX_BYTES:
        findings.found.append(Finding(1, "", f"is larger than {MAX_BYTES // 1024} KiB; a recipe is a short text"))
        return None
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                findings.found.append(Finding(_line(event), "", "anchors and aliases (& and *) are not allowed"))
                return None
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                findings.found.append(Finding(_line(event), "", f"is nested deeper than {_MAX_DEPTH} levels"))
                return None
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        findings.found.append(Finding(mark.line + 1 if mark else 1, "", f"is not YAML: {said}"))
        return None
    if node is None:
        findings.found.append(Finding(1, "", "is empty"))
        return None
    return Place(findings, node, "")


@dataclass(frozen=True)
class Place:
    """One value in the file. Reading it as something that it is not records a finding and answers a neutral value."""

    findings: Findings
    node: yaml.Node
    where: str

    @property
    def line(self) -> int:
        return _line(self.node)

    @property
    def is_text(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode)

    def wrong(self, what: str) -> None:
        self.findings.found.append(Finding(self.line, self.where, what))

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            self.wrong("must be a text")
            return ""
        value: str = self.node.value
        if any((ord(letter) < 32 and letter != "\n") or ord(letter) == 127 for letter in value):
            self.wrong("holds a control character")
        if len(value) > 8192:
            self.wrong("is longer than 8192 characters")
        return value

    def word(self, pattern: Callable[[str], object], rule: str) -> str:
        value = self.text()
        if value and not pattern(value):
            self.wrong(f"{value!r} is not {rule}")
        elif not value and isinstance(self.node, yaml.ScalarNode):
            self.wrong(f"is empty; it must be {rule}")
        return value

    def one_of(self, *allowed: str) -> str:
        value = self.text()
        if value not in allowed:
            self.wrong(f"{value!r} is not one of {', '.join(allowed)}")
        return value

    def boolean(self) -> bool:
        value = self.text().lower()
        if value not in _TRUE + _FALSE:
            self.wrong(f"{value!r} is neither true nor false")
        return value in _TRUE

    def integer(self, least: int, most: int) -> int:
        value = self.text()
        if not value.isascii() or not value.isdigit() or len(value) > 12 or not least <= int(value) <= most:
            self.wrong(f"{value!r} is not a whole number from {least} to {most}")
            return least
        return int(value)

    def items(self, read: Callable[["Place"], T], most: int = 256) -> tuple[T, ...]:
        """A list; a single value counts as a list of one."""
        if isinstance(self.node, yaml.ScalarNode):
            return (read(self),)
        if not isinstance(self.node, yaml.SequenceNode):
            self.wrong("must be a list")
            return ()
        if len(self.node.value) > most:
            self.wrong(f"has more than {most} entries")
            return ()
        return tuple(read(Place(self.findings, each, f"{self.where}[{i}]")) for i, each in enumerate(self.node.value))

    def pairs(self) -> Iterator[tuple[str, "Place"]]:
        """The entries of a mapping; a key that comes twice is a finding."""
        if not isinstance(self.node, yaml.MappingNode):
            self.wrong("must be a mapping of names to values")
            return
        seen: set[str] = set()
        for key, value in self.node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.findings.found.append(Finding(_line(key), self.where, "a name must be a text"))
                continue
            place = Place(self.findings, value, f"{self.where}.{key.value}".lstrip("."))
            if key.value in seen:
                self.findings.found.append(Finding(_line(key), place.where, "is there twice"))
                continue
            seen.add(key.value)
            yield key.value, place

    def fields(self, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, "Place"]:
        """A mapping with known names; others are findings with the nearest known name."""
        import difflib

        found: dict[str, Place] = {}
        known = (*required, *optional)
        for name, place in self.pairs():
            if name in known:
                found[name] = place
                continue
            near = difflib.get_close_matches(name, known, n=1)
            said = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            place.wrong(f"is no field of a recipe; {said}")
        for name in required:
            if name not in found and isinstance(self.node, yaml.MappingNode):
                self.wrong(f"{name!r} is missing")
        return found


def _line(thing: yaml.Node | yaml.Event) -> int:
    mark = thing.start_mark
    return mark.line + 1 if mark else 1
