"""The public names are a short list, changed only together with this one. And importing stays cheap."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PUBLIC = {
    "penstock": [
        "AccessDeniedError",
        "AggregateError",
        "AnyOrder",
        "AssignedShard",
        "Batch",
        "BufferFullError",
        "ByKey",
        "ByThroughput",
        "CheckpointError",
        "Collection",
        "ConditionFailedError",
        "Consumer",
        "ConsumerSnapshot",
        "ConsumerStatistics",
        "Credentials",
        "CredentialsError",
        "DataLossError",
        "DeadLetters",
        "DeadLettersTo",
        "DeadLettersToFile",
        "DeadLettersToStream",
        "Deduplicate",
        "Delivered",
        "EqualCounts",
        "Every",
        "ExpiredIteratorError",
        "FanOutTimes",
        "Fixed",
        "FlushTimeoutError",
        "FoundPending",
        "GiveUp",
        "HandOut",
        "InOrder",
        "InvalidArgumentError",
        "InvalidRecordError",
        "LeaseTableOptions",
        "LedgerSettings",
        "Letter",
        "MemoryLeaseTable",
        "MetricsOptions",
        "NotFoundError",
        "OneByOne",
        "OptionError",
        "Origin",
        "OutRecord",
        "OutsidePolicy",
        "Part",
        "PendingCheckpoint",
        "PendingChoice",
        "PenstockError",
        "PollTimes",
        "Position",
        "PostgresLeaseTable",
        "Producer",
        "ProducerClosedError",
        "ProducerOptions",
        "ProducerSnapshot",
        "Prompt",
        "PutError",
        "PutHandle",
        "PutResult",
        "Puts",
        "Record",
        "RecordExpiredError",
        "RecordRefusedError",
        "RecordWithdrawnError",
        "Redeliver",
        "Retry",
        "Riding",
        "ServiceError",
        "Shard",
        "ShardReadError",
        "ShardStatistics",
        "ShardStoppedError",
        "Skip",
        "SqliteLeaseTable",
        "StalledError",
        "StartAt",
        "Stop",
        "StreamName",
        "SyncConsumer",
        "SyncProducer",
        "SyncPutHandle",
        "SyncPuts",
        "SyncShard",
        "ThrottledError",
        "TransportError",
        "UnavailableError",
        "Unordered",
        "Unreadable",
        "UnreadableRecordError",
        "Unwritten",
        "Warn",
        "WireSettings",
        "WorkerSettings",
        "__version__",
        "by_key",
        "log_events",
        "unordered",
    ],
    "penstock.deserializers": ["json", "msgpack", "protobuf", "text"],
    "penstock.inspect": [
        "ApplicationFound",
        "ApplicationReport",
        "ApplicationView",
        "ApplicationsReport",
        "ConsumerView",
        "HeatReport",
        "HotKey",
        "Inspector",
        "Judged",
        "LagReport",
        "LagTimes",
        "LeaseView",
        "Look",
        "Missing",
        "PositionView",
        "PositionsReport",
        "PositionsSource",
        "ShardHeat",
        "ShardLag",
        "ShardLimits",
        "ShardView",
        "State",
        "Store",
        "StreamFound",
        "StreamReport",
        "StreamView",
        "StreamsReport",
        "TableView",
        "WorkerView",
        "judge",
    ],
    "penstock.pipeline": [
        "ALL_COLUMNS",
        "BatchFolder",
        "DeltaSink",
        "IcebergSink",
        "MetricsListener",
        "POSITION",
        "ParquetFolder",
        "StreamMetrics",
        "decode_bytes",
        "decode_json",
        "decode_text",
        "deduplicate",
        "delta_settings",
        "drop_repeats",
        "explain_json",
        "late_rows",
        "observed",
        "open_stamps",
        "position_order",
        "read_once",
        "sort_by_key",
        "split",
        "stream_metrics",
    ],
    "penstock.pipeline.job": [
        "Delivery",
        "ExitCode",
        "Job",
        "JobFile",
        "JobFileError",
        "deliveries",
        "job_schema",
        "load_job",
        "run_file",
    ],
    "penstock.telemetry": [
        "CloudWatchChoice",
        "CloudWatchExporter",
        "EmfExporter",
        "OpenTelemetryExporter",
        "OtlpExporter",
        "PrometheusCollector",
        "PrometheusExporter",
        "together",
    ],
    "penstock.testing": [
        "DeadlockError",
        "Fault",
        "FaultPlan",
        "LocalKinesis",
        "MemoryStream",
        "RealInputOutputError",
        "Report",
        "Simulator",
        "SpawnedKinesis",
        "SyncTestConsumer",
        "TestConsumer",
        "UnsettledError",
        "VirtualLoop",
        "VirtualTime",
        "records_of_file",
    ],
    "pyspark_penstock": ["DefaultSource"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(found.__all__) == PUBLIC[module]
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_dir_lists_the_public_names() -> None:
    import penstock

    assert dir(penstock) == sorted(PUBLIC["penstock"])


def test_an_unknown_name_is_an_attribute_error() -> None:
    import penstock

    with pytest.raises(AttributeError, match="no attribute 'Recrod'"):
        penstock.Recrod  # noqa: B018 - looking it up is the test


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_docstrings(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in found.__all__ if name[0] != "_" and not getattr(found, name).__doc__] == []


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after one statement."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_penstock_imports_nothing_heavy() -> None:
    loaded = modules_after("import penstock")
    assert "penstock" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "msgspec", "pandas", "pyarrow", "asyncio"})


def test_using_a_record_imports_no_client_and_no_spark() -> None:
    loaded = modules_after("from penstock import Record, DataLossError")
    assert "penstock.model" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "pandas", "pyarrow"})


def test_importing_the_test_kit_imports_no_server() -> None:
    loaded = modules_after("import penstock.testing, penstock.testing.pytest_plugin")
    assert "penstock.testing" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "httptools", "penstock.local"})


def test_one_version() -> None:
    import penstock

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == penstock.__version__
