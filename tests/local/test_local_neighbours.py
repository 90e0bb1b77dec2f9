"""DynamoDB, CloudWatch and STS on the same port: DynamoDB is the service's own, the others are moto's or another's."""

from __future__ import annotations

import datetime as dt
import http.server
import threading
import time
import zlib
from importlib import metadata
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from shardway.local.embedded import LocalKinesis
from shardway.local.faults import Fault
from shardway.local.http_messages import Request
from shardway.local.neighbours import operation_of, service_of
from tests.local.botoclient import client_of
from tests.local.rawhttp import Wire, call_bytes, request_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("moto")


@pytest.fixture(scope="module")
def served() -> Iterator[LocalKinesis]:
    """One service whose moto is started once for all tests of this module."""
    with LocalKinesis(streams={"orders": 1}) as service:
        yield service


@pytest.fixture
def local(served: LocalKinesis) -> Iterator[LocalKinesis]:
    yield served
    served.faults.clear()
    served.reset_stats()


@pytest.fixture
def dynamodb(local: LocalKinesis) -> Iterator[Any]:
    client = client_of(local.endpoint_url, "dynamodb")
    try:
        client.create_table(
            TableName="leases",
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    except client.exceptions.ResourceInUseException:
        client.delete_item(TableName="leases", Key={"leaseKey": {"S": "a"}})
    yield client
    client.close()


ITEM = {"leaseKey": {"S": "a"}, "leaseCounter": {"N": "1"}}
ABSENT = {"ConditionExpression": "attribute_not_exists(leaseKey)"}


def test_dynamodb_writes_under_a_condition(local: LocalKinesis, dynamodb: Any) -> None:
    dynamodb.put_item(TableName="leases", Item=ITEM, **ABSENT)
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(TableName="leases", Item=ITEM, **ABSENT)
    assert dynamodb.get_item(TableName="leases", Key={"leaseKey": {"S": "a"}})["Item"] == ITEM
    counted = local.stats().operations["PutItem"]
    assert (counted.calls, counted.errors) == (2, 1)


def test_its_date_is_the_services(local: LocalKinesis, dynamodb: Any) -> None:
    local.clock.advance(86_400)
    answer = dynamodb.list_tables()["ResponseMetadata"]["HTTPHeaders"]
    date = dt.datetime.strptime(answer["date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=dt.UTC)
    assert date.timestamp() == pytest.approx(local.clock.now(), abs=60)
    assert answer["x-amzn-requestid"]


def test_cloudwatch_takes_metrics(local: LocalKinesis) -> None:
    client = client_of(local.endpoint_url, "cloudwatch")
    client.put_metric_data(
        Namespace="app", MetricData=[{"MetricName": "RecordsProcessed", "Value": 5.0, "Unit": "Count"}]
    )
    assert [metric["MetricName"] for metric in client.list_metrics(Namespace="app")["Metrics"]] == ["RecordsProcessed"]
    client.close()
    assert local.stats().calls("PutMetricData") == 1


def test_sts_gives_roles(local: LocalKinesis) -> None:
    client = client_of(local.endpoint_url, "sts")
    assert client.get_caller_identity()["Account"] == "123456789012"
    role = "arn:aws:iam::123456789012:role/reader"
    assert client.assume_role(RoleArn=role, RoleSessionName="session")["Credentials"]["SessionToken"]
    assert client.assume_role_with_web_identity(
        RoleArn=role, RoleSessionName="session", WebIdentityToken="header.payload.signature"
    )["Credentials"]["AccessKeyId"]
    client.close()


METRIC = {"Namespace": "app", "MetricData": [{"MetricName": "RecordsProcessed", "Value": 5.0, "Unit": "Count"}]}


def test_kinesis_is_served_while_moto_works(local: LocalKinesis) -> None:
    stop = threading.Event()

    def write() -> None:
        client = client_of(local.endpoint_url, "cloudwatch")
        while not stop.is_set():
            client.put_metric_data(**METRIC)
        client.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
            while local.stats().calls("PutMetricData") < 5:
                assert wire.call(call_bytes("ListStreams", {})).status == 200
    finally:
        stop.set()
        writer.join()
    assert local.stats().calls("ListStreams") >= 1


def test_moto_says_how_long_it_took_to_start(local: LocalKinesis) -> None:
    client = client_of(local.endpoint_url, "cloudwatch")
    client.put_metric_data(**METRIC)
    client.close()
    described = local._running_server().neighbours.describe()
    assert described["moto_start_s"] > 0
    assert described["endpoints"]["cloudwatch"].startswith("http://127.0.0.1:")
    assert described["endpoints"]["dynamodb"] is None, "the service itself answers"


def test_dynamodb_needs_no_moto() -> None:
    with LocalKinesis() as local:
        client = client_of(local.endpoint_url, "dynamodb")
        assert client.list_tables()["TableNames"] == []
        client.close()
        assert local._running_server().neighbours.describe()["moto_start_s"] is None


def test_an_answer_has_the_checksum_that_sdks_look_for(local: LocalKinesis) -> None:
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        for operation, status in (("ListTables", 200), ("Scan", 400), ("ExecuteStatement", 400)):
            headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0"}
            reply = wire.call(request_bytes(b"{}", headers=headers))
            assert (reply.status, int(reply.headers["x-amz-crc32"])) == (status, zlib.crc32(reply.body))
            assert reply.headers["content-type"] == "application/x-amz-json-1.0"


def test_each_region_has_its_tables(local: LocalKinesis, dynamodb: Any) -> None:
    elsewhere = boto3.client("dynamodb", endpoint_url=local.endpoint_url, region_name="eu-west-1")
    assert elsewhere.list_tables()["TableNames"] == []
    assert "leases" in dynamodb.list_tables()["TableNames"]
    assert dynamodb.describe_table(TableName="leases")["Table"]["TableArn"].startswith("arn:aws:dynamodb:us-east-1:")
    elsewhere.close()


def test_a_reset_takes_the_tables() -> None:
    with LocalKinesis() as local:
        client = client_of(local.endpoint_url, "dynamodb")
        client.create_table(
            TableName="leases",
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        local.reset()
        assert client.list_tables()["TableNames"] == []
        client.close()


def test_what_dynamodb_does_not_have_is_said(local: LocalKinesis, dynamodb: Any) -> None:
    with pytest.raises(ClientError, match="the local DynamoDB has no operation ExecuteStatement: name a DynamoDB"):
        dynamodb.execute_statement(Statement="SELECT * FROM leases")
    streams = client_of(local.endpoint_url, "dynamodbstreams")
    with pytest.raises(ClientError, match="has no operation DynamoDBStreams_20120810"):
        streams.list_streams()
    streams.close()
    assert local.stats().operations["ExecuteStatement"].errors == 1


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("5.2.3", "moto 5.2.3 is installed, and moto>=5.2.4,<6 is needed: pip install"),
        ("6.0.0", "moto 6.0.0 is installed, and moto>=5.2.4,<6 is needed: pip install"),
        (None, "moto is not installed: pip install"),
    ],
)
def test_a_wrong_moto_is_said_at_the_start_and_by_an_error_that_no_sdk_repeats(
    version: str | None,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The process of moto is a real one, to which another version is said to be installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib import metadata\n"
        "real = metadata.version\n"
        "def version(name):\n"
        f"    found = {version!r} if name == 'moto' else real(name)\n"
        "    if found is None:\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return found\n"
        "metadata.version = version\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # which moto's process inherits

    def of_moto(name: str) -> str:
        assert name == "moto"
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr("shardway.local.moto_process.metadata.version", of_moto)
    with LocalKinesis() as local:
        assert [one.getMessage() for one in caplog.records if says in one.getMessage()], caplog.text
        client = boto3.client("cloudwatch", endpoint_url=local.endpoint_url, region_name="us-east-1")
        with pytest.raises(ClientError, match=says.partition(":")[0]) as caught:
            client.list_metrics()
        client.close()
        assert caught.value.response["Error"]["Code"] == "MissingDependency"
        assert local.stats().calls("ListMetrics") == 1, "it was not repeated"
    caplog.clear()
    with LocalKinesis(neighbour_endpoint_url="http://127.0.0.1:9"):
        assert caplog.records == [], "there moto is not asked"


# --- faults ---------------------------------------------------------------------------------------


def test_a_lost_reply_was_done(local: LocalKinesis, dynamodb: Any) -> None:
    local.faults.add(Fault(how="lost_reply", operation="PutItem", count=1))
    with pytest.raises(ConnectionClosedError):
        dynamodb.put_item(TableName="leases", Item=ITEM, **ABSENT)
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(TableName="leases", Item=ITEM, **ABSENT)


def test_a_reset_before_was_not_done(local: LocalKinesis, dynamodb: Any) -> None:
    local.faults.add(Fault(how="reset", operation="PutItem", count=1))
    with pytest.raises(ConnectionClosedError):
        dynamodb.put_item(TableName="leases", Item=ITEM, **ABSENT)
    dynamodb.put_item(TableName="leases", Item=ITEM, **ABSENT)


def test_a_truncated_answer(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="truncate", operation="ListTables", count=1))
    headers = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        with pytest.raises(EOFError, match=r"of \d+ bytes of the body"):
            wire.call(request_bytes(b"{}", headers=headers))
        assert wire.ended()


@pytest.mark.parametrize(
    ("service", "call", "how", "code"),
    [
        ("dynamodb", "list_tables", "throttle", "ProvisionedThroughputExceededException"),
        ("dynamodb", "list_tables", "server_error", "InternalServerError"),
        ("dynamodb", "list_tables", "access_denied", "AccessDeniedException"),
        ("cloudwatch", "list_metrics", "throttle", "Throttling"),
        ("cloudwatch", "list_metrics", "expired_token", "ExpiredTokenException"),
        ("sts", "get_caller_identity", "throttle", "Throttling"),
        ("sts", "get_caller_identity", "server_error", "InternalFailure"),
    ],
)
def test_each_protocol_says_its_error(local: LocalKinesis, service: str, call: str, how: Any, code: str) -> None:
    client = client_of(local.endpoint_url, service)
    local.faults.add(Fault(how=how, delay_s=0.001))
    with pytest.raises(ClientError) as caught:
        getattr(client, call)()
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["Error"]["Message"]
    client.close()


def test_an_error_of_ones_own(local: LocalKinesis, dynamodb: Any) -> None:
    local.faults.add(Fault(how="error", code="RequestLimitExceeded", message="enough", status=400))
    with pytest.raises(dynamodb.exceptions.RequestLimitExceeded, match="enough"):
        dynamodb.list_tables()


# --- another endpoint -----------------------------------------------------------------------------


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        said = f"{self.path} {self.headers['X-Amz-Target']} {body.decode()}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("X-Amz-Crc32", "7")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def dynamodb_call(wire: Wire, path: str = "/") -> Any:
    headers = {"X-Amz-Target": "DynamoDB_20120810.GetItem", "Content-Type": "application/x-amz-json-1.0"}
    return wire.call(request_bytes(b"{}", path=path, headers=headers))


@pytest.mark.parametrize("option", ["dynamodb_endpoint_url", "neighbour_endpoint_url"])
def test_another_endpoint_can_be_named(echo: str, option: str) -> None:
    with LocalKinesis(**{option: echo}) as local, Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        reply = dynamodb_call(wire, "/?a=%20b")
        assert reply.status == 200
        assert reply.body == b"/?a=%20b DynamoDB_20120810.GetItem {}"
        assert reply.headers["x-amz-crc32"] == "7"
        assert "server" not in reply.headers


def test_an_endpoint_that_does_not_answer_is_said_so() -> None:
    nobody = LocalKinesis(dynamodb_endpoint_url="http://127.0.0.1:9")
    with nobody as local, Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        reply = dynamodb_call(wire)
    assert reply.status == 503
    assert reply.json()["__type"] == "com.amazonaws.dynamodb.v20120810#ServiceUnavailable"
    assert "dynamodb at http://127.0.0.1:9 does not answer" in str(reply.json()["message"])


# --- whose call it is -----------------------------------------------------------------------------

FORM = b"application/x-www-form-urlencoded; charset=utf-8"
SCOPE = b"AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/%b/aws4_request, SignedHeaders=host, Signature=0"


@pytest.mark.parametrize(
    ("target", "headers", "body", "service", "operation"),
    [
        (b"/", {b"x-amz-target": b"DynamoDB_20120810.PutItem"}, b"{}", "dynamodb", "PutItem"),
        (b"/", {b"x-amz-target": b"GraniteServiceVersion20100801.PutMetricData"}, b"{}", "cloudwatch", "PutMetricData"),
        (
            b"/service/GraniteServiceVersion20100801/operation/ListMetrics",
            {b"smithy-protocol": b"rpc-v2-cbor"},
            b"\xa0",
            "cloudwatch",
            "ListMetrics",
        ),
        (
            b"/",
            {b"content-type": FORM, b"authorization": SCOPE % b"monitoring"},
            b"Action=PutMetricData&Version=2010-08-01",
            "cloudwatch",
            "PutMetricData",
        ),
        (
            b"/",
            {b"content-type": FORM, b"authorization": SCOPE % b"sts"},
            b"Action=AssumeRole",
            "sts",
            "AssumeRole",
        ),
        (b"/", {b"content-type": FORM}, b"Action=AssumeRoleWithSAML", "sts", "AssumeRoleWithSAML"),
        (b"/", {b"content-type": FORM}, b"a=b", None, "unknown"),
        (b"/", {b"x-amz-target": b"Kinesis_20131202.PutRecord"}, b"{}", None, "PutRecord"),
        (b"/service/Other/operation/Op", {}, b"", None, "Op"),
        (b"/", {}, b"", None, "unknown"),
    ],
)
def test_whose_call_it_is(
    target: bytes, headers: dict[bytes, bytes], body: bytes, service: str | None, operation: str
) -> None:
    request = Request(b"POST", target, headers, body, True, "127.0.0.1")
    assert service_of(request) == service
    assert operation_of(request) == operation


def test_moto_ends_with_the_service() -> None:
    with LocalKinesis() as local:
        client = client_of(local.endpoint_url, "cloudwatch")
        client.list_metrics()
        client.close()
        process = local._running_server().neighbours._moto._process
        assert process is not None
    deadline = time.monotonic() + 10
    while process.returncode is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.returncode is not None
