"""Scenes with a real table in one Spark of a process of its own; what each found goes to a file as JSON.

Run by test_tables_real.py: ``table_scenes.py delta|iceberg PACKAGE FOLDER``.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from shardway.errors import OptionError
from shardway.pipeline import DeltaSink, IcebergSink, delta_settings
from shardway.pipeline.tables import delta
from tests.pipeline.failing import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",  # by default 50 tasks for each look at a table
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
    "spark.driver.memory": "1g",
}
ICEBERG = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
}
DDL = "id BIGINT, kind STRING, at TIMESTAMP"


class Scene:
    """A table, streams of files into it, and what it holds. Each scene has names of its own."""

    def __init__(self, spark: SparkSession, kind: str, folder: Path, name: str) -> None:
        self.spark = spark
        self.kind = kind
        self.folder = folder / name
        self.folder.mkdir()
        self.name = f"lake.shop.{name}" if kind == "iceberg" else name
        self.path = str(self.folder / "table")

    def sink(self, **given: Any) -> DeltaSink | IcebergSink:
        if self.kind == "iceberg":
            return IcebergSink(self.name, **given)
        return DeltaSink(self.path, **given)

    def add(self, first: int, last: int, stream: str = "in", *, columns: tuple[str, ...] = ()) -> None:
        """A file: one batch, of two tasks or more."""
        at = fn.timestamp_seconds(fn.lit(1795255200) + fn.col("id") * 1200)
        rows = self.spark.range(first, last).select(
            "id", fn.concat(fn.lit("kind-"), fn.col("id") % 2).alias("kind"), at.alias("at")
        )
        for name in columns:
            rows = rows.withColumn(name, fn.lit(name))
        rows.coalesce(1).write.mode("append").json(str(self.folder / stream))

    def run(
        self, write: Callable[[DataFrame, int], object], stream: str = "in", *, ddl: str = DDL, checkpoint: str = ""
    ) -> str:
        """A query over all files that are there, in its checkpoint directory; what it failed of."""
        source = self.spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).json(str(self.folder / stream))
        return failure(source, write, self.folder / (checkpoint or f"checkpoint-{stream}"))

    def forget(self, *numbers: int, offsets: bool = False, stream: str = "in") -> None:
        """Take entries out of the checkpoint directory: as if the driver had died before it wrote them."""
        for number in numbers:
            for part in ("commits", "offsets") if offsets else ("commits",):
                for name in (f"{number}", f".{number}.crc"):
                    (self.folder / f"checkpoint-{stream}" / part / name).unlink(missing_ok=True)

    def table(self) -> DataFrame:
        self.spark.catalog.clearCache()
        if self.kind == "iceberg":
            self.spark.sql(f"REFRESH TABLE {self.name}")
            return self.spark.table(self.name)
        return self.spark.read.format("delta").load(self.path)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.table().collect())

    def commits(self) -> int:
        """How many commits with rows the table has."""
        if self.kind == "iceberg":
            said = self.spark.sql(f"SELECT summary['added-records'] AS n FROM {self.name}.snapshots").collect()
            return sum(int(row["n"] or 0) > 0 for row in said)
        said = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.path}`").select("operation").collect()
        return sum(row["operation"] == "WRITE" for row in said)


def appended_by_partition(scene: Scene) -> dict[str, Any]:
    """Partitions, also by the hour; and a restart goes on where the former run ended."""
    scene.add(0, 6)
    partitions = {"partition_by": ["hour", "kind"], "time": "at"}
    failed = [scene.run(scene.sink(**partitions).write)]
    scene.add(6, 9)
    written: list[bool] = []
    sink = scene.sink(**partitions)
    failed.append(scene.run(lambda batch, number: written.append(sink.write(batch, number))))
    table = scene.table()
    hours = sorted({(row["hour"], row["kind"]) for row in table.select("hour", "kind").collect()})
    if scene.kind == "iceberg":
        spec = scene.spark.sql(f"SELECT DISTINCT partition FROM {scene.name}.files").collect()
        folders = len(spec)
    else:
        folders = len(list(Path(scene.path).glob("hour=*/kind=*")))
    return {"failed": failed, "ids": scene.ids(), "hours": hours, "folders": folders, "written": written}


def repeated(scene: Scene) -> dict[str, Any]:
    """The newest batch runs again, also after other programs' commits and the table's own upkeep."""
    scene.add(0, 4)
    scene.add(4, 8)
    failed = [scene.run(scene.sink().write)]
    before = scene.commits()
    written: list[bool] = []

    def again() -> None:
        scene.forget(1)
        sink = scene.sink()
        failed.append(scene.run(lambda batch, number: written.append(sink.write(batch, number))))

    again()
    after = scene.commits()
    other = scene.table().limit(0).unionByName(scene.spark.range(100, 102).selectExpr("id", "'other' kind", "null at"))
    if scene.kind == "iceberg":
        other.writeTo(scene.name).append()
        scene.spark.sql(
            f"CALL lake.system.rewrite_data_files(table => '{scene.name}', options => map('rewrite-all', 'true'))"
        )
    else:
        other.write.format("delta").mode("append").save(scene.path)
        scene.spark.sql(f"OPTIMIZE delta.`{scene.path}`")
    again()
    scene.add(8, 10)
    again()
    return {"failed": failed, "ids": scene.ids(), "grown": after - before, "written": written}


def an_older_one_again(scene: Scene) -> dict[str, Any]:
    """The checkpoint is a copy from before: batches that the table has run again, the older one first."""
    for first in range(0, 9, 3):
        scene.add(first, first + 3)
    failed = [scene.run(scene.sink().write)]
    before = scene.commits()
    scene.forget(1, 2)
    scene.forget(2, offsets=True)
    written: list[bool] = []
    sink = scene.sink()
    failed.append(scene.run(lambda batch, number: written.append(sink.write(batch, number))))
    return {"failed": failed, "ids": scene.ids(), "grown": scene.commits() - before, "written": written}


def broken_off(scene: Scene) -> dict[str, Any]:
    """A task fails when others have written their files; then it goes well."""
    scene.add(0, 3)
    scene.run(scene.sink().write)
    scene.add(10, 20)

    def failing(batch: DataFrame, number: int) -> None:
        last = fn.col("id") == 19
        broken = batch.repartition(5, "id").withColumn(
            "id", fn.when(last, fn.raise_error(fn.lit("half-way")).cast("bigint")).otherwise(fn.col("id"))
        )
        scene.sink().write(broken, number)

    failed = scene.run(failing)
    between = scene.ids()
    again = scene.run(scene.sink().write)
    return {"failed": "half-way" in failed, "between": between, "again": again, "ids": scene.ids()}


def two_pipelines(scene: Scene) -> dict[str, Any]:
    """Two queries make one table and append to it at the same time; then each repeats its last batch."""
    for number in range(3):
        scene.add(number * 10, number * 10 + 5, "one")
        scene.add(1000 + number * 10, 1000 + number * 10 + 5, "two")
    failed: list[str] = []

    def both() -> None:
        started = threading.Barrier(2)

        def pipeline(stream: str) -> None:
            sink, first = scene.sink(), True

            def write(batch: DataFrame, number: int) -> None:
                nonlocal first
                if first:
                    first = False
                    started.wait(60)
                sink.write(batch, number)

            failed.append(scene.run(write, stream))

        threads = [threading.Thread(target=pipeline, args=(stream,)) for stream in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    both()
    scene.forget(2, stream="one")
    scene.forget(2, stream="two")
    both()
    return {"failed": failed, "ids": scene.ids()}


def new_columns(scene: Scene) -> dict[str, Any]:
    """A column that the table has not: refused, unless the format's options allow it."""
    scene.add(0, 3)
    scene.run(scene.sink().write)
    scene.add(3, 6, columns=("colour",))
    wider = DDL + ", colour STRING"
    refused = scene.run(scene.sink().write, ddl=wider)
    between = scene.ids()
    if scene.kind == "iceberg":
        scene.spark.sql(f"ALTER TABLE {scene.name} SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')")
        options = {"merge-schema": "true", "check-ordering": "false"}
    else:
        options = {"mergeSchema": "true"}
    taken = scene.run(scene.sink(options=options).write, ddl=wider)
    colours = sorted(str(row["colour"]) for row in scene.table().select("colour").collect())
    return {"refused": bool(refused), "between": between, "taken": taken, "ids": scene.ids(), "colours": colours}


def two_writes_of_a_batch(scene: Scene) -> dict[str, Any]:
    """Under one name the second is an error, not the same batch again; under two both are there, once."""
    scene.add(0, 4)

    def twice(batch: DataFrame, number: int) -> None:
        scene.sink().write(batch.where("id < 2"), number)
        scene.sink().write(batch.where("id >= 2"), number)

    refused = scene.run(twice, checkpoint="checkpoint-refused")
    refused_ids = scene.ids()

    def named(batch: DataFrame, number: int) -> None:
        scene.sink(writer="low").write(batch.where("id < 2"), number)
        scene.sink(writer="high").write(batch.where("id >= 2"), number)

    failed = [scene.run(named)]
    scene.forget(0)
    failed.append(scene.run(named))
    return {"refused": refused, "refused_ids": refused_ids, "failed": failed, "ids": scene.ids()}


def by_hand(scene: Scene) -> dict[str, Any]:
    """Outside of a query: by the writer's name and the number alone."""
    rows = scene.spark.range(2)
    try:
        scene.sink().write(rows, 0)
        unnamed = ""
    except OptionError as error:
        unnamed = str(error)
    written = [scene.sink(writer="me").write(rows, number) for number in (0, 0, 2, 2, 0)]
    try:
        scene.sink(writer="me").write(rows, 1)
        older = ""
    except OptionError as error:
        older = str(error)
    return {"unnamed": unnamed, "written": written, "older": older, "ids": scene.ids()}


def _note(written: list[Any], sink: DeltaSink, batch: DataFrame, number: int) -> None:
    written.append(sink.write(batch, number))


def of_the_catalog(scene: Scene) -> dict[str, Any]:
    """Delta: a table by name, whose first batch makes it; partitioned, and that batch runs again."""
    scene.add(0, 4)
    name = f"{scene.name}_by_name"
    written: list[Any] = []
    failed = []
    for _ in range(2):
        sink = DeltaSink(table=name, partition_by=["kind"])
        failed.append(scene.run(partial(_note, written, sink)))
        scene.forget(0)
    ids = sorted(row["id"] for row in scene.spark.table(name).collect())
    return {"failed": failed, "written": written, "ids": ids}


def two_drivers(scene: Scene) -> dict[str, Any]:
    """Delta: one that was paused writes a batch that another has written meanwhile. Delta refuses it by itself."""
    rows = scene.spark.range(2)
    paused, other = scene.sink(writer="me"), scene.sink(writer="me")
    paused.write(rows, 0)
    other.write(rows, 1)
    paused.write(rows, 1)
    return {"ids": scene.ids()}


def others_commits(scene: Scene, count: int) -> None:
    for _ in range(count):
        other = scene.spark.range(100, 101).selectExpr("id", "'other' kind", "cast(null as timestamp) at")
        if scene.kind == "iceberg":
            other.writeTo(scene.name).append()
        else:
            other.write.format("delta").mode("append").save(scene.path)


def without_history(scene: Scene) -> None:
    """Delta: a checkpoint of the log, and nothing before it, as the table's own clean-up leaves it after 30 days."""
    log = scene.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    others_commits(scene, 1)
    table = log.forTableWithSnapshot(scene.spark._jsparkSession, scene.path)._1()
    table.checkpoint()
    commits = sorted((Path(scene.path) / "_delta_log").glob("*.json"))
    for entry in commits[:-1]:
        entry.unlink()
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    log.clearCache()


def set_back(scene: Scene) -> dict[str, Any]:
    """Delta: the history no longer has the commits of a checkpoint directory that is a copy from before."""
    for first in (0, 3, 6):
        scene.add(first, first + 3)
    failed = [scene.run(scene.sink().write)]
    without_history(scene)
    written: list[bool] = []
    sink = scene.sink()
    scene.forget(2)  # the newest one again, as it was: a kill, and others' commits before the next start
    failed.append(scene.run(lambda batch, number: written.append(sink.write(batch, number))))
    scene.forget(2, offsets=True)  # the newest one is planned anew
    newest = scene.run(scene.sink().write)
    scene.forget(1, 2, offsets=True)
    older = scene.run(scene.sink().write)
    between = scene.ids()
    failed.append(scene.run(scene.sink().write, checkpoint="checkpoint-new"))
    return {
        "failed": failed, "written": written, "newest": newest, "older": older, "between": between, "ids": scene.ids(),
    }  # fmt: skip


def set_back_behind_many_commits(scene: Scene) -> dict[str, Any]:
    """Delta: as ``set_back``, where the commits are there and lie behind too many others to be looked at."""
    for first in (0, 3, 6):
        scene.add(first, first + 3)
    failed = [scene.run(scene.sink().write)]
    others_commits(scene, 3)
    looked, delta.HISTORY_MAX = delta.HISTORY_MAX, 2
    try:
        scene.forget(1, 2, offsets=True)
        stopped = scene.run(scene.sink().write)
        failed.append(scene.run(scene.sink().write, checkpoint="checkpoint-new"))
    finally:
        delta.HISTORY_MAX = looked
    return {"failed": failed, "stopped": stopped, "ids": scene.ids()}


def set_back_where_delta_cannot_be_asked(scene: Scene) -> dict[str, Any]:
    """Delta: where its classes are not those that are known here, what it left out is seen after the write."""

    def not_there(*_: Any) -> Any:
        raise TypeError("'JavaPackage' object is not callable")

    asked, delta._state_of = delta._state_of, not_there  # type: ignore[assignment]  # until it is put back
    try:
        for first in (0, 3, 6):
            scene.add(first, first + 3)
        failed = [scene.run(scene.sink().write)]
        without_history(scene)
        scene.forget(1, 2, offsets=True)
        stopped = scene.run(scene.sink().write)
        between = scene.ids()
        failed.append(scene.run(scene.sink().write, checkpoint="checkpoint-new"))
    finally:
        delta._state_of = asked
    return {"failed": failed, "stopped": stopped, "between": between, "ids": scene.ids()}


def forgotten_writer(scene: Scene) -> dict[str, Any]:
    """Delta: the table forgets writers after a while, and its history begins after the batch was begun."""
    scene.add(0, 3)
    failed = [scene.run(scene.sink().write)]
    forgets = "SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 0 seconds')"
    scene.spark.sql(f"ALTER TABLE delta.`{scene.path}` {forgets}")
    without_history(scene)
    scene.forget(0)
    stopped = scene.run(scene.sink().write)
    between = scene.ids()
    failed.append(scene.run(scene.sink().write, checkpoint="checkpoint-new"))
    return {"failed": failed, "stopped": stopped, "between": between, "ids": scene.ids()}


def set_back_and_expired(scene: Scene) -> dict[str, Any]:
    """Iceberg: a snapshot of the query that is left tells; where none is left rows come twice, and none is lost."""
    for first in (0, 3, 6):
        scene.add(first, first + 3)
    failed = [scene.run(scene.sink().write)]
    expire = f"CALL lake.system.expire_snapshots(table => '{scene.name}', older_than => current_timestamp(), "
    scene.spark.sql(expire + "retain_last => 1)")
    scene.forget(1, 2, offsets=True)
    stopped = scene.run(scene.sink().write)
    between = scene.ids()
    others_commits(scene, 1)
    scene.spark.sql(expire + "retain_last => 1)")
    scene.forget(1, 2, offsets=True)
    failed.append(scene.run(scene.sink().write))
    return {"failed": failed, "stopped": stopped, "between": between, "ids": scene.ids()}


def expired(scene: Scene) -> dict[str, Any]:
    """Iceberg: the snapshots from the batch's time are gone: it stops; a new query goes on."""
    scene.add(0, 4)
    failed = [scene.run(scene.sink().write)]
    scene.spark.range(100, 101).selectExpr("id", "'other' kind", "cast(null as timestamp) at").writeTo(
        scene.name
    ).append()
    older = "older_than => current_timestamp(), retain_last => 1"
    scene.spark.sql(f"CALL lake.system.expire_snapshots(table => '{scene.name}', {older})")
    scene.forget(0)
    stopped = scene.run(scene.sink().write)
    between = scene.ids()
    failed.append(scene.run(scene.sink().write, checkpoint="checkpoint-new"))
    return {"failed": failed, "stopped": stopped, "between": between, "ids": scene.ids()}


def rolled_back(scene: Scene) -> dict[str, Any]:
    """Iceberg: a batch that a rollback took out of the table is written when it runs again."""
    scene.add(0, 3)
    scene.add(3, 6)
    failed = [scene.run(scene.sink().write)]
    first = scene.spark.sql(f"SELECT snapshot_id FROM {scene.name}.snapshots WHERE summary['shardway.batch'] = '0'")
    scene.spark.sql(f"CALL lake.system.rollback_to_snapshot('{scene.name}', {first.collect()[0][0]})")
    between = scene.ids()
    scene.forget(1)
    failed.append(scene.run(scene.sink().write))
    return {"failed": failed, "between": between, "ids": scene.ids()}


BOTH = (
    appended_by_partition, repeated, an_older_one_again, broken_off, two_pipelines, new_columns,
    two_writes_of_a_batch, by_hand,
)  # fmt: skip
OF = {
    "delta": (
        *BOTH, of_the_catalog, two_drivers, set_back, set_back_behind_many_commits,
        set_back_where_delta_cannot_be_asked, forgotten_writer,
    ),
    "iceberg": (*BOTH, expired, rolled_back, set_back_and_expired),
}  # fmt: skip


def main(kind: str, package: str, place: str, *only: str) -> None:
    folder = Path(place)
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", package)
    more = delta_settings() if kind == "delta" else ICEBERG
    more |= {"spark.sql.catalog.lake.warehouse": str(folder / "warehouse")} if kind == "iceberg" else {}
    more |= {"spark.sql.warehouse.dir": str(folder / "spark-warehouse")}
    for name, value in {**SETTINGS, **more}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found: dict[str, Any] = {"spark": spark.version}
    for scene in OF[kind]:
        if only and scene.__name__ not in only:
            continue
        try:
            found[scene.__name__] = scene(Scene(spark, kind, folder, scene.__name__))
        except Exception:
            found[scene.__name__] = {"raised": traceback.format_exc()}
        (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
