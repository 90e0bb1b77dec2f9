"""The few file operations that a sink needs beside Spark's own, on any file system that Spark knows."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError
from penstock.pipeline.known import check_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """Lists, removes and moves files through Hadoop's file systems, on the driver.

    Local files are handled without the checksum files that Hadoop keeps beside them: a move is then one rename.
    Raises OptionError in a Spark Connect session.
    """

    def __init__(self, spark: SparkSession) -> None:
        check_classic("what moves files into a folder")
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]

    def glob(self, folder: str, pattern: str) -> list[str]:
        """The full names of what matches in a folder; none when nothing does, or there is no folder."""
        path = self._hadoop.Path(re.sub(r"([\\{}\[\]*?])", r"\\\1", folder) + "/" + pattern)
        return [status.getPath().toString() for status in self._system(path).globStatus(path) or ()]

    def names(self, folder: str) -> list[str]:
        """The names of all that is in a folder, sorted; none when it is empty, or there is no folder."""
        path = self._hadoop.Path(folder)
        system = self._system(path)
        return sorted(one.getPath().getName() for one in system.listStatus(path)) if system.exists(path) else []

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all in it. No error when it is not there."""
        path = self._hadoop.Path(name)
        self._system(path).delete(path, True)

    def move(self, file: str, folder: str, name: str) -> None:
        """Rename a file into a folder, which is made if it is not there.

        Raises OptionError where that would be a copy, which a reader could see half of.
        """
        source, target = self._hadoop.Path(file), self._hadoop.Path(folder, name)
        system = self._system(target)
        system.mkdirs(self._hadoop.Path(folder))
        try:
            if system.getUri().getScheme() == "file":
                # Hadoop would copy where the system cannot rename.
                os.rename(source.toUri().getPath(), target.toUri().getPath())
                return
            refused = "" if system.rename(source, target) else "the file system refused it"
        except OSError as error:
            refused = error.strerror or type(error).__name__
        if refused:
            raise OptionError(f"staging: {file} cannot be renamed to {folder}/{name}: {refused}")

    def _system(self, path: Any) -> Any:
        system = path.getFileSystem(self._conf)
        return system.getRawFileSystem() if system.getUri().getScheme() == "file" else system
