"""A PostgreSQL server of this machine's own binaries, in a folder that goes, on a socket in that folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 60


class UnavailableError(Exception):
    """There is no server on this machine. The message says why."""


def binaries() -> Path:
    """The folder of ``initdb`` and ``postgres``."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: one.parent.name, reverse=True)
    named = shutil.which("initdb")
    found = [*newest_first, *([Path(named).resolve().parent] if named else [])]
    for folder in found:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise UnavailableError("PostgreSQL's initdb is not on this machine")


def _as_user() -> dict[str, Any]:
    """PostgreSQL does not run as root: then another user does it."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise UnavailableError("PostgreSQL does not run as root, and there is no other user")


class PostgresServer:
    """A server in ``folder``, which has its data, its log and its socket. ``connect`` is what to connect with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin_folder, self._user = binaries(), _as_user()
        self._data = str(folder / "data")
        self.connect: dict[str, Any] = {"host": str(folder), "user": "shardway", "database": "postgres"}
        self.dsn = f"postgresql://shardway@/postgres?host={folder}"
        if self._user:
            os.chown(folder, self._user["user"], self._user["group"])

    def make(self) -> None:
        """Write the files of an empty database. Raises UnavailableError."""
        self._run("initdb", "-U", "shardway", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")

    def start(self) -> None:
        """Start the server, and return when it answers. Raises UnavailableError."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c fsync=off"
        self._run(
            "pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", f"{options} -c shared_buffers=8MB", "start"
        )  # fmt: skip

    def stop(self, mode: str) -> None:
        """Stop the server: ``fast`` ends each connection with a FATAL error, ``immediate`` without a goodbye."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        path = self._bin_folder / program
        try:
            done = subprocess.run(
                [str(path), "-D", self._data, *arguments],
                timeout=TIMEOUT_S, cwd=self._folder, env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, **self._user,
            )  # fmt: skip
        except PermissionError as error:  # a folder above it is closed to the other user
            raise UnavailableError(f"the user that is to run PostgreSQL may not run {path}") from error
        if done.returncode:
            raise UnavailableError(f"{program} failed: {done.stderr.decode(errors='replace')[-300:]}")


@contextlib.contextmanager
def started() -> Iterator[PostgresServer]:
    """A server for as long as the context lasts. Raises UnavailableError."""
    # Not pytest's: its folders are closed to other users, and a socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="shardway-pg-") as folder:
        server = PostgresServer(Path(folder))
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


@contextlib.contextmanager
def running() -> Iterator[dict[str, Any]]:
    """A server for as long as the context lasts: what to connect with. Raises UnavailableError."""
    with started() as server:
        yield server.connect
