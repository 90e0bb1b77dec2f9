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


@contextlib.contextmanager
def running() -> Iterator[dict[str, Any]]:
    """A server for as long as the context lasts: what to connect with. Raises UnavailableError."""
    bin_folder, user = binaries(), _as_user()
    # Not pytest's: its folders are closed to other users, and a socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as text:
        folder = Path(text)
        if user:
            os.chown(folder, user["user"], user["group"])
        data = folder / "data"

        def run(*command: str) -> None:
            done = subprocess.run(
                command, timeout=TIMEOUT_S, cwd=folder, env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, **user,
            )  # fmt: skip
            if done.returncode:
                raise UnavailableError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-300:]}")

        run(
            str(bin_folder / "initdb"),
            "-D",
            str(data),
            "-U",
            "penstock",
            "-A",
            "trust",
            "-N",
            "--no-locale",
            "-E",
            "UTF8",
        )
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=8MB"
        run(
            str(bin_folder / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start"
        )  # fmt: skip
        try:
            yield {"host": str(folder), "user": "penstock", "database": "postgres"}
        finally:
            run(str(bin_folder / "pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")
