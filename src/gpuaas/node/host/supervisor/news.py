"""News as files: one each, complete or absent. A supervisor puts them there, an agent takes them away."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host.interface import News

_SUFFIX = ".news"


class _Record(Struct, frozen=True):
    kind: str
    id: str
    at: float
    data: dict[str, str]


def put(directory: Path, id: str, session: str, kind: str, at: float, data: dict[str, str]) -> None:
    name = f"{id}.{session}.{kind}"
    aside = directory / f".{name}"
    aside.write_bytes(msgspec.json.encode(_Record(kind, id, at, {"session": session, **data})))
    os.rename(aside, directory / f"{name}{_SUFFIX}")


def taken(directory: Path) -> list[News]:
    """All of it, oldest first. What cannot be read is nobody's news, and goes."""
    found = []
    try:
        names = [entry.name for entry in os.scandir(directory) if entry.name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return []
    for name in names:
        try:
            record = msgspec.json.decode((directory / name).read_bytes(), type=_Record)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostError("read", name, str(error)) from error
        except msgspec.MsgspecError:
            (directory / name).unlink(missing_ok=True)
            continue
        found.append(News(name.removesuffix(_SUFFIX), record.kind, record.id, record.at, record.data))
    return sorted(found, key=lambda news: (news.at, news.kind != "session.opened"))


def drop(directory: Path, news: list[News]) -> None:
    for one in news:
        with suppress(FileNotFoundError):
            (directory / f"{one.key}{_SUFFIX}").unlink()
