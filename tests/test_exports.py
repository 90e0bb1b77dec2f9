"""The public names are a short list, changed only together with this one. And importing stays cheap."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PUBLIC = {
    "shardway": [
        "AnyOrder",
        "AssignedShard",
        "Batch",
        "BufferFullError",
        "BufferOptions",
        "ByKey",
        "CheckpointError",
        "CheckpointOptions",
        "Collection",
        "ConnectionOptions",
        "Consumer",
        "Credentials",
        "DataLossError",
        "DeadLetters",
        "Deduplicate",
        "Deliver",
        "Delivered",
        "FanOutOptions",
        "GiveUp",
        "HandoffOptions",
        "InOrder",
        "LeaseOptions",
        "OneByOne",
        "OptionError",
        "OutRecord",
        "OutsidePolicy",
        "Part",
        "PollingOptions",
        "Position",
        "Producer",
        "ProducerOptions",
        "PutError",
        "PutHandle",
        "PutResult",
        "Puts",
        "Record",
        "Redeliver",
        "Retry",
        "ServiceError",
        "SettlingOptions",
        "Shard",
        "ShardReadError",
        "ShardwayError",
        "Skip",
        "StartingPosition",
        "Stop",
        "SyncConsumer",
        "SyncProducer",
        "SyncPutHandle",
        "SyncPuts",
        "SyncShard",
        "TransportError",
        "Unordered",
        "Unreadable",
        "Unwritten",
        "Warn",
        "__version__",
        "by_key",
        "log_events",
        "unordered",
    ],
    "shardway.checkpoints": [
        "Every",
        "FoundPending",
        "PendingCheckpoint",
        "PendingChoice",
        "Prompt",
        "Riding",
    ],
    "shardway.dead_letters": [
        "DeadLettersTo",
        "DeadLettersToFile",
        "DeadLettersToStream",
        "Letter",
    ],
    "shardway.deserializers": ["json", "msgpack", "protobuf", "text"],
    "shardway.fences": [
        "PostgresFence",
        "ROW_KEY_COLUMNS",
        "RowKey",
        "SqliteFence",
        "StaleOwnerError",
        "row_key",
    ],
    "shardway.inspect": [
        "AccountLimits",
        "ApplicationFound",
        "ApplicationReport",
        "ApplicationView",
        "ApplicationsReport",
        "Applied",
        "ChangedError",
        "Checked",
        "Confidence",
        "ConsumerView",
        "CostReport",
        "CountReport",
        "CredentialsView",
        "Decoded",
        "DoctorReport",
        "Figure",
        "Finding",
        "Goal",
        "HeatReport",
        "HotKey",
        "Inspector",
        "Item",
        "JobBatch",
        "JobLook",
        "JobState",
        "JobStream",
        "JobVerdict",
        "JobView",
        "JobsReport",
        "Judged",
        "LagLimits",
        "LagReport",
        "LagTimes",
        "LeaseView",
        "Leases",
        "Life",
        "Look",
        "LossRisk",
        "MetricView",
        "MetricsView",
        "Missing",
        "ModeCost",
        "Move",
        "NotLookedFor",
        "Plan",
        "PositionView",
        "PositionsReport",
        "PositionsSource",
        "Prices",
        "QueryPosition",
        "Reading",
        "RecordLine",
        "Registries",
        "Renewals",
        "Saving",
        "Seen",
        "SeenRecord",
        "Severity",
        "ShardCount",
        "ShardHeat",
        "ShardLag",
        "ShardLimits",
        "ShardView",
        "Skip",
        "Snapshot",
        "State",
        "Status",
        "Step",
        "Store",
        "StreamFound",
        "StreamReport",
        "StreamView",
        "StreamsReport",
        "TableView",
        "Traffic",
        "WorkerView",
        "apply_plan",
        "check_lag",
        "check_leases",
        "check_stream",
        "cost_of",
        "decode",
        "examine",
        "jobs_at",
        "judge",
        "judge_job",
        "lease_table",
        "look_for_renewals",
        "plan_import",
        "plan_seek",
        "plan_skip",
        "positions_from",
        "positions_of",
        "prices_from",
        "unknown",
    ],
    "shardway.leases": [
        "ByThroughput",
        "Checkpoint",
        "EqualCounts",
        "Fixed",
        "MemoryLeaseTable",
        "Origin",
        "PostgresLeaseTable",
        "SqliteLeaseTable",
    ],
    "shardway.pipeline": [
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
        "deduplicate_by_stamps",
        "delta_settings",
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
    "shardway.pipeline.job": [
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
    "shardway.statistics": [
        "ConsumerSnapshot",
        "ConsumerStatistics",
        "MetricsOptions",
        "ProducerSnapshot",
        "QuerySnapshot",
        "ShardStatistics",
    ],
    "shardway.telemetry": [
        "CloudWatchChoice",
        "CloudWatchExporter",
        "EmfExporter",
        "OpenTelemetryExporter",
        "OpenTelemetryTracing",
        "OtlpExporter",
        "PrometheusCollector",
        "PrometheusExporter",
        "together",
    ],
    "shardway.testing": [
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
    "pyspark_shardway": ["DefaultSource"],
}

GROUPS = [
    *("shardway", "shardway.leases", "shardway.checkpoints", "shardway.dead_letters", "shardway.statistics"),
    "shardway.telemetry",
]
REFERENCE = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
OF_A_TABLE = (
    *("any_loop", "create", "delete_worker", "ensure", "get", "leave_loop", "name", "of", "put_worker", "rows", "scan"),
    *("workers", "write", "close"),
)
NOT_TOLD = {
    **dict.fromkeys(("MemoryLeaseTable", "PostgresLeaseTable", "SqliteLeaseTable"), OF_A_TABLE),  # `shardway.ports` has
    "LeaseOptions": ("assignment",),  # what follows from others, for the worker
}
"""Public members that are not for programs, and what they are for."""


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(found.__all__) == PUBLIC[module]
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_dir_lists_the_public_names() -> None:
    import shardway

    assert dir(shardway) == sorted(PUBLIC["shardway"])


def test_an_unknown_name_is_an_attribute_error() -> None:
    import shardway

    with pytest.raises(AttributeError, match="no attribute 'Recrod'"):
        shardway.Recrod  # noqa: B018 - looking it up is the test


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_docstrings(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in found.__all__ if name[0] != "_" and not getattr(found, name).__doc__] == []


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after one statement."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_shardway_imports_nothing_heavy() -> None:
    loaded = modules_after("import shardway")
    assert "shardway" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "msgspec", "pandas", "pyarrow", "asyncio"})


def test_the_package_names_what_most_programs_need() -> None:
    assert len(PUBLIC["shardway"]) <= 60
    listed = [name for module, names in PUBLIC.items() for name in names if module in GROUPS]
    assert len(listed) == len(set(listed)), "a name has one place"


@pytest.mark.parametrize("module", GROUPS)
def test_each_name_is_of_the_module_that_is_loaded_for_it(module: str) -> None:
    found = importlib.import_module(module)
    for name, home in vars(found)["_HOMES"].items():
        made_in = getattr(getattr(found, name), "__module__", home)
        assert made_in == home or (home == "shardway.wiring" and made_in == "shardway.aws.options"), name


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("shardway", "Record"), ("shardway", "OptionError"), ("shardway", "Retry"), ("shardway", "Batch"),
        ("shardway.leases", "MemoryLeaseTable"), ("shardway.leases", "EqualCounts"), ("shardway.checkpoints", "Prompt"),
    ],
)  # fmt: skip
def test_a_name_loads_its_own_module_and_no_other(module: str, name: str) -> None:
    home = vars(importlib.import_module(module))["_HOMES"][name]
    loaded = modules_after(f"from {module} import {name}") - {module, "shardway.public"}
    assert loaded <= modules_after(f"import {home}")


@pytest.mark.parametrize("module", GROUPS)
def test_the_public_members_of_public_classes_stand_in_the_reference(module: str) -> None:
    found = importlib.import_module(module)
    missing = {}
    for name in found.__all__:
        kind = getattr(found, name)
        if inspect.isclass(kind) and not issubclass(kind, Exception):
            not_told = {one for one in members(kind) if not re.search(rf"`(?:\w+\.)?{one}(?:\([^`]*\))?`", REFERENCE)}
            if not_told := not_told - set(NOT_TOLD.get(name, ())):
                missing[name] = sorted(not_told)
    assert missing == {}


def members(kind: type) -> set[str]:
    """What has no underscore, of the class and of those of the package that it derives from."""
    return {
        name for one in kind.__mro__ if one.__module__.startswith("shardway")
        for name in vars(one) if not name.startswith("_")
    }  # fmt: skip


def test_using_a_record_imports_no_client_and_no_spark() -> None:
    loaded = modules_after("from shardway import Record, DataLossError")
    assert "shardway.model" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "pandas", "pyarrow"})


def test_importing_the_test_kit_imports_no_server() -> None:
    loaded = modules_after("import shardway.testing, shardway.testing.pytest_plugin")
    assert "shardway.testing" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "httptools", "shardway.local"})


def test_commands_that_look_at_nothing_load_no_reader() -> None:
    loaded = modules_after("import shardway.cli.app")
    assert loaded.isdisjoint({"shardway.inspect.inspector", "shardway.aws.wire", "botocore", "zstandard"})


def test_one_version() -> None:
    import shardway

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == shardway.__version__
