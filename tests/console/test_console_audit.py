"""The file of the audit log: its mode, links, and lines that were torn; each entry that was confirmed can be read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardway.console.audit import AuditError, AuditLog
from shardway.console.security.visitors import Role, Visitor

if TYPE_CHECKING:
    from pathlib import Path

ADA = Visitor(name="ada", role=Role.WRITER, peer="127.0.0.1", csrf="", may_write=True)


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(str(tmp_path / "audit.jsonl"))


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o620, 0o604])
async def test_a_file_that_others_may_read_or_write_becomes_its_owners_alone(log: AuditLog, mode: int) -> None:
    log.path.touch()
    log.path.chmod(mode)
    await log.viewed(ADA, "records.viewed", {"stream": "orders"})
    assert log.path.stat().st_mode & 0o777 == 0o600


async def test_a_new_file_is_its_owners_alone_whatever_the_umask_is(log: AuditLog) -> None:
    before = os.umask(0)
    try:
        await log.viewed(ADA, "records.viewed", {})
    finally:
        os.umask(before)
    assert log.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
async def test_what_is_no_file_is_not_written_to(log: AuditLog, tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    if "link" in kind:
        if kind == "link":
            other.write_text("kept")
        log.path.symlink_to(other)
    elif kind == "folder":
        log.path.mkdir()
    else:
        os.mkfifo(log.path)
    with pytest.raises(AuditError, match="cannot be written"):
        await log.viewed(ADA, "records.viewed", {})
    assert other.read_text() == "kept" if kind == "link" else not other.exists()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cuts=st.lists(st.integers(0, 400), min_size=1, max_size=4))
async def test_a_torn_line_destroys_no_other_entry(log: AuditLog, cuts: list[int]) -> None:
    log.path.unlink(missing_ok=True)
    written = 0
    for number, cut in enumerate(cuts):
        await log.viewed(ADA, f"records.viewed.{number}", {"stream": "orders"})
        written += 1
        line = log.path.read_bytes().splitlines()[-1]
        with log.path.open("ab") as file:  # as a disk that fills up in the middle of the next line
            file.write(line[: cut % len(line)])
    await log.viewed(ADA, "last", {})
    assert [one.action for one in reversed(log.newest())] == [f"records.viewed.{n}" for n in range(written)] + ["last"]
