"""The policies of docs/iam allow what the code calls, and nothing else."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest

from shardway.pipeline.job import ExitCode, load_job
from shardway.pipeline.job.run.output import RunOutput
from shardway.pipeline.job.run.query import run_job
from shardway.pipeline.job.run.stopping import Stopping
from shardway.testing import LocalKinesis
from tests.docs.doc_pages import DOCS, rows, section

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

IAM = DOCS / "iam"
FILES = sorted(path.name for path in IAM.iterdir())
JOB = """\
name = "copy"
checkpoint = "{folder}/checkpoint"

[source]
streamName = "orders"
endpointUrl = "{source}"
startingPosition = "TRIM_HORIZON"

[[sinks]]
format = "shardway"
sql = "SELECT partition_key, value AS data FROM rows"

[sinks.options]
streamName = "copy"
endpointUrl = "{target}"

[trigger]
available_now = true
"""


def statements(name: str) -> dict[str, dict[str, Any]]:
    policy = json.loads((IAM / name).read_text(encoding="utf-8"))
    assert policy["Version"] == "2012-10-17"
    return {statement["Sid"]: statement for statement in policy["Statement"]}


def actions(statement: dict[str, Any]) -> set[str]:
    action = statement["Action"]
    return {action} if isinstance(action, str) else set(action)


WITHOUT_RESOURCES = {
    "cloudwatch:GetMetricData",
    "cloudwatch:ListMetrics",
    "dynamodb:ListTables",
    "glue:GetSchemaVersion",
    "kinesis:DescribeLimits",
    "kinesis:ListStreams",
}
"""AWS checks these against no resource, so their statement has to name all."""


@pytest.mark.parametrize("name", FILES)
def test_a_policy_names_operations_on_resources_of_their_service(name: str) -> None:
    for statement in statements(name).values():
        assert statement["Effect"] == "Allow"
        given = statement["Resource"]
        resources = [given] if isinstance(given, str) else given
        of_all = actions(statement) <= WITHOUT_RESOURCES
        assert of_all == (resources == ["*"])
        assert of_all or all("*" not in resource.removesuffix("/*") for resource in resources)
        for action in actions(statement):
            service, operation = action.split(":")
            assert of_all or {resource.split(":")[2] for resource in resources} == {service.replace("sts", "iam")}
            if service in ("kinesis", "kms", "sts"):
                model = botocore.session.get_session().get_service_model(service)
                assert operation in model.operation_names


def test_a_job_may_what_its_source_and_its_sink_may() -> None:
    job, source, sink = statements("job.json"), statements("spark-source.json"), statements("producer.json")
    assert actions(job["ReadTheStream"]) == actions(source["ReadTheStream"])
    assert actions(job["WriteToTheStream"]) == actions(sink["WriteToTheStream"])
    assert actions(job["DecryptTheStream"]) == actions(source["OnlyForEncryptedStreams"])
    assert actions(job["EncryptTheStream"]) == actions(sink["OnlyForEncryptedStreams"])
    for sid in ("DecryptTheStream", "EncryptTheStream"):
        assert job[sid]["Condition"] == source["OnlyForEncryptedStreams"]["Condition"]
    assert job["OnlyWithRoleArn"] == source["OnlyWithRoleArn"] == sink["OnlyWithRoleArn"]


def test_each_action_is_explained_once_for_its_statement() -> None:
    table = rows(section(DOCS / "guides" / "deploy" / "README.md", "Permissions"))
    explained: dict[str, set[str]] = {}
    last: list[str] = []
    for row in table:
        last = re.findall(r"\w+", row[0]) or last
        named = re.findall(r"`(\w+:\w+)`", row[1])
        for sid, action in zip(last * len(named) if len(last) == 1 else last, named, strict=True):
            assert action not in explained.setdefault(sid, set())
            explained[sid].add(action)
    assert explained == {sid: actions(statement) for sid, statement in statements("job.json").items()}


@pytest.mark.spark
def test_a_job_makes_the_calls_of_its_policy(spark: SparkSession, tmp_path: Path) -> None:
    with LocalKinesis(streams={"orders": 2}) as source, LocalKinesis(streams={"copy": 2}) as target:
        client = botocore.session.get_session().create_client(
            "kinesis", endpoint_url=source.endpoint_url, region_name=source.region
        )
        entries = [{"Data": b"an order", "PartitionKey": f"customer-{number}"} for number in range(20)]
        client.put_records(StreamName="orders", Records=entries)
        client.close()
        source.clock.advance(3.0)
        source.reset_stats()
        path = tmp_path / "job.toml"
        values = {"folder": tmp_path, "source": source.endpoint_url, "target": target.endpoint_url}
        text = JOB
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        path.write_text(text, encoding="utf-8")
        assert run_job(spark, load_job(path), Stopping(), RunOutput(as_json=True)) == ExitCode.DONE
        read = {f"kinesis:{operation}" for operation in source.stats().operations}
        written = {f"kinesis:{operation}" for operation in target.stats().operations}
        assert target.stats().calls("PutRecords") > 0
    allowed = statements("job.json")
    assert read == actions(allowed["ReadTheStream"])
    assert written == actions(allowed["WriteToTheStream"])
