"""The archive of Java's classes: where it is, which jobs use it, and that one that does not fit does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shardway.pipeline.job.java_archive import ARCHIVE, OPTIONS, ArchiveError, archive_file, with_archive, write_archive

if TYPE_CHECKING:
    from pathlib import Path


def put(file: Path, content: bytes = b"") -> Path:
    file.write_bytes(content)
    file.with_name(f"{file.name}.size").write_text(str(len(content)))
    return file


def test_a_machine_without_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ARCHIVE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = archive_file()
    assert file is not None
    assert file.is_relative_to(tmp_path / "shardway")
    assert with_archive({"a": "b"}) == {"a": "b"}
    file.parent.mkdir()
    put(file)
    assert f"-XX:SharedArchiveFile={file} " in with_archive({"a": "b"})[OPTIONS]
    monkeypatch.setenv("JAVA_HOME", "/another")
    assert archive_file() != file


def test_settings_of_the_job_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "classes.jsa")
    monkeypatch.setenv(ARCHIVE, str(file))
    assert with_archive({OPTIONS: "-Dx=y"})[OPTIONS].startswith(f"-Dx=y -XX:SharedArchiveFile={file} ")
    for given in ("-XX:SharedArchiveFile=other.jsa", "-XX:ArchiveClassesAtExit=other.jsa"):
        assert with_archive({OPTIONS: given}) == {OPTIONS: given}
    monkeypatch.setenv(ARCHIVE, "off")
    assert with_archive({}) == {}
    with pytest.raises(ArchiveError, match="take it out of the environment"):
        write_archive()


def test_a_path_that_java_cannot_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "with space.jsa")
    monkeypatch.setenv(ARCHIVE, str(file))
    assert with_archive({}) == {}
    with pytest.raises(ArchiveError, match="has a space"):
        write_archive()


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(ARCHIVE, str(tmp_path / "file" / "classes.jsa"))
    with pytest.raises(ArchiveError, match="cannot be written"):
        write_archive()


def test_a_file_that_was_cut_off_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "classes.jsa", b"all of it")
    monkeypatch.setenv(ARCHIVE, str(file))
    assert with_archive({})
    file.write_bytes(b"all of")
    assert with_archive({}) == {}
    (tmp_path / "classes.jsa.size").unlink()
    assert with_archive({}) == {}


@pytest.mark.parametrize("content", [b"", b"no archive", bytes(2**20)], ids=["empty", "text", "zeros"])
def test_java_starts_in_silence_where_the_archive_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    file = put(tmp_path / "classes.jsa", content)
    monkeypatch.setenv(ARCHIVE, str(file))
    options = with_archive({})[OPTIONS].split()
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    plain, ours = (
        subprocess.run([java, *given, "-version"], capture_output=True, check=True) for given in ([], options)
    )
    assert ours.stdout == b""
    assert ours.stderr.count(b"\n") == plain.stderr.count(b"\n")


@pytest.mark.slow
def test_it_is_written_used_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "classes.jsa"
    command = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())", "java-archive"]
    environment = os.environ | {ARCHIVE: str(file)}
    written = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert written.stdout.startswith(f"{file}: ")
    assert file.stat().st_size > 50 * 2**20
    assert sorted(one.name for one in tmp_path.iterdir()) == [file.name, f"{file.name}.size"]
    used = (
        "from shardway.pipeline.job.java_archive import OPTIONS, with_archive\n"
        "from pyspark.sql import SparkSession\n"
        "said = with_archive({})[OPTIONS].replace('-Xshare:auto', '-Xshare:on')  # Java ends if it cannot use it\n"
        "spark = SparkSession.builder.master('local[1]').config(OPTIONS, said).getOrCreate()\n"
        "print(spark.range(3).count(), spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()"
        ".getInputArguments().contains('-Xshare:on'))\n"
    )
    found = subprocess.run([sys.executable, "-c", used], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["3", "True"]
    removed = subprocess.run([*command, "--remove"], env=environment, capture_output=True, text=True, check=True)
    assert removed.stdout == f"{file} is removed\n"
    assert list(tmp_path.iterdir()) == []
