"""Other emulators of Kinesis: installed into ``.cache/emulators``, started on loopback, ended by their process id.

``python tests/contracts/emulators.py`` installs all; the contract tests install what they need.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "emulators"
INSTALL_TIMEOUT_S = 600
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 5

MINISTACK = "ministack==1.5.33"
KINESIS_LOCAL = "kinesis-local@0.6.2"
LOOPBACK_ONLY = """
// kinesis-local has no setting for its address and listens on all of them.
const server = require('net').Server.prototype
const listen = server.listen
server.listen = function (where, ...rest) {
  const options = typeof where === 'object' ? where : { port: where }
  return listen.call(this, { ...options, host: '127.0.0.1' }, ...rest.filter(one => typeof one === 'function'))
}
"""


class UnavailableError(Exception):
    """The emulator cannot be had on this machine."""


class Launch(NamedTuple):
    """How to start an emulator."""

    command: list[str]
    environment: dict[str, str]
    folder: Path


def _moto(port: int) -> Launch:
    return Launch([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], {}, CACHE)


def _install_moto() -> None:
    """It is there: the local service uses it for DynamoDB."""


def _ministack(port: int) -> Launch:
    # Without BIND_HOST it listens on all addresses.
    settings = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "LOG_LEVEL": "WARNING"}
    return Launch([str(CACHE / "ministack" / "bin" / "ministack")], settings, CACHE)


def _install_ministack() -> None:
    folder = CACHE / "ministack"
    if (folder / "bin" / "ministack").exists():
        return
    venv.create(folder, with_pip=True, clear=True)
    _run([str(folder / "bin" / "pip"), "install", "-q", MINISTACK, "cbor2"])


def _kinesis_local(port: int) -> Launch:
    settings = {
        "SHARD_LIMIT": "10000",
        "KINESIS_MOCK_PLAIN_PORT": str(port),
        "KINESIS_MOCK_TLS_PORT": str(free_port()),
        "LOG_LEVEL": "ERROR",
        "CREATE_STREAM_DURATION": "10ms",
        "DELETE_STREAM_DURATION": "10ms",
        "UPDATE_SHARD_COUNT_DURATION": "10ms",
        "SPLIT_SHARD_DURATION": "10ms",
        "MERGE_SHARDS_DURATION": "10ms",
        "REGISTER_STREAM_CONSUMER_DURATION": "10ms",
    }
    # Its certificate is found in the working folder only.
    folder = CACHE / "kinesis-local"
    command = ["node", "--require", str(folder / "loopback.cjs"), "main.js"]
    return Launch(command, settings, folder / "node_modules" / "kinesis-local")


def _install_kinesis_local() -> None:
    folder = CACHE / "kinesis-local"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "loopback.cjs").write_text(LOOPBACK_ONLY)
    if (folder / "node_modules" / "kinesis-local" / "main.js").exists():
        return
    if shutil.which("npm") is None:
        raise UnavailableError("npm is not on this machine")
    _run(["npm", "install", "--silent", "--prefix", str(folder), KINESIS_LOCAL])


EMULATORS: dict[str, tuple[Callable[[], None], Callable[[int], Launch]]] = {
    "moto": (_install_moto, _moto),
    "ministack": (_install_ministack, _ministack),
    "kinesis-local": (_install_kinesis_local, _kinesis_local),
}


def install(name: str) -> None:
    """Install an emulator unless it is there. Raises UnavailableError."""
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        EMULATORS[name][0]()
    except (subprocess.SubprocessError, OSError) as fault:
        raise UnavailableError(f"{name} cannot be installed: {fault}") from fault


@contextlib.contextmanager
def running(name: str) -> Iterator[str]:
    """A running emulator, for as long as the context lasts: its address. Raises UnavailableError."""
    install(name)
    port = free_port()
    launch = EMULATORS[name][1](port)
    with open(CACHE / f"{name}.log", "wb") as log:
        process = subprocess.Popen(
            launch.command,
            cwd=launch.folder,
            env=os.environ | launch.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(process, port, name)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:  # it waits for open subscriptions
                process.kill()
                process.wait()


def free_port() -> int:
    """A port on which no process listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(process: subprocess.Popen[bytes], port: int, name: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UnavailableError(f"{name} ended with status {process.returncode}: see {CACHE / name}.log")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise UnavailableError(f"{name} does not listen after {START_TIMEOUT_S} s")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    for emulator in EMULATORS:
        install(emulator)
        print(f"{emulator} is in {CACHE}")
