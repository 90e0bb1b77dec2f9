"""List, remove and move files on any file system that Spark knows, through Hadoop or on a local disk."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from shardway.errors import OptionError
from shardway.pipeline.dataframes import check_classic
from shardway.pipeline.py4j_error import Py4JError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


_PART = "part-"
"""The beginning of the names of files that Spark writes."""
_NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""Hadoop's option that leaves out the empty file that says that a write is done: nothing reads it."""
_NO_CHECKSUMS = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
"""Hadoop's options that leave out its checksum files: these would stay behind when a file is renamed out of its folder.
"""
_LOCAL_CLASSES = ("org.apache.hadoop.fs.LocalFileSystem", "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem")
"""The classes for local files of Hadoop itself, and of the Hive that lies in Spark's distribution."""


class HadoopFiles:
    """Lists, removes and moves files through Hadoop's file systems, on the driver.

    Local files are handled without the checksum files that Hadoop keeps beside them: a move is then one rename.
    Raises OptionError in a Spark Connect session.
    """

    mode = "overwrite"
    """The mode in which Spark writes into a folder for files that are moved to their place afterwards."""
    options: Mapping[str, str] = _NO_MARK
    """The options that Hadoop gets for that write, beside those of the format."""

    def __init__(self, spark: SparkSession) -> None:
        check_classic("what moves files into a folder")
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]

    def glob(self, folder: str, pattern: str) -> list[str]:
        """Return the full names of what matches in a folder; none when nothing does, or there is no folder."""
        path = self._hadoop.Path(re.sub(r"([\\{}\[\]*?])", r"\\\1", folder) + "/" + pattern)
        return [status.getPath().toString() for status in self._system(path).globStatus(path) or ()]

    def parts(self, folder: str, depth: int) -> list[str]:
        """Return the full names of the files that Spark wrote into a folder partitioned by ``depth`` columns."""
        return self.glob(folder, "*=*/" * depth + _PART + "*")

    def names(self, folder: str) -> list[str]:
        """Return the names of all that is in a folder, sorted; none when it is empty, or there is no folder."""
        path = self._hadoop.Path(folder)
        system = self._system(path)
        return sorted(one.getPath().getName() for one in system.listStatus(path)) if system.exists(path) else []

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all in it. It is no error when it is not there."""
        path = self._hadoop.Path(name)
        self._system(path).delete(path, True)

    def read(self, name: str, bytes_max: int) -> bytes | None:
        """Return the first bytes of a small file; None when there is no such file."""
        path = self._hadoop.Path(name)
        try:
            stream = self._system(path).open(path)
        except Py4JError as error:
            java = getattr(error, "java_exception", None)
            if java is None or java.getClass().getName() != "java.io.FileNotFoundException":
                raise
            return None
        try:
            return bytes(stream.readNBytes(bytes_max))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, and the folders above it, whatever was there."""
        path = self._hadoop.Path(name)
        stream = self._system(path).create(path, True)
        try:
            stream.write(data)
        finally:
            stream.close()

    def make_ready(self, folder: str) -> None:
        """Prepare a folder that is not there for a write by Spark. Here nothing is to be done."""

    def move(self, file: str, folder: str, name: str) -> None:
        """Rename a file into a folder, which is made if it is not there.

        Raises OptionError where that would be a copy, which a reader could see half of.
        """
        source, target = self._hadoop.Path(file), self._hadoop.Path(folder, name)
        system = self._system(target)
        system.mkdirs(self._hadoop.Path(folder))
        if system.getUri().getScheme() == "file":
            # Hadoop would copy where the system cannot rename.
            _rename(source.toUri().getPath(), target.toUri().getPath())
        elif not system.rename(source, target):
            raise OptionError(f"staging: {file} cannot be renamed to {folder}/{name}: the file system refused it")

    def _system(self, path: Any) -> Any:
        system = path.getFileSystem(self._conf)
        return system.getRawFileSystem() if system.getUri().getScheme() == "file" else system


class LocalFiles(HadoopFiles):
    """Does what `HadoopFiles` does for folders of this machine: no call goes to the JVM for each file, and no program
    is started.

    Without its native library Hadoop runs ``chmod`` for each file and each folder that it makes, at milliseconds each.
    """

    mode = "append"
    options: Mapping[str, str] = _NO_MARK | _NO_CHECKSUMS

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        umask: int = self._hadoop.permission.FsPermission.getUMask(self._conf).toShort()
        self._folder_mode = 0o777 & ~umask
        """The mode with which Hadoop makes folders, whatever the process's own mask is."""

    def local(self, path: str) -> str | None:
        """Return the path of a folder from this machine's root; None where it lies elsewhere."""
        if os.name != "posix":
            return None
        try:
            found = self._hadoop.Path(path)
            system = found.getFileSystem(self._conf)
            is_plain = system.getClass().getName() in _LOCAL_CLASSES
            return str(system.makeQualified(found).toUri().getPath()) if is_plain else None
        except (Py4JError, PySparkException):  # there is no such file system: the use of the path says so
            return None

    def glob(self, folder: str, pattern: str) -> list[str]:
        """Return the paths of what matches in a folder; none when nothing does, or there is no folder."""
        return [name.removeprefix("file:") for name in super().glob(folder, pattern)]

    def parts(self, folder: str, depth: int) -> list[str]:
        """Return the paths of the files that Spark wrote into a folder partitioned by ``depth`` columns."""
        folders = [folder]
        for _ in range(depth):
            folders = [one.path for at in folders for one in os.scandir(at) if "=" in one.name]
        return [one.path for at in folders for one in os.scandir(at) if one.name.startswith(_PART)]

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all in it. It is no error when it is not there."""
        if os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(name)

    def make_ready(self, folder: str) -> None:
        """Make the folders that Hadoop would make for its tasks."""
        self._make(f"{folder}/_temporary/0/_temporary")

    def move(self, file: str, folder: str, name: str) -> None:
        """Rename a file into a folder, which is made if it is not there. Raises OptionError where that cannot be."""
        self._make(folder)
        _rename(file, f"{folder}/{name}")

    def _make(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(missing):
            with suppress(FileExistsError):  # another writer made it
                os.mkdir(one)
                os.chmod(one, self._folder_mode)


def files_for(spark: SparkSession, *paths: str) -> tuple[HadoopFiles, list[str]]:
    """Return what handles files in these folders, and the folders' paths as it takes them. Raises OptionError in a
    Spark Connect session.
    """
    local = LocalFiles(spark)
    found = [local.local(path) for path in paths]
    there = [path for path in found if path is not None]
    return (local, there) if len(there) == len(paths) else (HadoopFiles(spark), list(paths))


def _rename(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise OptionError(f"staging: {source} cannot be renamed to {target}: {why}") from error
