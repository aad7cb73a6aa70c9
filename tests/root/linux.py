"""A node of the test's own on this machine: other names for everything, the cached base image."""

import os
import zlib
from pathlib import Path

from gpuaas.node.host.linux import LinuxConfig, LinuxHost
from gpuaas.node.host.paths import Paths


class Node:
    def __init__(self, work: Path, images: Path, gpus: str = "4xH100") -> None:
        number = zlib.crc32(f"{os.getpid()}{work}".encode())
        self.config = LinuxConfig(
            paths=Paths(work / "state", work / "run", images),
            hostname="test-node",
            simulate_gpus=gpus,
            prefix=f"gpuaas-test-{number:08x}",
            interfaces=f"gt{number % 4096:03x}",
            pool=f"198.19.{number % 16 * 16}.0/20",
            disk_mib=512,
        )
        self.host = self.agent()

    def agent(self) -> LinuxHost:
        """What a fresh agent process has."""
        self.host = LinuxHost(self.config)
        self.host.prepare()
        assert self.host.inventory().ready, self.host.inventory().reason
        return self.host
