"""Start the Spark session of a job, and choose the store of its state."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from shardway.pipeline.hadoop_files import LocalFiles
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.model import as_options
from shardway.pipeline.job.functions import file_to_send
from shardway.pipeline.job.session.java import java_version, start_java, why_java_ended
from shardway.pipeline.job.session.packages import OPTIONS, packages_named, spark_home
from shardway.pipeline.job.session.repositories import with_repositories
from shardway.pipeline.job.session.state_store import set_state_store
from shardway.pipeline.job.sinks.table_sinks import with_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.run.stream_check import StreamCheck


_OVER_CONNECT = (
    "a job runs in Spark's own process, not over Spark Connect: take SPARK_REMOTE out of the environment, and "
    "spark.remote and spark.api.mode out of [spark]; from a Connect client use the functions of shardway.pipeline"
)
_REDACTED_NAMES = "(?i)url|secret|password|token|access[.]?key"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_IN_THREADS = re.compile(r"local(\[.*\])?")
_LOCAL = {
    "spark.ui.showConsoleProgress": "false",
    # PySpark would tell the JVM for each call from which line of Python it comes, at several questions each; the line
    # stands in what a job's message leaves out.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_UI_HOST, _LOOPBACK = "SPARK_LOCAL_IP", "127.0.0.1"
_UI_ENABLED = "spark.ui.enabled"
_ADDRESSES = ("spark.driver.host", "spark.driver.bindAddress")
_LOG4J = os.path.join(os.path.dirname(__file__), "log4j2.properties")
_LOG4J_FILE = "LOG4J_CONFIGURATION_FILE"
"""The variable that gives log4j its configuration."""
_JAVA_OPTIONS = ("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)
"""Spark's class that writes checkpoints through Hadoop's older interface: its name since Spark 4.1, and before."""


def submitted() -> bool:
    """True under spark-submit, which has started Spark's JVM by now, with settings of its own."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def session_of(job_file: JobFile, *, log_level: str | None, check: StreamCheck) -> SparkSession:
    """Start Spark, or take the session that is there. Without a master it runs in this machine's threads.

    Raises StepError (NOT_READY) when Spark cannot start, and at once the mistake that ``check`` finds.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    job = job_file.job
    settings = as_options(job.spark)
    remote = "SPARK_REMOTE" in os.environ or "spark.remote" in settings or is_remote()
    if remote or settings.get("spark.api.mode", "classic") != "classic":
        raise StepError(_OVER_CONNECT, step="spark", code=ExitCode.NOT_READY)
    for name in ("spark.sql.redaction.options.regex", "spark.redaction.regex"):
        if job_file.secrets.options and name not in settings:
            hidden = "|".join(sorted(re.escape(option) for option in job_file.secrets.options))
            settings[name] = f"{_REDACTED_NAMES}|{hidden}"
    try:
        if submitted():
            SparkContext._ensure_initialized()
            given = SparkConf()
            settings = {name: value for name, value in with_tables(job, settings).items() if not given.contains(name)}
        else:
            settings = {**_LOCAL, **with_tables(job, settings)}
            if not _master_of(settings):
                settings["spark.master"] = "local[*]"
            _keep_to_loopback(settings)
            settings = with_repositories(with_quiet_start(settings))
            if log_level is not None:
                settings.setdefault("spark.log.level", log_level)
        settings = {"spark.app.name": job.name, **settings}
        start_java(settings, check)
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        check.raise_mistake()
    except StepError:
        raise
    except Exception as error:
        raise StepError(_start_error(job_file, error), step="spark", code=ExitCode.NOT_READY) from error
    if log_level is not None:
        spark.sparkContext.setLogLevel(log_level)
    least_work(spark, job.checkpoint)
    set_state_store(spark, job)
    _send_modules(spark, job_file)
    return spark


def _keep_to_loopback(settings: dict[str, str]) -> None:
    """Keep Spark's pages from other machines, because a visitor of them can end the job. Where the environment, Spark's
    files or the job has an address for them, that address stays.

    Where Spark runs in threads, its pages listen on the loopback address. Where it has executors, it has no pages:
    Spark takes their address from one environment variable, and that also says where executors find the driver.
    """
    if _UI_HOST in os.environ or SparkContext._gateway is not None:
        return
    if _IN_THREADS.fullmatch(_master_of(settings)) is None:
        settings.setdefault(_UI_ENABLED, "false")
    elif not any(name in settings for name in _ADDRESSES):
        os.environ[_UI_HOST] = _LOOPBACK


def with_quiet_start(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings, with a configuration of log4j that keeps Java silent about its start.

    They stay as they are where the job, the environment or Spark's files have a configuration of log4j, or have options
    of Java that this one would replace.
    """
    home = os.environ.get("SPARK_CONF_DIR") or os.path.join(spark_home(), "conf")
    with suppress(OSError):
        if any(name.startswith("log4j2.") and not name.endswith(".template") for name in os.listdir(home)):
            return dict(settings)
    defaults = ""
    with suppress(OSError), open(os.path.join(home, "spark-defaults.conf"), encoding="utf-8", errors="replace") as file:
        defaults = file.read()
    given = " ".join([*(os.environ.get(name, "") for name in _JAVA_OPTIONS), settings.get(OPTIONS, "")])
    # Java's options are split at spaces.
    if "log4j" in given or OPTIONS in f"{given} {defaults}" or "--driver-java-options" in given or " " in _LOG4J:
        return dict(settings)
    if _LOG4J_FILE in os.environ:
        return dict(settings)
    return {**settings, OPTIONS: f"{settings.get(OPTIONS, '')} -Dlog4j2.configurationFile={_LOG4J}".strip()}


def in_threads(spark: SparkSession) -> bool:
    """True where driver and executors are threads of one process."""
    return _IN_THREADS.fullmatch(spark.sparkContext.master or "") is not None


def least_work(spark: SparkSession, checkpoint: str) -> None:
    """Make settings that let a batch cost less and promise the same, where the job and Spark's files say nothing."""
    _few_partitions(spark)
    _few_programs(spark, checkpoint)


def _few_partitions(spark: SparkSession) -> None:
    """Give a shuffle a partition for each thread, where Spark runs in this machine's threads: Spark's own 200 would
    each be a task, and a state to load and to store, in every batch. A checkpoint directory keeps the number that it
    began with.
    """
    context = spark.sparkContext
    if in_threads(spark) and not context.getConf().contains(_SHUFFLE_PARTITIONS):
        spark.conf.set(_SHUFFLE_PARTITIONS, str(context.defaultParallelism))


def _few_programs(spark: SparkSession, checkpoint: str) -> None:
    """Write a checkpoint directory on this machine's disks through Hadoop's older interface. With the newer one
    each file of it takes eight runs of ``readlink`` beside the two of ``chmod``, and a batch with a state writes four
    files and more. Both write beside the file, look whether it is there, and rename; elsewhere Spark's choice stays.
    """
    if spark.sparkContext.getConf().contains(_CHECKPOINT_FILES) or LocalFiles(spark).local(checkpoint) is None:
        return
    there = [name for name in _BY_FILE_SYSTEM if type(getattr(spark._jvm, name)).__name__ == "JavaClass"]
    if there:
        spark.conf.set(_CHECKPOINT_FILES, there[0])


def _master_of(settings: Mapping[str, str]) -> str:
    """Return the master that is given; an empty text where none is."""
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return settings.get("spark.master", arguments if "--master" in arguments else "")


def _start_error(job_file: JobFile, error: Exception) -> str:
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        named = packages_named(job_file.job.spark)
        return job_file.secrets.hide(why_java_ended(java_version(), named))
    return f"Spark cannot start: {job_file.error_text(error)}"


def _send_modules(spark: SparkSession, job_file: JobFile) -> None:
    """Send modules beside the job file to the executors: functions that they define may run there."""
    job = job_file.job
    functions: list[Any] = [sink.function for sink in job.sinks] + [job.transform.function if job.transform else None]
    files = {file_to_send(name, job_file.folder) for name in functions if name is not None}
    for file in sorted(str(file) for file in files if file is not None):
        spark.sparkContext.addPyFile(file)
