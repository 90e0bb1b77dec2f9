"""Tasks look for the stream where the driver found it, whatever their own machine says."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StructType

from shardway.aws.options import ConnectionOptions
from shardway.spark.driver.connection import locate
from shardway.spark.source import ShardwayDataSource

RECORDS = StructType().add("data", "binary")
SINK = StructType().add("partition_key", "string").add("data", "binary")


def test_region_and_endpoint_of_the_driver_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "http://127.0.0.1:4567")
    source = ShardwayDataSource({"streamName": "orders"})
    made = [
        source.reader(RECORDS),
        source.streamReader(RECORDS),
        source.writer(SINK, False),
        source.streamWriter(SINK, False),
    ]
    copies = [vars(pickle.loads(pickle.dumps(one))) for one in made]
    sent = [(one.get("_task") or one["_task_options"]).connection for one in copies]
    assert {(one.region, one.endpoint_url, one.credentials) for one in sent} == {
        ("eu-west-1", "http://127.0.0.1:4567", None)
    }


def test_what_is_given_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4567")
    given = ConnectionOptions(region="us-west-2", endpoint_url="http://127.0.0.1:9")
    assert locate(given) == given


def test_what_the_driver_does_not_find_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    assert locate(ConnectionOptions()) == ConnectionOptions()
    monkeypatch.setenv("AWS_PROFILE", "not-there")
    assert locate(ConnectionOptions()) == ConnectionOptions()
