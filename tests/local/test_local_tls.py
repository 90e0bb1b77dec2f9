"""HTTPS with a certificate made for the run, and with a given one."""

from __future__ import annotations

import os
import ssl
import stat
import urllib.request
from pathlib import Path

import pytest

from shardway.local.embedded import LocalKinesis
from shardway.local.spawned import SpawnedKinesis
from shardway.local.tls import make_certificate
from tests.local.botoclient import client_of


def test_boto3_trusts_the_certificate_that_was_made() -> None:
    with LocalKinesis(tls=True) as local:
        assert local.endpoint_url.startswith("https://127.0.0.1:")
        environment = local.environment()
        # The second is Node's: the SDK for JavaScript reads the first one nowhere.
        assert environment["AWS_CA_BUNDLE"] == environment["NODE_EXTRA_CA_CERTS"] == local.ca_file
        client = client_of(local.endpoint_url, verify=local.ca_file)
        client.create_stream(StreamName="orders", ShardCount=1)
        data = b"x" * 500_000
        client.put_records(StreamName="orders", Records=[{"Data": data, "PartitionKey": "k"}] * 8)
        iterator = client.get_shard_iterator(
            StreamName="orders", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        assert [len(record["Data"]) for record in client.get_records(ShardIterator=iterator)["Records"]] == [
            len(data)
        ] * 8
        client.close()
        made = Path(local.ca_file)
    assert not made.exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_strict_clients_trust_it_by_any_name_of_this_machine(host: str) -> None:
    with LocalKinesis(tls=True) as local:
        context = ssl.create_default_context(cafile=local.ca_file)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        url = local.endpoint_url.replace("127.0.0.1", host) + "/_shardway/health"
        with urllib.request.urlopen(url, context=context, timeout=20) as response:
            assert response.status == 200


def test_a_client_that_does_not_trust_it_is_not_served() -> None:
    with LocalKinesis(tls=True) as local:
        client = client_of(local.endpoint_url)
        with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
            client.list_streams()
        client.close()


def test_a_certificate_can_be_given(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "127.0.0.1")
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    service: SpawnedKinesis = LocalKinesis.spawn(certificate=certificate, key=key)
    with service:
        client = client_of(service.endpoint_url, verify=str(certificate))
        assert client.list_streams()["StreamNames"] == []
        assert service.clock.now() > 0
        client.close()


def test_a_certificate_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalKinesis(certificate=tmp_path / "none.pem", key=tmp_path / "none.key").start()
