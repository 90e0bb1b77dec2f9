"""Measures our client beside boto3 and botocore: reading pages, an empty read, building and signing PutRecords.

Both clients read the same ready-made answers from one canned server, one request at a time on one connection.
Both build their bodies from the same (key, data) pairs.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench._form import Case, apart, cpu_of_s, cpu_s, measure, options, per_second, report, say, wanted
from bench.canned import CannedServer
from shardway.aws.calls.signature import Signer
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry, put_records_body
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.wire import Wire
from shardway.model import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable

REGION = "us-east-1"
CREDENTIALS = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
RECORDS = 10_000
EMPTY_CALLS = 400
ENTRIES = 500
STREAM = "orders-of-the-day"
BUSY_MAX = 0.8
"""The share of the time for which a server may be busy. Above it the server is the limit itself, and the figure is no
good.
"""


class Ours:
    """Our client on a loop of its own."""

    def __init__(self, endpoint_url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._wire = Wire(ConnectionOptions(region=REGION, endpoint_url=endpoint_url))
        self._client = KinesisClient(self._wire)

    def get(self, iterator: str, calls: int) -> int:
        """Read ``calls`` pages and return the number of records."""

        async def read() -> int:
            return sum([len((await self._client.get_records(iterator)).records) for _ in range(calls)])

        return self._loop.run_until_complete(read())

    def close(self) -> None:
        self._loop.run_until_complete(self._wire.close())
        self._loop.close()


class Peer:
    """boto3's client with its defaults."""

    def __init__(self, endpoint_url: str) -> None:
        import boto3

        self.name = f"boto3 {boto3.__version__}"
        self._client: Any = boto3.client("kinesis", region_name=REGION, endpoint_url=endpoint_url)

    def get(self, iterator: str, calls: int) -> int:
        """Read ``calls`` pages and return the number of records."""
        return sum(
            [len(self._client.get_records(ShardIterator=iterator, Limit=10_000)["Records"]) for _ in range(calls)]
        )

    def close(self) -> None:
        self._client.close()


def records_per_s(get: Callable[[str, int], int], iterator: str, calls: int) -> Callable[[], float]:
    """Return a function that runs one round and returns the records read per second of wall time."""

    def once() -> float:
        began = time.perf_counter()
        records = get(iterator, calls)
        took = time.perf_counter() - began
        assert records == calls * RECORDS
        return records / took

    return once


def cpu_per_call_us(get: Callable[[str, int], int]) -> Callable[[], float]:
    """Return a function that runs one round and returns this process's CPU per empty read, in microseconds."""

    def once() -> float:
        began = cpu_s()
        get("empty", EMPTY_CALLS)
        return (cpu_s() - began) / EMPTY_CALLS * 1e6

    return once


def read_cases(ours: Ours, peer: Peer) -> list[Case]:
    """Return the cases that read from the canned server."""
    pages = [
        Case(
            name=name,
            unit="records/s",
            goal=goal,
            sense="at_least",
            ours=records_per_s(ours.get, f"page-{RECORDS}-{data_bytes}", 10),
            peer=records_per_s(peer.get, f"page-{RECORDS}-{data_bytes}", 3),
            peer_name=peer.name,
        )
        for name, data_bytes, goal in (("get_records_100b", 100, 10), ("get_records_1kb", 1000, 8))
    ]
    empty = Case(
        name="get_empty_cpu",
        unit="µs of CPU per call",
        goal=0.2,
        sense="at_most",
        ours=cpu_per_call_us(ours.get),
        peer=cpu_per_call_us(peer.get),
        peer_name=peer.name,
    )
    return [*pages, empty]


def our_builders(pairs: list[tuple[str, bytes]]) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a function that builds one body with our client, and one that builds and signs it."""
    stream = StreamName(STREAM)
    signer = Signer("kinesis", REGION)
    plain = {
        "content-type": "application/x-amz-json-1.1",
        "host": f"kinesis.{REGION}.amazonaws.com",
        "x-amz-target": "Kinesis_20131202.PutRecords",
    }

    def build() -> bytes:
        return put_records_body(stream, [PutEntry(data, key) for key, data in pairs])

    def build_and_sign() -> dict[str, str]:
        return {**plain, **signer.sign(plain, build(), CREDENTIALS, time.time())}

    return build, build_and_sign


def peer_builders(pairs: list[tuple[str, bytes]]) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a function that builds one body with botocore, and one that builds and signs it. They use its serializer
    with validation, as its client does, and its signer.
    """
    import botocore.auth
    import botocore.awsrequest
    import botocore.credentials
    import botocore.serialize
    import botocore.session

    model = botocore.session.get_session().get_service_model("kinesis")
    operation = model.operation_model("PutRecords")
    serializer = botocore.serialize.create_serializer(model.metadata["protocol"], include_validation=True)
    credentials = botocore.credentials.Credentials(CREDENTIALS.access_key_id, CREDENTIALS.secret_access_key)
    signer = botocore.auth.SigV4Auth(credentials, "kinesis", REGION)
    url = f"https://kinesis.{REGION}.amazonaws.com"

    def build() -> dict[str, Any]:
        entries = [{"Data": data, "PartitionKey": key} for key, data in pairs]
        built: dict[str, Any] = serializer.serialize_to_request({"StreamName": STREAM, "Records": entries}, operation)
        return built

    def build_and_sign() -> object:
        built = build()
        botocore.awsrequest.prepare_request_dict(built, endpoint_url=url, user_agent="bench")
        request = botocore.awsrequest.create_request_object(built)
        signer.add_auth(request)
        return request.prepare()

    return build, build_and_sign


def put_cases() -> list[Case]:
    """Return the cases that build requests and send nothing."""
    import botocore

    rng = random.Random(1)
    pairs = [(f"key-{index:05d}", rng.randbytes(100)) for index in range(ENTRIES)]
    ours, peers = our_builders(pairs), peer_builders(pairs)
    return [
        Case(
            name=name,
            unit="bodies/s",
            goal=goal,
            sense="at_least",
            ours=partial(per_second, ours[which], 1),
            peer=partial(per_second, peers[which], 1),
            peer_name=f"botocore {botocore.__version__}",
        )
        for which, (name, goal) in enumerate((("put_build_100b", 20), ("put_signed_100b", 8)))
    ]


def set_environment() -> None:
    """Set the environment so that both clients take the same credentials from it, and nothing from this machine's
    files.
    """
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": CREDENTIALS.access_key_id,
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS.secret_access_key,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
    }


def main() -> None:
    asked = options(__doc__ or "")
    set_environment()
    results = []
    with CannedServer() as server, apart(server.pid):
        ours, peer = Ours(server.endpoint_url), Peer(server.endpoint_url)
        for case in read_cases(ours, peer):
            if wanted(case.name, asked):
                began, busy_s = time.perf_counter(), cpu_of_s(server.pid)
                results.append(measure(case))
                busy = (cpu_of_s(server.pid) - busy_s) / (time.perf_counter() - began)
                say(f"{case.name}: the canned server was busy for {busy:.0%} of the time")
                assert busy <= BUSY_MAX, "the canned server was the limit"
        ours.close()
        peer.close()
    results += [measure(case) for case in put_cases() if wanted(case.name, asked)]
    report("wire", results, as_json=asked.json)


if __name__ == "__main__":
    main()
