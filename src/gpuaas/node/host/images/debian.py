"""The recipe of our own base image, and the build: Debian by mmdebstrap, from the mirrors that this machine uses."""

import hashlib
import re
import shutil
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.command import run

RECIPE_FORMAT = 1  # of this file and `finish`: larger when the same list gives another image
SUITE = "bookworm"
PACKAGES = (
    "bash-completion",
    "ca-certificates",
    "curl",
    "file",
    "git",
    "iproute2",
    "iputils-ping",
    "less",
    "nano",
    "netbase",
    "openssh-client",
    "openssh-server",
    "procps",
    "psmisc",
    "python3",
    "python3-venv",
    "rsync",
    "sudo",
    "tmux",
    "tzdata",
    "unzip",
    "vim-tiny",
    "wget",
    "xz-utils",
    "zstd",
)
TIMEOUT_SECONDS = 1800.0

_RELEASE = re.compile(r"'(?P<uri>\S+?)/dists/(?P<suite>[^/ ]+)/InRelease'")
_SETTINGS = re.compile(r'Acquire::(https?::\S*|Check-Valid-Until|ForceIPv[46]|Retries) ".+";')
# In namespaces of its own, and dying with the agent: a killed build leaves no mount and no process behind.
_APART = ["setpriv", "--pdeathsig=KILL", "--"]
_APART += ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
_OPEN_TO_READ = ["sh", "-c", 'umask 022 && exec "$@"', "sh"]  # whatever the agent was started with


def version() -> str:
    """Another recipe is another image."""
    recipe = "\n".join([str(RECIPE_FORMAT), SUITE, *PACKAGES])
    return f"base-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"


def build(target: Path, held: int) -> None:
    """Fills the empty directory `target`. `held` is a lock that lasts as long as the build, even if we do not."""
    options = ["--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    options += ['--aptopt=APT::Install-Recommends "false"', "--dpkgopt=force-unsafe-io"]
    options += [f"--aptopt={line}" for line in _asked("apt-config", "dump") if _SETTINGS.fullmatch(line)]
    command = [*_APART, *_OPEN_TO_READ, "mmdebstrap", *options, SUITE, str(target), *sources()]
    if shutil.which("mmdebstrap") is None:
        raise HostError("build", "the base image", "mmdebstrap is not installed", transient=False)
    done = run(command, TIMEOUT_SECONDS, pass_fds=[held])
    if done.code != 0:
        raise HostError("build", "the base image", "; ".join(done.output.strip().splitlines()[-5:]))


def sources() -> list[str]:
    """The lines of sources.list for Debian as this machine has it; empty leaves the choice to mmdebstrap.

    Other publishers use Debian's suite names for their packages too: what is known to be another's is left out.
    """
    fields = "$(REPO_URI) $(ORIGIN)"
    origins = dict(line.split(" ", 1) for line in _asked("apt-get", "indextargets", "--format", fields) if " " in line)
    origin = {uri.rstrip("/"): name for uri, name in origins.items()}
    found = [
        match.groupdict() for line in _asked("apt-get", "update", "--print-uris") if (match := _RELEASE.match(line))
    ]
    of_suite = [each for each in found if each["suite"] in (SUITE, f"{SUITE}-updates", f"{SUITE}-security")]
    ours = [each for each in of_suite if origin.get(each["uri"], "Debian") == "Debian"]
    if not any(each["suite"] == SUITE for each in ours):
        return []
    return [f"deb {each['uri']} {each['suite']} main" for each in ours]


def _asked(*command: str) -> list[str]:
    """What a program of apt answers; nothing on a machine without apt."""
    if shutil.which(command[0]) is None:
        return []
    done = run(command, 60.0)
    return done.output.splitlines() if done.code == 0 else []
