"""What ``pip install 'shardway[local]'`` brings: few packages, and all that the service needs."""

from __future__ import annotations

import importlib.metadata as metadata
import json
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from tests.installed import brought_by, modules_outside
from tests.local.botoclient import client_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("moto")

PACKAGES_MAX = 30
MEGABYTES_MAX = 120
"""Of the files as pip writes them, without Shardway's own."""


@pytest.fixture(scope="module")
def brought() -> set[str]:
    """All packages that the extra leads to, as they are installed here."""
    return brought_by("local")


def test_they_are_few(brought: set[str]) -> None:
    assert {"moto", "httptools", "botocore"} <= brought
    assert len(brought) <= PACKAGES_MAX, sorted(brought)


def test_they_are_small(brought: set[str]) -> None:
    sizes = {
        name: sum(path.stat().st_size for file in metadata.files(name) or () if (path := _path(file)).is_file())
        for name in brought - {"shardway"}
    }
    assert sum(sizes.values()) <= MEGABYTES_MAX * 1e6, sorted(sizes.items(), key=lambda item: -item[1])[:5]


def _path(file: metadata.PackagePath) -> Any:
    return file.locate()


def test_they_are_enough(brought: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service in a process of its own, to which every other package that is installed here is missing."""
    others = modules_outside(brought)
    assert {"flask", "pytest", "pyspark"} <= set(others)
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nMISSING = set({json.dumps(others)})\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in MISSING:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # which the process inherits
    with LocalKinesis.spawn(streams={"orders": 1}) as local:
        kinesis, dynamodb, cloudwatch, sts = (
            client_of(local.endpoint_url, name) for name in ("kinesis", "dynamodb", "cloudwatch", "sts")
        )
        kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
        dynamodb.create_table(
            TableName="leases",
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        item = {"leaseKey": {"S": "a"}, "leaseCounter": {"N": "1"}}
        dynamodb.put_item(TableName="leases", Item=item, ConditionExpression="attribute_not_exists(leaseKey)")
        with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
            dynamodb.put_item(TableName="leases", Item=item, ConditionExpression="attribute_not_exists(leaseKey)")
        assert dynamodb.scan(TableName="leases")["Items"] == [item]
        cloudwatch.put_metric_data(Namespace="app", MetricData=[{"MetricName": "Records", "Value": 5.0}])
        assert [one["MetricName"] for one in cloudwatch.list_metrics(Namespace="app")["Metrics"]] == ["Records"]
        role = "arn:aws:iam::123456789012:role/reader"
        assert sts.get_caller_identity()["Account"] == "123456789012"
        assert sts.assume_role(RoleArn=role, RoleSessionName="session")["Credentials"]["SessionToken"]
        for client in (kinesis, dynamodb, cloudwatch, sts):
            client.close()
