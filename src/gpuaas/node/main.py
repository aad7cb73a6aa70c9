"""The agent's process: threads for passes, one WebSocket to the server, and a clean end on SIGTERM.

Everything that decides is synchronous and elsewhere; this file only moves it along and waits.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

import gpuaas
from gpuaas.kit.clock import Clock, SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.kit.ids import Ids
from gpuaas.node.backoff import Backoff
from gpuaas.node.config import AgentConfig
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.interface import Disk, Host
from gpuaas.node.identity import identity
from gpuaas.node.join import join
from gpuaas.node.journal import Journal
from gpuaas.node.link import Link
from gpuaas.node.runner import Runner
from gpuaas.wire.node import LINK_PATH, FromAgent, encode, from_server

log = logging.getLogger(__name__)

WORKERS = 16
OBSERVE_SECONDS = 1.0
MAX_SERVER_FRAME_BYTES = 16 * 1024 * 1024
_T = TypeVar("_T")
