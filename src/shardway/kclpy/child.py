"""The process of one shard runs the user's processor, on ``amazon_kclpy`` or its shim.

``python -m shardway.kclpy.child SOCKET TARGET [--shim]``. The messages go over a socket of their own, so that whatever
the processor prints is output and nothing else. `KCLProcess` is replaced by one that speaks over that socket, also for
scripts that make one themselves.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import runpy
import socket
import sys
from typing import Any, TextIO

from shardway.kclpy import shim

CALLS = ("initialize", "process_records", "lease_lost", "shard_ended", "shutdown", "shutdown_requested")


class WatchedProcessor:
    """A processor whose errors the worker hears of: the library's own loop answers as if the call had gone well."""

    def __init__(self, processor: Any, tell: TextIO) -> None:
        self._processor = processor
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._processor, name)
        if name not in CALLS:
            return found

        def call(*arguments: Any) -> None:
            try:
                found(*arguments)
            except Exception as error:
                self._tell.write(f"\n{json.dumps({'action': 'raised', 'error': type(error).__name__})}\n")
                raise

        return call


def speak_over(lines_in: TextIO, lines_out: TextIO) -> None:
    """Let every `KCLProcess` of this process use these files, whatever files it is given."""
    kcl: Any = importlib.import_module("amazon_kclpy.kcl")
    process = kcl.KCLProcess

    class KCLProcess(process):  # type: ignore[misc, valid-type]
        """Serves one processor over the worker's socket."""

        def __init__(self, record_processor: Any, *_files: Any, **_named_files: Any) -> None:
            super().__init__(WatchedProcessor(record_processor, lines_out), lines_in, lines_out, sys.stderr)

    kcl.KCLProcess = KCLProcess


def run(target: str) -> None:
    """Run a processor by ``module:name`` or ``file.py:name``, or run a script."""
    where, _, name = target.rpartition(":")
    if not where:
        sys.argv = [target]
        sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
        runpy.run_path(target, run_name="__main__")
        return
    found: Any = load(where)
    for part in name.split("."):
        found = getattr(found, part)
    processor = found() if callable(found) else found  # a class, a function that makes one, or a processor
    importlib.import_module("amazon_kclpy.kcl").KCLProcess(processor).run()


def load(where: str) -> Any:
    """Load a module by its name, also from the current folder, or by its file."""
    if not where.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(where)
    sys.path.insert(0, os.path.dirname(os.path.abspath(where)))
    name = os.path.basename(where).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: list[str]) -> None:
    """Serve a processor until the worker closes the socket."""
    descriptor, target, *options = arguments
    talk = socket.socket(fileno=int(descriptor))
    talk.set_inheritable(False)
    lines_in = talk.makefile("r", encoding="utf-8", newline="\n")
    lines_out = talk.makefile("w", encoding="utf-8", newline="\n")
    shim.install(always="--shim" in options)
    speak_over(lines_in, lines_out)
    run(target)


if __name__ == "__main__":
    main(sys.argv[1:])
