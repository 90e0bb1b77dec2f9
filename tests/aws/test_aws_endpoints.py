"""Where calls go: our answer beside that of botocore's own client in the same environment."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import botocore.client
import botocore.session
import pytest

from shardway.aws.endpoints import arn_region, resolve_endpoint
from shardway.aws.options import ConnectionOptions
from shardway.aws.sdk import Sdk
from shardway.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[profile global]
endpoint_url = https://everything.example.com:8443

[profile special]
services = special-services
endpoint_url = https://everything.example.com

[services special-services]
kinesis =
  endpoint_url = https://kinesis.example.com/base
dynamodb =
  endpoint_url = https://dynamodb.example.com

[profile deaf]
endpoint_url = https://everything.example.com
ignore_configured_endpoint_urls = true

[profile fips]
use_fips_endpoint = true

[profile broken]
services = missing
"""

TABLE: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"region": "eu-west-1"}, {}, "https://kinesis.eu-west-1.amazonaws.com/"),
    ({"region": "cn-north-1"}, {}, "https://kinesis.cn-north-1.amazonaws.com.cn/"),
    ({"region": "us-gov-west-1"}, {}, "https://kinesis.us-gov-west-1.amazonaws.com/"),
    ({"region": "us-iso-east-1"}, {}, "https://kinesis.us-iso-east-1.c2s.ic.gov/"),
    ({"region": "us-east-1"}, {"AWS_USE_FIPS_ENDPOINT": "true"}, "https://kinesis-fips.us-east-1.amazonaws.com/"),
    ({"region": "us-east-1", "profile": "fips"}, {}, "https://kinesis-fips.us-east-1.amazonaws.com/"),
    ({"region": "us-east-1"}, {"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "https://kinesis.us-east-1.api.aws/"),
    ({"region": "eu-west-1"}, {"AWS_ENDPOINT_URL": "http://localhost:4566"}, "http://localhost:4566/"),
    ({"region": "eu-west-1"}, {"AWS_ENDPOINT_URL_KINESIS": "http://127.0.0.1:4567"}, "http://127.0.0.1:4567/"),
    (
        {"region": "eu-west-1"},
        {"AWS_ENDPOINT_URL_KINESIS": "http://127.0.0.1:4567", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
        "http://127.0.0.1:4567/",
    ),
    (
        {"region": "eu-west-1"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        "https://kinesis.eu-west-1.amazonaws.com/",
    ),
    ({"region": "eu-west-1", "profile": "global"}, {}, "https://everything.example.com:8443/"),
    ({"region": "eu-west-1", "profile": "special"}, {}, "https://kinesis.example.com/base"),
    ({"region": "eu-west-1"}, {"AWS_PROFILE": "special"}, "https://kinesis.example.com/base"),
    (
        {"region": "eu-west-1", "profile": "special"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
        "http://127.0.0.1:1/",
    ),
    ({"region": "eu-west-1", "profile": "deaf"}, {}, "https://kinesis.eu-west-1.amazonaws.com/"),
]


@pytest.fixture
def config(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)


def set_all(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("config", "keys")
@pytest.mark.parametrize(("settings", "environment", "url"), TABLE)
def test_the_endpoint_is_botocores(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], environment: dict[str, str], url: str
) -> None:
    set_all(monkeypatch, environment)
    wanted = ConnectionOptions(**settings)
    endpoint = resolve_endpoint(wanted, Sdk(wanted.profile), "kinesis", settings["region"])
    session = botocore.session.Session(profile=wanted.profile)
    client = session.create_client("kinesis", region_name=settings["region"])
    assert endpoint.url == url
    assert client.meta.endpoint_url in (url, url.removesuffix("/"))
    assert (endpoint.signing_name, endpoint.signing_region) == ("kinesis", settings["region"])


class Renamed:
    """Stands where botocore had a class that took other arguments, or had other methods."""

    def __init__(self, *_: Any) -> None:
        """It takes no names of arguments."""


def hide(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Change what botocore calls private, behind the back of its own modules, as a later version may."""
    for module, name in (("endpoint_provider", "EndpointProvider"), ("configprovider", "ConfiguredEndpointProvider")):
        if change == "removed":
            monkeypatch.delattr(f"botocore.{module}.{name}")
        else:
            monkeypatch.setattr(f"botocore.{module}.{name}", Renamed)


@pytest.mark.usefixtures("config", "keys")
@pytest.mark.parametrize(
    ("row", "change"), list(zip(TABLE, itertools.cycle(["removed", "renamed", "renamed"]), strict=False))
)
def test_a_later_botocore_gives_the_same_endpoint(
    monkeypatch: pytest.MonkeyPatch, row: tuple[dict[str, Any], dict[str, str], str], change: str
) -> None:
    settings, environment, url = row
    set_all(monkeypatch, environment)
    hide(monkeypatch, change)
    wanted = ConnectionOptions(**settings)
    endpoint = resolve_endpoint(wanted, Sdk(wanted.profile), "kinesis", settings["region"])
    assert endpoint.url == url
    assert (endpoint.signing_name, endpoint.signing_region) == ("kinesis", settings["region"])


ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("GetRecords", {"ShardIterator": "i"}),
        ("GetShardIterator", {"ShardId": "s", "ShardIteratorType": "LATEST"}),
        ("PutRecords", {"Records": [{"Data": b"x", "PartitionKey": "k"}]}),
        ("ListShards", {}),
        ("DescribeStreamSummary", {}),
        ("SplitShard", {"ShardToSplit": "s", "NewStartingHashKey": "1"}),
    ],
)
@pytest.mark.parametrize("fips", [False, True])
def test_streams_by_arn_have_their_accounts_endpoint(operation: str, parameters: dict[str, Any], fips: bool) -> None:
    settings = ConnectionOptions(region="eu-west-1", use_fips=fips)
    endpoint = resolve_endpoint(settings, Sdk(), "kinesis", "eu-west-1", operation=operation, stream_arn=ARN)
    client = botocore.session.Session().create_client(
        "kinesis", region_name="eu-west-1", config=botocore.client.Config(use_fips_endpoint=fips)
    )
    sent: list[str] = []

    def keep(request: Any, **_: Any) -> Any:
        sent.append(request.url)
        raise InterruptedError

    client.meta.events.register("before-send.kinesis", keep)
    method = "".join(f"_{c.lower()}" if c.isupper() else c for c in operation).lstrip("_")
    with pytest.raises(InterruptedError):
        getattr(client, method)(StreamARN=ARN, **parameters)
    assert sent == [endpoint.url]
    assert "123456789012" in endpoint.host


def test_a_given_endpoint_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    settings = ConnectionOptions(endpoint_url="http://[::1]:4567/base")
    endpoint = resolve_endpoint(settings, Sdk(), "kinesis", "eu-west-1", operation="GetRecords", stream_arn=ARN)
    assert endpoint.url == "http://[::1]:4567/base"
    assert (endpoint.host, endpoint.path) == ("[::1]:4567", "/base")


@pytest.mark.parametrize(
    ("url", "host"),
    [("https://h:443", "h"), ("http://h:80/", "h"), ("http://h:443", "h:443"), ("https://H.example", "h.example")],
)
def test_the_host_header_has_no_default_port(url: str, host: str) -> None:
    assert resolve_endpoint(ConnectionOptions(endpoint_url=url), Sdk(), "kinesis", "eu-west-1").host == host


def test_sts_has_its_own_endpoint() -> None:
    settings = ConnectionOptions(endpoint_url="http://127.0.0.1:1")
    assert resolve_endpoint(settings, Sdk(), "sts", "eu-west-1").url == "https://sts.eu-west-1.amazonaws.com/"
    settings = ConnectionOptions(sts_endpoint_url="http://127.0.0.1:2")
    assert resolve_endpoint(settings, Sdk(), "sts", "eu-west-1").url == "http://127.0.0.1:2/"


@pytest.mark.usefixtures("config")
def test_services_of_one_profile_have_their_own() -> None:
    sdk = Sdk("special")
    settings = ConnectionOptions(profile="special")
    assert resolve_endpoint(settings, sdk, "dynamodb", "eu-west-1").host == "dynamodb.example.com"
    assert resolve_endpoint(settings, sdk, "cloudwatch", "eu-west-1").host == "everything.example.com"


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("settings", "environment", "says"),
    [
        ({"profile": "broken"}, {}, '"missing" services'),
        ({}, {"AWS_ENDPOINT_URL": "http://localhost:1", "AWS_USE_FIPS_ENDPOINT": "true"}, "FIPS"),
        ({}, {"AWS_ENDPOINT_URL": "ftp://localhost"}, "endpoint"),
        ({"endpoint_url": "http://"}, {}, "is no URL"),
        ({"endpoint_url": "http://h:port"}, {}, "is no URL"),
        ({"endpoint_url": "http://h?x=1"}, {}, "may not hold"),
        ({"endpoint_url": "http://user:pw@h"}, {}, "may not hold"),
    ],
)
def test_what_is_no_endpoint(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], environment: dict[str, str], says: str
) -> None:
    set_all(monkeypatch, environment)

    def resolve() -> None:
        wanted = ConnectionOptions(**settings)
        resolve_endpoint(wanted, Sdk(wanted.profile), "kinesis", "eu-west-1")

    with pytest.raises(OptionError, match=says):
        resolve()


def test_an_unknown_service() -> None:
    with pytest.raises(OptionError, match="knows no service 'kinesys'"):
        resolve_endpoint(ConnectionOptions(), Sdk(), "kinesys", "eu-west-1")


@pytest.mark.parametrize(
    ("arn", "region"),
    [
        (ARN, "eu-west-1"),
        ("arn:aws-cn:kinesis:cn-north-1:123456789012:stream/a:b", "cn-north-1"),
        ("arn:aws:kinesis::123456789012:stream/x", None),
        ("orders", None),
        ("", None),
    ],
)
def test_the_region_of_an_arn(arn: str, region: str | None) -> None:
    assert arn_region(arn) == region
