"""Write and use an archive of Java's classes, by which Spark starts faster on this machine.

A start of Spark loads and checks thousands of classes: more than a quarter of the CPU that a job takes until its first
file. Java can write the classes that a run has loaded into a file, and map that file into memory at the next start
(class data sharing, ``-XX:ArchiveClassesAtExit``). ``shardway java-archive`` writes it, by a small job on a local
Kinesis, and ``shardway run`` uses it where it is there.

Java itself sees whether the file is of this Java and of these jars, and starts without it if not. The file's name has
Spark's version and place in it, so several installations have one each. But Java ends with a crash at a file that was
cut off, so the size is kept beside it, and a file of another size is not used.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from shardway.errors import ShardwayError

if TYPE_CHECKING:
    from collections.abc import Mapping

ARCHIVE = "SHARDWAY_JAVA_ARCHIVE"
"""The environment variable that names the archive's file; with ``off`` none is used."""
OPTIONS = "spark.driver.extraJavaOptions"
RUN_S_MAX = 600.0
"""Seconds that the job, and the writing of the archive at its end, may take."""
_QUIET = "-Xshare:auto -Xlog:cds*=off -Xlog:class+path=off"
"""Java's options by which it says nothing of an archive that does not fit: Spark starts without it as it always did."""
STREAM, RECORDS = "orders", 2_000

_JOB = """\
name = "java-archive"
checkpoint = "{folder}/checkpoint"

[source]
streamName = "{stream}"
region = "{region}"
endpointUrl = "{endpoint_url}"
startingPosition = "TRIM_HORIZON"
maxRecordsPerTrigger = 1000

[decode]
format = "json"
schema = "id STRING NOT NULL, count INT, price DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP"

[dead_letters]
path = "{folder}/dead"

[deduplicate]
keys = ["value.id"]
window = "10 minutes"

[[sinks]]
format = "parquet"
path = "{folder}/orders"

[trigger]
available_now = true

[spark]
"spark.master" = "local[2]"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.ui.enabled" = "false"
"{options}" = "-XX:ArchiveClassesAtExit={archive}"
"""


class ArchiveError(ShardwayError):
    """The archive was not written."""


def archive_file() -> Path | None:
    """Return where this Spark's archive is, or would be; None where the environment says that none is to be used."""
    named = os.environ.get(ARCHIVE, "")
    if named:
        return None if named == "off" else Path(named)
    import pyspark

    from shardway.pipeline.job.packages import spark_home

    spark = os.path.realpath(spark_home())
    key = hashlib.sha256(f"{spark}\0{os.environ.get('JAVA_HOME', '')}".encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache) / "shardway" / f"spark-{pyspark.__version__}-{key}.jsa"


def with_archive(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings, with the archive if there is one and if they name none themselves."""
    given = settings.get(OPTIONS, "")
    file = None if "SharedArchiveFile" in given or "ArchiveClassesAtExit" in given else archive_file()
    # A path with a space would be two options to Java.
    if file is None or " " in str(file) or not _is_whole(file):
        return dict(settings)
    return {**settings, OPTIONS: f"{given} -XX:SharedArchiveFile={file} {_QUIET}".strip()}


def _size_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.size")


def _is_whole(file: Path) -> bool:
    try:
        return file.stat().st_size == int(_size_file(file).read_text())
    except (OSError, ValueError):
        return False


def remove_archive() -> Path | None:
    """Remove the archive. Return its file, or None where there is none."""
    file = archive_file()
    if file is None or not file.is_file():
        return None
    _size_file(file).unlink(missing_ok=True)
    file.unlink()
    return file


def write_archive() -> Path:
    """Run a small job, and have its Java write the archive. This takes about a minute, and about 200 MB of disk. Return
    the archive's file. Raises ArchiveError where it was not written.
    """
    file = archive_file()
    if file is None:
        raise ArchiveError(f"{ARCHIVE} says that no archive is to be used: take it out of the environment")
    if " " in str(file):
        raise ArchiveError(
            f"the archive's path has a space, which Java's options cannot have: name another in {ARCHIVE}"
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # The archive is made beside its place, so that a run never finds half of it.
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=file.parent) as folder:
            written = Path(folder) / "classes.jsa"
            _train(Path(folder), written)
            # Between the two steps the sizes differ, and no archive is used.
            size = Path(folder) / "size"
            size.write_text(str(written.stat().st_size))
            os.replace(size, _size_file(file))
            os.replace(written, file)
    except subprocess.TimeoutExpired as error:
        raise ArchiveError(f"the job that makes the archive was not done within {RUN_S_MAX:g} s") from error
    except OSError as error:
        raise ArchiveError(f"the archive {file} cannot be written: {error}") from error
    return file


def _train(folder: Path, archive: Path) -> None:
    """Run the job in a process of its own, whose Java ends with it."""
    from shardway.local.embedded import LocalKinesis

    with LocalKinesis(streams={STREAM: 2}) as local:
        environment = os.environ | local.environment() | {ARCHIVE: "off"}
        _put_records(local.endpoint_url, local.region)
        local.clock.advance(10)  # the cut has to come after the records
        job = folder / "job.toml"
        text = _JOB.format(
            folder=folder, stream=STREAM, region=local.region, endpoint_url=local.endpoint_url,
            options=OPTIONS, archive=archive,
        )  # fmt: skip
        job.write_text(text, encoding="utf-8")
        done = subprocess.run(  # noqa: S603  (this interpreter, arguments of our own)
            [sys.executable, "-m", __name__, str(job)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=RUN_S_MAX, check=False,
        )  # fmt: skip
    if done.returncode or not archive.is_file():
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ArchiveError(f"the job that makes the archive ended with status {done.returncode}: {''.join(said)}")


def _put_records(endpoint_url: str, region: str) -> None:
    """Put records that take Spark through most of a job's steps: good ones, duplicates, broken ones, and doubtful
    strings.
    """
    from shardway import ConnectionOptions, Credentials, OutRecord, SyncProducer

    connection = ConnectionOptions(endpoint_url=endpoint_url, region=region, credentials=Credentials("local", "local"))
    with SyncProducer(STREAM, connection=connection) as producer:
        for number in range(RECORDS):
            order = {"id": f"order-{number % 1900}", "count": number, "price": "1.50", "at": "2026-01-01T00:00:00Z"}
            text = json.dumps(order | ({"tags": ["5", "x"]} if number % 10 == 0 else {}))
            data = text.encode() if number % 100 else b'{"id": 5}'
            producer.put_nowait(OutRecord(data, f"key-{number}"))


def _run(job: str) -> int:
    """Run the job, and wait until its Java has ended, which writes the archive then. Return the exit status."""
    from pyspark import SparkContext

    from shardway.pipeline.job.running import run_file

    status = run_file(job)
    gateway = SparkContext._gateway
    if gateway is not None:
        java = gateway.proc
        gateway.shutdown()
        java.stdin.close()
        java.wait(RUN_S_MAX)
    return status


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1]))
