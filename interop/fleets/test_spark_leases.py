"""A Spark query's leases and real KCL workers: each goes on where the other stood."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from tests.spark.lease_query import Query
from tests.spark.querying import Stream

from interop.fleets.journey import KCL_3_SETTINGS, KCL_SETTINGS
from interop.fleets.processes import KCL_2, KCL_3, Services, start_kcl
from shardway.aws.kinesis.shapes import PutEntry
from shardway.model import StreamName

DEADLINE_S = 150.0
KCL_FAILOVER_S = 5.0
WANTED = 60
"""Records; each is its number as text."""


def put(stream: Stream, wanted: range) -> None:
    stream.put_entries([PutEntry(b"%d" % number, f"key-{number}") for number in wanted])


def numbers(rows: list[bytes]) -> list[int]:
    return [int(row) for row in rows]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [KCL_2, KCL_3])
def test_the_kcl_goes_on_where_a_query_stood_and_a_query_where_the_kcl_did(
    fleet_services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # a query takes them from its machine
        monkeypatch.setenv(variable, "local")
    name = f"orders-{uuid.uuid4().hex[:8]}"
    stream = Stream(fleet_services.kinesis, StreamName(name))  # type: ignore[arg-type]
    stream.call("CreateStream", ShardCount=2)
    query = Query(stream, f"app-{name}", fleet_services.dynamodb_url)
    with contextlib.ExitStack() as stack:
        stack.callback(stream.close)
        stack.callback(query.stop)
        put(stream, range(WANTED // 2))
        stream.split(0)
        stream.settle()
        put(stream, range(WANTED // 2, WANTED))
        # Cut in the midst: the next record of each shard was seen, the last one of the batch was not.
        got = Counter(numbers(query.start(maxRecordsPerTrigger="40", leaseFailoverMs="8000").batch()))
        query.batch()
        query.until_mirrored()
        query.stop()
        assert 0 < got.total() < WANTED
        assert {row.ended for row in query.rows().values()} == {True, False}  # a parent, and its children
        own = {
            "stream": name,
            "application": query.application,
            "kinesis": fleet_services.kinesis_url,
            "dynamodb": fleet_services.dynamodb_url,
            "start": "LATEST",  # each shard has a lease that says more
            "checkpoint_ms": "200",
        }
        worker = start_kcl(version, "kcl", tmp_path, own, KCL_SETTINGS | (KCL_3_SETTINGS if version == KCL_3 else {}))
        stack.callback(worker.kill)
        end_s = time.monotonic() + DEADLINE_S
        checkpoints = 0
        while set(got) != set(range(WANTED)) or not checkpoints:
            assert time.monotonic() < end_s, f"{len(got)} of {WANTED} records; see {worker.log_file}"
            for line in worker.new_lines():
                if line["event"] == "records":
                    got.update(number for *_, number in line["records"])
                    checkpoints = 0
                checkpoints += line["event"] == "checkpoint"
            time.sleep(0.1)
        worker.ask_to_stop()
        worker.wait()
        put(stream, range(WANTED, WANTED + 20))
        got.update(numbers(query.start(leaseFailoverMs="8000").read(20)))
        assert set(got) == set(range(WANTED + 20))
        assert set(got.values()) == {1}
        assert {row.owner for row in query.rows().values()} == {None}
