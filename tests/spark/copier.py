"""A job of its own process: copies a stream, stamped and in order per key, until it is killed or there is no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.processes import kill_tree

if TYPE_CHECKING:
    from penstock.local import LocalKinesis

SPARK = (
    "--master local[2] --driver-memory 512m --driver-java-options -XX:TieredStopAtLevel=1"
    " --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
    " --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1"
    " --conf spark.sql.session.timeZone=UTC pyspark-shell"
)
ROOT = Path(__file__).resolve().parents[2]
DONE_TIMEOUT_S = 240.0
POLL_S = 0.005


def copy(given: dict[str, Any]) -> None:
    """What the process does; it ends when all that is there is copied."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("copier").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    records = spark.readStream.format("penstock").options(**given["source"]).load()
    writer = records.writeStream.format("penstock").options(**given["target"])
    query = writer.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()


class Copier:
    """Starts the job, kills it, and lets it come to its end."""

    def __init__(self, local: LocalKinesis, folder: Path, **target: str) -> None:
        reach = {"region": local.region, "endpointUrl": local.endpoint_url}
        self._local = local
        self._log = folder / "copier.log"
        self._given = {
            "source": {
                **reach,
                "streamName": "orders",
                "startingPosition": "TRIM_HORIZON",
                "maxRecordsPerTrigger": "1000",
            },
            "target": {**reach, "streamName": "copy", "orderedByKey": "true", "stamps": "position", **target},
            "checkpoint": str(folder / "checkpoint"),
        }

    def killed_after(self, records: int) -> bool:
        """Runs until so many more records were written, then is killed. False: it came to its end before."""
        wanted = self._written() + records
        process = self._start()
        try:
            deadline_s = time.monotonic() + DONE_TIMEOUT_S
            while self._written() < wanted and process.poll() is None:
                assert time.monotonic() < deadline_s, f"the copier does not write: see {self._log}"
                time.sleep(POLL_S)
            if process.poll() is not None:
                self._check(process)
                return False
            return True
        finally:
            kill_tree(process)

    def finished(self) -> None:
        """Runs to its end."""
        process = self._start()
        try:
            process.wait(DONE_TIMEOUT_S)
            self._check(process)
        finally:
            kill_tree(process)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": SPARK,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        environment.pop("SPARK_HOME", None)
        environment.pop("PYSPARK_GATEWAY_PORT", None)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, __file__, json.dumps(self._given)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def _check(self, process: subprocess.Popen[bytes]) -> None:
        assert process.returncode == 0, self._log.read_text(errors="replace")[-4000:]

    def _written(self) -> int:
        return self._local.stats().records("PutRecords", "sink")


if __name__ == "__main__":
    copy(json.loads(sys.argv[1]))
