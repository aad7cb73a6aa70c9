"""Becoming a node: shows a join token and the node's own public key to the server, once."""

import asyncio
import json
import logging
from functools import partial
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.node.backoff import Backoff
from gpuaas.node.identity import Identity
from gpuaas.node.servers import Servers
from gpuaas.wire.node import Id

log = logging.getLogger(__name__)

JOIN_PATH = "/api/v1/nodes/join"
_PATIENCE_SECONDS = 30.0
_MAX_ANSWER_BYTES = 64 * 1024


class _Joined(msgspec.Struct):
    node_id: Id


async def join(servers: Servers, token: str, name: str, identity: Identity) -> str:
    """The node's id. Asks until there is an answer: a lost answer is asked for again with the same key and token."""
    request = {
        "token": token,
        "name": name,
        "public_key": identity.public_key,
        "signature": identity.sign_join(token),
    }
    backoff = Backoff()
    while True:
        url = servers.url
        try:
            status, answer = await asyncio.to_thread(partial(_ask, servers, request))
        except (URLError, HTTPException, OSError) as error:
            log.warning("%s does not answer yet: %s", url, error)
        else:
            if status < 500 and status != 429:
                return _node_id(status, answer)
            log.warning("%s cannot answer yet: %s", url, status)
        servers.failed(url)
        await asyncio.sleep(backoff.next())


def _ask(servers: Servers, request: dict[str, str]) -> tuple[int, bytes]:
    """By the standard library: this is the only request an agent ever makes, and a client for it would stay loaded."""
    opener = build_opener(ProxyHandler({})) if servers.is_here else build_opener()  # no proxy to ourselves
    url = servers.url + JOIN_PATH
    posted = Request(url, json.dumps(request).encode(), {"Content-Type": "application/json"})  # noqa: S310 see AgentConfig
    try:
        with opener.open(posted, timeout=_PATIENCE_SECONDS) as answer:
            return answer.status, answer.read(_MAX_ANSWER_BYTES)
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read(_MAX_ANSWER_BYTES)


def _node_id(status: int, answer: bytes) -> str:
    if status < 300:
        try:
            return msgspec.json.decode(answer, type=_Joined).node_id
        except msgspec.MsgspecError as error:
            raise Problem("join_failed", 502, "The server's answer makes no sense.", detail=str(error)) from error
    raise Problem(
        "join_refused",
        status,
        "The server did not let this node join.",
        "Ask an operator for a new join token.",
        detail=answer.decode(errors="replace")[:500],
    )
