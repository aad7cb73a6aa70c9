"""Which runtime a name means. Pure: names in, one of the given names or a refusal out; never a substitute.

python:3.11+ml    python@3.11+ml    python-3.11-ml    one version, in its newest revision
python:3.11+ml-r2                                     that revision; -r1 is the first, which is called 3.11+ml
python@3.11.x     python:3.x                          the newest that fits, of those without a tag
python@latest                                         the newest without a tag
pytorch                                               the newest default version, or the only one
python+ml@3.11.x                                      is not a spelling: a tag belongs to a version
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from gpuaas.kit.errors import Problem

_LONGEST = 128
_REVISION = re.compile(r"-r([1-9][0-9]{0,5})$")
_SPELLING = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:@-]*")


class Name(Struct, frozen=True, order=True):
    """One version of a bundle, as a catalog lists it."""

    bundle: str
    version: str
    default: bool = False

    @property
    def id(self) -> str:
        return f"{self.bundle}:{self.version}"

    @property
    def dashed(self) -> str:
        return _dashed(f"{self.bundle}-{self.version}")

    @property
    def line(self) -> str:
        """The version without its revision: the same recipe, made of newer files."""
        return _REVISION.sub("", self.version)

    @property
    def revision(self) -> int:
        found = _REVISION.search(self.version)
        return int(found[1]) if found else 1

    def revised(self, revision: int) -> str:
        """The version that another revision has."""
        return self.line if revision == 1 else f"{self.line}-r{revision}"

    @property
    def tags(self) -> str:
        """`ml` of 3.11+ml, `cu124` of 2.6.0-cu124."""
        return re.sub(r"^[0-9a-z.]*", "", self.line)

    @property
    def order(self) -> tuple[tuple[int, int, str], ...]:
        """3.9 before 3.11; what is no number comes after numbers."""
        plain = self.line.removesuffix(self.tags) if self.tags else self.line
        return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in plain.split("."))


def resolve(spec: str, names: Iterable[Name], listed_by: str = "gpuaas runtime list") -> Name:
    """`listed_by`: the command that shows these names, for whoever has written another."""
    known = list(names)
    if not _SPELLING.fullmatch(spec) or len(spec) > _LONGEST:
        raise unknown(spec, known, listed_by)
    matches = _exactly(spec, known) or _patterns(spec, known) or _bare(spec, known)
    if not matches:
        raise unknown(spec, known, listed_by)
    if len(matches) > 1:
        listed = ", ".join(sorted(name.id for name in matches))
        raise Problem(
            "ambiguous_runtime",
            422,
            f"{spec!r} can mean several runtimes: {listed}.",
            "Name one of them.",
            extra={"matches": sorted(name.id for name in matches)},
        )
    return matches[0]


def family(bundle: str, names: Iterable[Name]) -> list[Name]:
    """All versions of one bundle, the oldest first."""
    return sorted(
        (name for name in names if name.bundle == bundle), key=lambda name: (name.order, name.line, name.revision)
    )


def unknown(spec: str, known: Sequence[Name], listed_by: str) -> Problem:
    near = nearest(spec, known)
    said = f"Nearest: {', '.join(near)}." if near else f"See `{listed_by}`."
    shown = spec if len(spec) <= _LONGEST else spec[:_LONGEST] + "..."
    return Problem("unknown_runtime", 404, f"There is no runtime {shown!r}.", said, extra={"nearest": near})


def nearest(spec: str, known: Sequence[Name]) -> list[str]:
    spellings = {_dashed(name.id): name.id for name in known} | {name.bundle: name.bundle for name in known}
    near = difflib.get_close_matches(_dashed(spec[:_LONGEST]), spellings, n=4, cutoff=0.5)
    return [spellings[each] for each in near]


def _exactly(spec: str, known: list[Name]) -> list[Name]:
    """By a full spelling. `:` and `@` part the name from the version; dashes alone part anything."""
    bundle, separator, version = _parted(spec)
    if separator:
        of_bundle = [name for name in known if name.bundle == bundle]
        return _versions(version, of_bundle, str) or _versions(version, of_bundle, _dashed)
    return [
        name for name in known if _dashed(f"{name.bundle}-{name.line}-r{name.revision}") == _dashed(spec)
    ] or _latest([name for name in known if _dashed(f"{name.bundle}-{name.line}") == _dashed(spec)])


def _versions(version: str, names: list[Name], spelled: Callable[[str], str]) -> list[Name]:
    """The revision that was asked for, or of a version the newest."""
    wanted = spelled(version)
    return [name for name in names if spelled(f"{name.line}-r{name.revision}") == wanted] or _latest(
        [name for name in names if spelled(name.line) == wanted]
    )


def _latest(names: list[Name]) -> list[Name]:
    """Of each version its newest revision."""
    found: dict[tuple[str, str], Name] = {}
    for name in sorted(names, key=lambda each: each.revision):
        found[name.bundle, name.line] = name
    return list(found.values())


def _patterns(spec: str, known: list[Name]) -> list[Name]:
    bundle, separator, version = _parted(spec)
    plain = [name for name in known if name.bundle == bundle and not name.tags]
    if separator and version == "latest":
        return _newest(plain)
    if separator and version.endswith(".x"):
        wanted = version.removesuffix(".x")
        return _newest([name for name in plain if f"{name.line}.".startswith(f"{wanted}.")])
    return []


def _bare(spec: str, known: list[Name]) -> list[Name]:
    """Who publishes a newer default need not deprecate the one before first: it is what the name means from then on."""
    of_bundle = [name for name in known if name.bundle == spec]
    return _newest([name for name in of_bundle if name.default]) or _latest(of_bundle)


def _newest(names: list[Name]) -> list[Name]:
    """Several only where nothing says which is newer: 2.0-cpu and 2.0-cu126."""
    newest = max((name.order for name in names), default=None)
    return _latest([name for name in names if name.order == newest])


def _parted(spec: str) -> tuple[str, str, str]:
    for separator in ":@":
        if separator in spec:
            return spec.partition(separator)
    return spec, "", ""


def _dashed(spelling: str) -> str:
    return re.sub(r"[:@+]", "-", spelling)
