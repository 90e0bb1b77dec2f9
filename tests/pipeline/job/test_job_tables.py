"""Tables of Delta and Iceberg in job files: what the check says of them, and of the packages that Spark needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline import delta_settings
from shardway.pipeline.job import ExitCode, JobFileError, load_job, run_file
from shardway.pipeline.job.file.model import Job, Sink
from shardway.pipeline.job.session import packages
from shardway.pipeline.job.session.packages import TABLE_PACKAGES, Spark
from shardway.pipeline.job.sinks.delivery import deliveries
from shardway.pipeline.job.sinks.table_sinks import with_tables
from tests.pipeline.job.job_files import GOOD
from tests.pipeline.job.job_running import HEAD, ONCE, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
SINK = 'format = "parquet"\npath = "lake/orders"\n'
DELTA_42 = "io.delta:delta-spark_4.2_2.13:4.4.0"
ICEBERG_41 = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def faults(path: Path) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        load_job(path, {})
    return [fault.split(":", 1)[1] for fault in caught.value.faults]


NO_TABLE = 'table is missing: a table of a catalog, which stands under [spark] as "spark.sql.catalog.NAME"'
ITS_OWN = "is set by the sink itself: it is what makes a batch known again"
NUMBER = "snapshot-property.shardway.batch"


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ('format = "delta"', "15: sinks[0]: path or table is missing: where the Delta table is"),
        ('format = "iceberg"', f"15: sinks[0]: {NO_TABLE}"),
        ('format = "iceberg"\npath = "lake"', f"17: sinks[0].path: {NO_TABLE}"),
        ('format = "delta"\ntable = "a"\npath = "b"', "17: sinks[0].table: is given beside path: give one of them"),
        ('format = "delta"\npath = "a"\nkey = "id"', "18: sinks[0].key: has no meaning for delta a"),
        (
            'format = "delta"\npath = "a"\noptions = {txnVersion = 1}',
            f"18: sinks[0].options.txnVersion: {ITS_OWN}",
        ),
        (
            f'format = "iceberg"\ntable = "a.b"\noptions = {{"{NUMBER}" = 1}}',
            f"18: sinks[0].options.{NUMBER}: {ITS_OWN}",
        ),
        (
            'format = "iceberg"\ntable = "a.b"\n[[sinks]]\nformat = "iceberg"\ntable = "a.b"',
            "20: sinks[1].table: is the same as sinks[0].table: each needs a place of its own",
        ),
        (
            'format = "iceberg"\ntable = "a.b"\n[[sinks]]\nformat = "iceberg"\ntable = "`a`. b"',
            "20: sinks[1].table: is the same as sinks[0].table: each needs a place of its own",
        ),
        (
            'format = "delta"\npath = "a"\n[[sinks]]\nformat = "delta"\npath = "./a/"',
            "20: sinks[1].path: is the same as sinks[0].path: each needs a place of its own",
        ),
    ],
)
def test_what_is_wrong_with_a_table(write_job: Callable[[str], Path], sink: str, told: str) -> None:
    assert faults(write_job(GOOD.replace(SINK, sink + "\n"))) == [told]


def job_of(sink: Sink, **spark: str | int | float | bool) -> Job:
    return Job(name="job", checkpoint="c", source={"streamName": "orders"}, sinks=(sink,), spark=spark)


def test_the_check_names_the_package_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setattr(packages, "local_versions", lambda: Spark("4.2.1", "2.13"))
    (delivery,) = deliveries(job_of(Sink(format="delta", path="lake")))
    assert delivery.note == (
        f"Spark needs its package, which is not named here: give it {DELTA_42}, "
        'as "spark.jars.packages" under [spark] or with spark-submit --packages'
    )
    (delivery,) = deliveries(job_of(Sink(format="delta", path="lake"), **{"spark.jars.packages": DELTA_42}))
    assert delivery.note == ""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--packages {DELTA_42} pyspark-shell")
    assert deliveries(job_of(Sink(format="delta", path="lake")))[0].note == ""

    (delivery,) = deliveries(job_of(Sink(format="iceberg", table="a.b"), **{"spark.jars.packages": ICEBERG_41}))
    assert delivery.note == (
        "its package here is for Spark 4.1, and this is Spark 4.2.1: none is known for Spark 4.2; the newest is for "
        f'Spark 4.1: {ICEBERG_41}, as "spark.jars.packages" under [spark] or with spark-submit --packages'
    )


@pytest.mark.parametrize(
    ("sink", "versions", "pyspark"),
    [
        ('format = "delta"\npath = "lake"', "4.0, 4.1, 4.2", "pyspark<4.3"),
        ('format = "iceberg"\ntable = "lake.shop.orders"', "4.0, 4.1", "pyspark<4.2"),
    ],
)
def test_the_check_ends_where_a_spark_has_no_package(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sink: str,
    versions: str,
    pyspark: str,
) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setattr(packages, "local_versions", lambda: Spark("4.3.0", "2.13"))
    job = tmp_path / "job.toml"
    text = f'name = "a"\ncheckpoint = "c"\n[source]\nstreamName = "orders"\n[[sinks]]\n{sink}\n'
    job.write_text(text)
    assert run_file(job, check=True) == ExitCode.NOT_READY
    said = capsys.readouterr().err
    assert f"job.toml:6: sinks[0].format: {sink.split(chr(34))[1]} has no package for Spark 4.3" in said
    assert f'only for {versions}: pip install "{pyspark}"' in said
    job.write_text(text + '[spark]\n"spark.master" = "spark://elsewhere:7077"\n')
    assert run_file(job, check=True) == ExitCode.DONE, "a cluster has its packages from elsewhere"
    monkeypatch.setattr(packages, "local_versions", lambda: Spark("4.1.0", "2.13"))
    job.write_text(text)
    assert run_file(job, check=True) == ExitCode.DONE
    later = Spark("4.3.0", "2.13")
    given = {"spark.jars.packages": "io.delta:delta-spark_4.3_2.13:4.9.0"}
    assert packages.unpublished("delta", given, later) == "", "one that comes later is taken at its word"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/guides/first-pipeline.md",
        "docs/guides/pipeline.md",
        "docs/guides/deploy/README.md",
        "docs/reference/job.md",
    ],
)
def test_the_pages_name_the_newest_pyspark_that_both_formats_have_a_package_for(page: str) -> None:
    numbers = [{tuple(map(int, one.split("."))) for one in by_spark} for by_spark in TABLE_PACKAGES.values()]
    major, minor = max(set.intersection(*numbers))
    text = (ROOT / page).read_text()
    assert set(re.findall(r"pyspark<([\d.]*\d)", text)) == {f"{major}.{minor + 1}"}
    assert f"{major}.{minor}" in text


def test_packages_of_a_cluster_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    spark = Spark("4.1.4", "2.13")
    assert packages.missing("iceberg", {}, spark) != ""
    (tmp_path / "jars" / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar").touch()
    assert packages.missing("iceberg", {}, spark) == ""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"spark.jars.packages {DELTA_42}\n")
    assert packages.missing("delta", {}, Spark("4.2.0", "2.13")) == ""
    assert "its package here is for Spark 4.2" in packages.missing("delta", {}, spark)
    (tmp_path / "jars" / "scala-library-2.14.1.jar").touch()
    found = packages.local_versions()
    assert found is not None
    assert found.scala == "2.14"


def test_the_session_is_set_up_for_delta() -> None:
    delta, extensions = job_of(Sink(format="delta", path="lake")), "spark.sql.extensions"
    assert with_tables(delta, {"a": "b"}) == {"a": "b", **delta_settings()}
    own = with_tables(delta, {extensions: "com.example.Own", "spark.sql.catalog.spark_catalog": "com.example.Catalog"})
    assert own[extensions] == f"com.example.Own,{delta_settings()[extensions]}"
    assert own["spark.sql.catalog.spark_catalog"] == "com.example.Catalog"
    assert with_tables(delta, delta_settings()) == delta_settings()
    assert with_tables(job_of(Sink(format="iceberg", table="a.b")), {"a": "b"}) == {"a": "b"}


def test_a_run_without_the_package_is_one_message(spark: SparkSession, tmp_path: Path) -> None:
    with LocalKinesis(streams={"orders": 1}) as local:
        world = World(spark, local, tmp_path)
        for name, place in (("delta", 'path = "{folder}/lake"'), ("iceberg", 'table = "lake.shop.orders"')):
            ended = world.run(f'{HEAD}[[sinks]]\nformat = "{name}"\n{place}\n{ONCE}')
            assert ended.code is ExitCode.NOT_READY
            assert f"sinks[0].format: Spark finds no format {name}: " in ended.message
            newest = list(TABLE_PACKAGES[name].values())[-1].format(scala="2.13")
            assert newest in ended.message


def test_the_page_has_each_package() -> None:
    page = (ROOT / "docs" / "reference" / "job.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:io\.delta|org\.apache\.iceberg):[\w.:-]+)`", page))
    assert named == {one.format(scala="2.13") for by_spark in TABLE_PACKAGES.values() for one in by_spark.values()}


@pytest.mark.parametrize(("example", "package"), [("orders_delta", DELTA_42), ("orders_iceberg", ICEBERG_41)])
def test_the_examples_name_their_packages(example: str, package: str) -> None:
    path = ROOT / "examples" / "jobs" / f"{example}.toml"
    job = load_job(path, {"STREAM": "orders", "LAKE": "lake"}).job
    assert package in str(job.spark["spark.jars.packages"])
    assert [one.how for one in deliveries(job)] == ["exactly once"] * 2
