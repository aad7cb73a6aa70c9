"""Reads a `runtime.yml` into a Recipe. Every rule of the format is here; an error says file, line and what to do."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import sizes
from gpuaas.runtimes.located import MAX_BYTES, Findings, Place, parse
from gpuaas.runtimes.recipe import (
    ARCHITECTURES,
    GPU_FAMILIES,
    KINDS,
    SUPPORT,
    TYPES,
    Cache,
    Check,
    Mount,
    Recipe,
    Requirements,
    Source,
)

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*")
VERSION = re.compile(r"[0-9a-z][0-9a-z.]*([-+][0-9a-z][0-9a-z.]*)*")
_SPEC = re.compile(r"[a-z0-9][a-z0-9.+:@-]{0,99}")
_PATH = re.compile(r"[A-Za-z0-9._+@][A-Za-z0-9._+@/-]{0,254}")
_GLOB = re.compile(r"[A-Za-z0-9._+@*?\[\]][A-Za-z0-9._+@*?\[\]/-]{0,254}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_VALUE = re.compile(r"[A-Za-z0-9 _./:,+@=%~-]*")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,99}(=[A-Za-z0-9.+~:-]{1,99})?")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(\[[A-Za-z0-9,._-]+\])? ?([=<>!~]=?[A-Za-z0-9.*+!_-]+,? ?)*")
_NPM = re.compile(r"(@[a-z0-9-][a-z0-9._-]*/)?[a-z0-9-][a-z0-9._-]*@[0-9]+(\.[0-9]+){0,2}")
_URL = re.compile(r"(https?|file)://[^\s'\"\\]{1,1000}")
SHA256 = re.compile(r"[0-9a-f]{64}")
_SUITE = re.compile(r"[a-z][a-z-]{1,30}")
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){0,3}")

_TOP = ("name", "version")
_OPTIONAL = (
    "product", "description", "type", "support", "default", "buildable", "from", "python", "sources", "links", "remove",
    "run", "mounts", "environment", "caches", "requirements", "verify",
)  # fmt: skip
# A mount may go where programs and libraries are looked for, never over the system's own files.
TARGETS = ("/usr/local/", "/opt/")
RESERVED = ("GPUAAS_", "LD_")


def read(path: Path) -> Recipe:
    try:
        data = path.read_bytes()[: MAX_BYTES + 1]
    except OSError as error:
        said = f"{path}: {error.strerror or error}"
        raise Problem("invalid_recipe", 422, said, "Give the path of a recipe, a YAML file.") from error
    return loads(data.decode(errors="replace"), str(path))


def loads(text: str, file: str) -> Recipe:
    findings = Findings(file)
    place = parse(text, findings)
    recipe = _recipe(place, file) if place is not None else None
    findings.raise_if_any()
    assert recipe is not None
    return recipe


def _recipe(place: Place, file: str) -> Recipe:
    found = place.fields(_TOP, _OPTIONAL)
    said: dict[str, Any] = {"file": file, **_identity(found)}
    for field, read_field in _SIMPLE.items():
        if field in found:
            said[field] = read_field(found[field])
    if "from" in found:
        said["parents"] = found["from"].items(lambda each: each.word(_SPEC.fullmatch, "a runtime such as python:3.11"))
    if "sources" in found:
        said["sources"] = found["sources"].items(_source)
    if "mounts" in found:
        said["mounts"] = found["mounts"].items(_mount)
    if "environment" in found:
        said["environment"], said["path_prepend"] = _environment(found["environment"])
    if "links" in found:
        said["links"] = tuple((_link_name(each, name), _path(each)) for name, each in found["links"].pairs())
    if "requirements" in found:
        said["requirements"] = _requirements(found["requirements"])
    return Recipe(**said)


def _identity(found: dict[str, Place]) -> dict[str, str]:
    """`name: python`, `version: 3.11+ml`; or all in one name, with `version: 3.11` beside `name: python-3.11-ml`."""
    version = (
        found["version"].word(VERSION.fullmatch, "a version such as 3.11, 3.11+ml or 2.6.0-cu124")
        if "version" in found
        else "0"
    )
    if "name" not in found:
        return {"name": "unnamed", "version": version}
    name = found["name"].text()
    base, dash, rest = name.partition(f"-{version}")
    if dash and NAME.fullmatch(base) and (not rest or re.fullmatch(r"(-[0-9a-z][0-9a-z.]*)+", rest)):
        return {"name": base, "version": version + rest.replace("-", "+")}
    if not NAME.fullmatch(name) or len(name) > 63:
        found["name"].wrong(f"{name!r} is not a name: lower-case letters, digits and single dashes, such as my-tools")
    return {"name": name, "version": version}


def _source(place: Place) -> Source:
    found = place.fields((), (*KINDS, "into", "suite", "index", "sha256", "strip", "build_only", "when"))
    kinds = [kind for kind in KINDS if kind in found]
    if len(kinds) != 1:
        place.wrong(f"must have exactly one of {', '.join(KINDS)}")
        return Source("pypi", ())
    kind = kinds[0]
    items = found[kind].items(_ITEMS[kind])
    said: dict[str, Any] = {}
    if "into" in found:
        said["into"] = _path(found["into"])
    for field, only, pattern, rule in _ONLY_FOR:
        if field not in found:
            continue
        if kind not in only:
            found[field].wrong(f"means nothing for {kind}; it belongs to {' and '.join(only)}")
        said[field] = found[field].word(pattern.fullmatch, rule)
    if "strip" in found:
        said["strip"] = found["strip"].integer(0, 9)
    if "build_only" in found:
        said["build_only"] = found["build_only"].boolean()
        if said["build_only"] and kind != "deb":
            found["build_only"].wrong("is possible for deb only: build tools come from Debian")
    if "when" in found:
        said["architectures"] = _when(found["when"])
    if kind == "deb" and "suite" not in found:
        place.wrong("'suite' is missing: the Debian release, such as bookworm")
    if kind == "archive" and ("sha256" not in found or "into" not in found or len(items) != 1):
        place.wrong("an archive is one URL with 'sha256' and 'into'; see `sha256sum FILE`")
    return Source(kind, items, **said)


_ITEMS: dict[str, Callable[[Place], str]] = {
    "pypi": lambda each: each.word(_REQUIREMENT.fullmatch, "a requirement such as numpy or torch==2.13.0"),
    "deb": lambda each: each.word(_PACKAGE.fullmatch, "a Debian package such as openjdk-17-jdk-headless"),
    "npm": lambda each: each.word(_NPM.fullmatch, "a package with its version, such as npm@10"),
    "archive": lambda each: each.word(_URL.fullmatch, "an address that starts with https://, http:// or file://"),
}
_ONLY_FOR = (
    ("suite", ("deb",), _SUITE, "a Debian release such as bookworm"),
    ("index", ("pypi", "deb"), NAME, "the name of an index of this site"),
    ("sha256", ("archive",), SHA256, "a sha256: 64 digits of 0-9 and a-f"),
)


def _when(place: Place) -> tuple[str, ...]:
    found = place.fields(("architecture",))
    return found["architecture"].items(lambda each: each.one_of(*ARCHITECTURES)) if found else ()


def _mount(place: Place) -> Mount:
    found = place.fields(("source", "target"), ("readonly", "selective"))
    source = _path(found["source"]) if "source" in found else ""
    target = found["target"].text() if "target" in found else ""
    if "target" in found and not allowed_target(target):
        found["target"].wrong(f"{target!r} is not a place for a runtime; mount below {' or '.join(TARGETS)}")
    readonly = found["readonly"].boolean() if "readonly" in found else True
    if not readonly:
        found["readonly"].wrong(
            "a runtime is never writable; leave this out, and use `caches` for what must be written"
        )
    selective = found["selective"].items(_entry) if "selective" in found else ()
    return Mount(source, target, readonly, selective)


def allowed_target(target: str) -> bool:
    parts = target.split("/")
    plain = target.startswith("/") and _PATH.fullmatch(target[1:]) is not None and not {"", ".", ".."} & set(parts[1:])
    return plain and f"{target}/".startswith(TARGETS) and target != "/opt" and not target.startswith("/opt/gpuaas")


def _entry(place: Place) -> str:
    return place.word(
        lambda text: "/" not in text and text not in (".", "..") and _PATH.fullmatch(text),
        "the name of an entry of the source directory, without slashes",
    )


def _environment(place: Place) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    values: list[tuple[str, str]] = []
    prepend: tuple[str, ...] = ()
    for name, each in place.pairs():
        if name == "PATH_PREPEND":
            lists = each.items(_value)
            prepend = tuple(part for text in lists for part in text.split(":") if part)
            for part in prepend:
                if not part.startswith(("/", "${root}")):
                    each.wrong(f"{part!r} is not an absolute path; start it with / or ${{root}}")
        elif not _VARIABLE.fullmatch(name):
            each.wrong("is not a name for a variable: capitals, digits and _")
        elif name == "PATH" or name.startswith(RESERVED):
            each.wrong(
                "is reserved; use PATH_PREPEND for programs" if name == "PATH" else "is reserved by the platform"
            )
        else:
            values.append((name, _value(each)))
    return tuple(values), prepend


def _value(place: Place) -> str:
    """Ends up in shell scripts: `${root}` is the only thing in it that is not plain."""
    value = place.text()
    if not _VALUE.fullmatch(value.replace("${root}", "")):
        place.wrong(f"{value!r} may hold letters, digits, spaces, _./:,+@=%~- and ${{root}} only")
    return value


def _cache(place: Place) -> Cache:
    found = place.fields(("volume", "target"), ("variable",))
    volume = found["volume"].word(NAME.fullmatch, "a name such as pip-cache") if "volume" in found else ""
    target = found["target"].text() if "target" in found else ""
    if "target" in found and (not re.fullmatch(r"/var/cache/[a-z0-9][a-z0-9/-]{0,99}", target) or "//" in target):
        found["target"].wrong(f"{target!r} is not a place for a cache; use one below /var/cache/")
    variable = found["variable"].word(_VARIABLE.fullmatch, "a name for a variable") if "variable" in found else ""
    if variable == "PATH" or variable.startswith(RESERVED):
        found["variable"].wrong("is reserved by the platform")
    return Cache(volume, target, variable)


def _check(place: Place) -> Check:
    if place.is_text:
        return Check(place.text())
    found = place.fields(("run",), ("expect",))
    expect = found["expect"].text() if "expect" in found else ""
    try:
        re.compile(expect)
    except re.error as error:
        found["expect"].wrong(f"is not a regular expression: {error}")
    return Check(found["run"].text() if "run" in found else "", expect)


def _requirements(place: Place) -> Requirements:
    found = place.fields(
        (),
        ("architecture", "gpu_family", "min_driver", "cuda", "rocm", "min_memory", "recommended_memory"),
    )
    said: dict[str, Any] = {}
    if "architecture" in found:
        said["architectures"] = found["architecture"].items(lambda each: each.one_of(*ARCHITECTURES))
    if "gpu_family" in found:
        said["gpu_family"] = found["gpu_family"].one_of(*GPU_FAMILIES)
    for field in ("min_driver", "cuda", "rocm"):
        if field in found:
            said[field] = found[field].word(_NUMBERS.fullmatch, "a version such as 12.4")
    for field in ("min_memory", "recommended_memory"):
        if field in found:
            said[f"{field}_bytes"] = _size(found[field])
    least, better = said.get("min_memory_bytes", 0), said.get("recommended_memory_bytes", 0)
    if better and better < least:
        found["recommended_memory"].wrong("is less than min_memory")
    return Requirements(**said)


def _size(place: Place) -> int:
    count = sizes.parse_bytes(place.text())
    if count is None:
        place.wrong(f"{place.text()!r} is not a size such as 512MB, 2GB or 2GiB")
    return count or 0


def _path(place: Place) -> str:
    value = place.text()
    if not below_root(value):
        place.wrong(f"{value!r} is not a path below the runtime's own directory, without .. and a leading /")
    return value


def _link_name(place: Place, name: str) -> str:
    if not below_root(name):
        place.wrong("is not a path below the runtime's own directory")
    return name


def below_root(path: str) -> bool:
    return path == "." or (_PATH.fullmatch(path) is not None and not {"", ".", ".."} & set(path.split("/")))


def _glob(place: Place) -> str:
    return place.word(
        lambda text: _GLOB.fullmatch(text) and not {"", ".", ".."} & set(text.split("/")),
        "a pattern of paths below the runtime's own directory, such as usr/share/doc",
    )


_SIMPLE: dict[str, Callable[[Place], Any]] = {
    "product": lambda each: each.word(lambda text: len(text) <= 80 and "\n" not in text, "a short name"),
    "description": lambda each: each.text(),
    "type": lambda each: each.one_of(*TYPES),
    "support": lambda each: each.one_of(*SUPPORT),
    "default": lambda each: each.boolean(),
    "buildable": lambda each: each.boolean(),
    "python": _path,
    "remove": lambda each: each.items(_glob),
    "run": lambda each: each.items(lambda command: command.text(), most=64),
    "caches": lambda each: each.items(_cache),
    "verify": lambda each: each.items(_check, most=64),
}
