"""Jobs over a local stream, run in this process's Spark session, and what they showed."""

from __future__ import annotations

import io
import json
import resource
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.dataset as ds

from shardway.pipeline.job import ExitCode, JobFileError, load_job
from shardway.pipeline.job.errors.exit_codes import StepError
from shardway.pipeline.job.run.output import RunOutput
from shardway.pipeline.job.run.query import run_job
from shardway.pipeline.job.run.stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from shardway.local import LocalKinesis

HEAD = """\
name = "orders"
checkpoint = "{folder}/checkpoint"

[source]
streamName = "orders"
region = "{region}"
endpointUrl = "{endpoint}"
startingPosition = "TRIM_HORIZON"

"""
JSON = """\
[decode]
format = "json"
schema = "order_id STRING NOT NULL, amount INT NOT NULL"

[dead_letters]
path = "{folder}/dead"

"""
ONCE = "\n[trigger]\navailable_now = true\n"


class Ended(NamedTuple):
    code: ExitCode
    events: list[dict[str, Any]]
    errors: str

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]

    @property
    def summary(self) -> dict[str, Any]:
        return self.of("summary")[0]

    @property
    def message(self) -> str:
        """The one error, which is on standard error too."""
        (error,) = self.of("error")
        assert self.errors == f"shardway: {error['message']}\n"
        assert error["exit_code"] == self.code
        return str(error["message"])


@dataclass
class World:
    """A stream, a folder, and jobs over them."""

    spark: SparkSession
    local: LocalKinesis
    folder: Path
    put_so_far: list[bytes] = field(default_factory=list)

    def put(self, *data: bytes) -> None:
        import boto3  # the environments of other versions of PySpark lack it

        client = boto3.client("kinesis", endpoint_url=self.local.endpoint_url, region_name=self.local.region)
        records = [{"Data": one, "PartitionKey": f"key-{number % 7}"} for number, one in enumerate(data)]
        for at in range(0, len(records), 500):
            assert client.put_records(StreamName="orders", Records=records[at : at + 500])["FailedRecordCount"] == 0
        client.close()
        self.put_so_far += data
        self.local.clock.advance(3.0)

    def delete_stream(self, name: str = "orders") -> None:
        import boto3

        client = boto3.client("kinesis", endpoint_url=self.local.endpoint_url, region_name=self.local.region)
        client.delete_stream(StreamName=name)
        client.close()
        self.local.clock.advance(60.0)

    def write(self, text: str) -> Path:
        path = self.folder / "job.toml"
        values = {"folder": self.folder, "region": self.local.region, "endpoint": self.local.endpoint_url}
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, text: str, *, stopping: Stopping | None = None, on_event: Any = None) -> Ended:
        out, errors = io.StringIO(), io.StringIO()
        show = RunOutput(as_json=True, out=out, errors=errors)
        job_file = load_job(self.write(text), {})
        try:
            code = run_job(self.spark, job_file, stopping or Stopping(), show, on_event)
        except JobFileError as error:
            code = ExitCode.WRONG_JOB
            show.wrong(error.faults, code)
        except StepError as error:
            code = error.code
            show.wrong([str(error)], code, error.step)
        return Ended(code, [json.loads(line) for line in out.getvalue().splitlines()], errors.getvalue())

    def rows(self, folder: str, *columns: str) -> list[tuple[Any, ...]]:
        """What any reader of Parquet finds, sorted."""
        path = self.folder / folder
        if not path.exists():
            return []
        table = ds.dataset(path, partitioning="hive").to_table(columns=list(columns))
        return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True), key=str)

    def forget_last_commit(self) -> None:
        """Spark then runs the newest batch again, as after a crash."""
        commits = self.folder / "checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)


def order(number: int, amount: int | str = 1) -> bytes:
    return json.dumps({"order_id": f"order-{number}", "amount": amount}).encode()


@contextmanager
def no_file_longer_than(spark: SparkSession, bytes_max: int) -> Iterator[None]:
    """A limit on what Spark's Java can write into one file: as a full disk, the write fails half-way."""
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # a session that runs has one
    soft, hard = resource.prlimit(java, resource.RLIMIT_FSIZE)
    resource.prlimit(java, resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, (soft, hard))
