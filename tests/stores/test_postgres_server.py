"""The tests' own PostgreSQL server: where its programs are, and what is said where it cannot run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.stores import postgres_server

ROOT = Path(__file__).resolve().parents[2]


def test_the_script_and_the_tests_find_programs_or_both_find_none() -> None:
    found = subprocess.run([str(ROOT / "scripts" / "postgres")], capture_output=True, text=True, check=False)
    if found.returncode:
        assert found.stdout == ""
        with pytest.raises(postgres_server.UnavailableError):
            postgres_server.binaries()
    else:
        for folder in (Path(found.stdout.strip()), postgres_server.binaries()):
            assert os.access(folder / "initdb", os.X_OK)
            assert os.access(folder / "pg_ctl", os.X_OK)


def test_the_package_is_named_with_its_hashes() -> None:
    lines = (ROOT / "requirements" / "postgres.txt").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"[a-z-]+==[\d.]+ \\", lines[1])
    assert len([line for line in lines[2:] if re.search(r"--hash=sha256:[0-9a-f]{64}", line)]) == len(lines) - 2 == 2


def test_a_program_that_may_not_be_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "initdb").write_text("#!/bin/sh\n")
    monkeypatch.setattr(postgres_server, "binaries", lambda: programs)
    (tmp_path / "data").mkdir()
    server = postgres_server.PostgresServer(tmp_path / "data")
    with pytest.raises(postgres_server.UnavailableError, match=f"may not run {programs}/initdb"):
        server.make()
