"""Measures the console: how soon its overview answers, and what memory live tails take.

The console and the local Kinesis are processes of their own. ``console_overview_ms`` is the time to the first byte of
the overview, as the median of 40 requests. There are 50 streams of 20 shards each and five applications of 20 leases,
and a browser holds the page open. All that the page shows was seen within 30 s. ``console_tail_mib`` is the growth of
the console's memory from the end of the first ten seconds on. Meanwhile three browsers follow a stream of ten shards
that takes 10,000 records each second for 5 minutes, and the third browser reads nothing of what is sent to it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from bench._form import Case, main, say
from shardway.inspect.moments import span_s
from shardway.local import LocalKinesis
from shardway.tasks import logged, thread

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-token-for-a-benchmark-of-forty-letters"
STREAMS, SHARDS, APPLICATIONS, REQUESTS = 50, 20, 5, 40
TAIL_SHARDS, RECORDS_PER_S, TAIL_S = 10, 10_000, 300
SHARDWAY = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())"]
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/html"}


@contextlib.contextmanager
def console(*options: str) -> Iterator[tuple[int, int]]:
    """Run a console with these options as a process, and yield its port and its process id."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        words = [
            "console",
            "--port",
            "0",
            "--token-file",
            str(token),
            "--audit",
            f"{folder}/audit",
            "-o",
            "json",
            *options,
        ]
        with subprocess.Popen([*SHARDWAY, *words], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
                yield port, process.pid
            finally:
                process.terminate()


def get(port: int, path: str) -> tuple[float, str]:
    """Return the seconds to the first byte of a page, and the page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began_s = time.perf_counter()
    connection.request("GET", path, headers=HEADERS)
    answer = connection.getresponse()
    first = answer.read(1)
    took_s = time.perf_counter() - began_s
    page = (first + answer.read()).decode()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status}")
    return took_s, page


def opened(port: int, path: str) -> http.client.HTTPResponse:
    """Open a stream of events, as an open page holds it, and return the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=HEADERS)
    return connection.getresponse()


def overview_ms() -> float:
    """Return the median milliseconds to the first byte of the overview."""
    with LocalKinesis.spawn(streams={f"stream-{number:02}": SHARDS for number in range(STREAMS)}) as local:
        os.environ.update(local.environment())
        dynamodb = boto3.client("dynamodb", endpoint_url=local.endpoint_url, region_name=local.region)
        for number in range(APPLICATIONS):
            _application(dynamodb, f"app-{number}")
        apps = [f"--application=app-{number}=stream-{number:02}" for number in range(APPLICATIONS)]
        with console(*apps) as (port, _):
            page = opened(port, "/live?page=overview")
            _until_warm(port)
            taken = [get(port, "/") for _ in range(REQUESTS)]
            page.close()
    told = [one for _, text in taken for one in re.findall(r"seen ([\w ]+?) ago", text)]
    ages = [span_s(one.replace(" ", "")) for one in told]
    shards = sum(int(one) for one in re.findall(rf'class="number">({SHARDS})</td>', taken[-1][1]))
    if max(ages) > 30 or shards < STREAMS * SHARDS:
        raise RuntimeError(f"{shards} shards, seen {max(ages)} s ago")
    return statistics.median(took_s for took_s, _ in taken) * 1000


def _application(dynamodb: Any, name: str) -> None:
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number in range(SHARDS):
        row = {
            "leaseKey": {"S": f"shardId-{number:012d}"},
            "leaseOwner": {"S": f"worker-{number % 3}"},
            "leaseCounter": {"N": "17"},
            "checkpoint": {"S": "TRIM_HORIZON"},
            "checkpointSubSequenceNumber": {"N": "0"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
        }
        dynamodb.put_item(TableName=name, Item=row)


def _until_warm(port: int) -> None:
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        page = get(port, "/")[1]
        if page.count('class="verdict') >= APPLICATIONS and page.count(f'class="number">{SHARDS}</td>') >= STREAMS:
            return
        time.sleep(1)
    raise RuntimeError("the overview was not whole within two minutes")


def tail_mib() -> float:
    """Return by how many MiB the console grows while three browsers follow a stream."""
    with LocalKinesis.spawn(streams={"orders": TAIL_SHARDS}) as local:
        os.environ.update(local.environment())
        stop, sent = threading.Event(), [0, 0]
        writers = [
            thread(partial(_put, local, stop, sent, number), "puts", logged("a writer failed")) for number in range(2)
        ]
        with console() as (port, pid):
            path = "/streams/orders/tail/events?browser="
            pages = [
                opened(port, f"{path}browser-{number}" + ("&where=.n+%3E+5" if number else "")) for number in range(3)
            ]
            heard = [0, 0]  # records that the console has read for each page
            readers = [
                thread(partial(_drain, pages[number], heard, number), "page", logged("a page failed"))
                for number in range(2)
            ]
            time.sleep(10)
            before, begun, had = _rss_mib(pid), sum(sent), min(heard)
            time.sleep(TAIL_S)
            grown, put, read = _rss_mib(pid) - before, sum(sent) - begun, min(heard) - had
            stop.set()
        for one in [*writers, *readers]:
            one.join(30)
    say(f"the console had {before:.0f} MiB after 10 s; {put:,} records were put, and {read:,} read for each page")
    if min(put, read) < 0.95 * RECORDS_PER_S * TAIL_S:
        raise RuntimeError(f"of {RECORDS_PER_S * TAIL_S:,} records {put:,} were put, and {read:,} read for each page")
    return grown


def _put(local: Any, stop: threading.Event, sent: list[int], writer: int) -> None:
    """Put half of the records until ``stop`` is set, and note in ``sent[writer]`` how many were put."""
    client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
    number, began_s = 0, time.monotonic()
    while not stop.is_set():
        records = [
            {"Data": b'{"n": %d, "text": "%s"}' % (number + one, b"x" * 80), "PartitionKey": str(number + one)}
            for one in range(500)
        ]
        client.put_records(StreamName="orders", Records=records)
        number += 500
        sent[writer] = number
        time.sleep(max(0.0, began_s + number / (RECORDS_PER_S / 2) - time.monotonic()))


def _drain(page: http.client.HTTPResponse, heard: list[int], number: int) -> None:
    """Take all that is sent, as a browser does, and note how many records the console says that it has read."""
    left = b""
    with contextlib.suppress(OSError, http.client.HTTPException):
        while part := page.read1(65536):
            told = re.findall(rb'"seen":(\d+),', left + part)
            heard[number] = int(told[-1]) if told else heard[number]
            left = (left + part)[-64:]


def _rss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


CASES = [
    Case(name="console_overview_ms", unit="ms", goal=200, sense="at_most", ours=overview_ms, rounds=1, warm_up=0),
    Case(name="console_tail_mib", unit="MiB", goal=20, sense="at_most", ours=tail_mib, rounds=1, warm_up=0),
]

if __name__ == "__main__":
    main("console", __doc__ or "", CASES)
