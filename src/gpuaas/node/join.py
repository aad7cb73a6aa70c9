"""Becoming a node: shows a join token and the node's own public key to the server, once."""

import asyncio
import logging

import httpx
import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.node.backoff import Backoff
from gpuaas.node.identity import Identity
from gpuaas.wire.node import Id

log = logging.getLogger(__name__)

JOIN_PATH = "/api/v1/nodes/join"
_PATIENCE_SECONDS = 30.0


class _Joined(msgspec.Struct):
    node_id: Id


async def join(server_url: str, token: str, name: str, identity: Identity) -> str:
    """The node's id. Asks until there is an answer: a lost answer is asked for again with the same key and token."""
    request = {
        "token": token,
        "name": name,
        "public_key": identity.public_key,
        "signature": identity.sign_join(token),
    }
    backoff = Backoff()
    loopback = httpx.URL(server_url).host in ("127.0.0.1", "::1", "localhost")
    async with httpx.AsyncClient(timeout=_PATIENCE_SECONDS, trust_env=not loopback) as client:  # no proxy to ourselves
        while True:
            try:
                answer = await client.post(server_url.rstrip("/") + JOIN_PATH, json=request)
            except httpx.TransportError as error:
                log.warning("the server does not answer yet: %s", error)
            else:
                if answer.status_code < 500 and answer.status_code != 429:
                    return _node_id(answer)
                log.warning("the server cannot answer yet: %s", answer.status_code)
            await asyncio.sleep(backoff.next())


def _node_id(answer: httpx.Response) -> str:
    if answer.is_success:
        try:
            return msgspec.json.decode(answer.content, type=_Joined).node_id
        except msgspec.MsgspecError as error:
            raise Problem("join_failed", 502, "The server's answer makes no sense.", detail=str(error)) from error
    raise Problem(
        "join_refused",
        answer.status_code,
        "The server did not let this node join.",
        "Ask an operator for a new join token.",
        detail=answer.text[:500],
    )
