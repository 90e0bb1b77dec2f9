"""``shardway local`` as a process: what it says, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway import __version__
from shardway.cli.local import _streams
from shardway.errors import OptionError
from shardway.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(start: Callable[..., Any], ending: signal.Signals) -> None:
    process = start("local", "--port", "0", "--stream", "orders:2", "-o", "json")
    said = json.loads(process.stdout.readline())
    assert said["endpoint_url"].startswith("http://127.0.0.1:")
    variables = said["environment"]
    client = boto3.client(
        "kinesis",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
    )
    summary = client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
    assert summary["OpenShardCount"] == 2
    client.close()
    process.send_signal(ending)
    rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, b"", b"")


def test_it_prints_what_to_export(start: Callable[..., Any]) -> None:
    process = start("local", "--port", "0", "--tls", "--region", "eu-west-1")
    lines = []
    while "AWS_CA_BUNDLE" not in (line := process.stdout.readline().decode()):
        assert line
        lines.append(line)
    text = "".join(lines)
    assert "Kinesis is at https://127.0.0.1:" in text
    assert "export AWS_ENDPOINT_URL=https://127.0.0.1:" in text
    assert "export AWS_REGION=eu-west-1" in text


def test_data_is_kept(start: Callable[..., Any], tmp_path: Path) -> None:
    for number in range(2):
        process = start("local", "--port", "0", "--data", str(tmp_path / "d"), "--stream", f"s{number}", "-o", "json")
        url = json.loads(process.stdout.readline())["endpoint_url"]
        client = boto3.client("kinesis", endpoint_url=url)
        assert client.list_streams()["StreamNames"] == [f"s{one}" for one in range(number + 1)]
        client.close()
        process.kill()
        process.wait()


def test_faults_are_one_line(run: Callable[..., Any], tmp_path: Path) -> None:
    taken = LocalKinesis(data=tmp_path).start()
    port = taken.endpoint_url.rpartition(":")[2]
    for arguments, reason in (
        (("--port", port), f"shardway: cannot serve on 127.0.0.1:{port}: "),
        (("--port", "0", "--stream", "orders:many"), "shardway: --stream orders:many: write NAME or NAME:SHARDS"),
        (("--port", "0", "--stream", "or ders"), "shardway: stream or ders with 1 shards: "),
        (("--port", "0", "--data", str(tmp_path)), f"shardway: {tmp_path} is in use by another local service"),
        (("--port", "0", "--certificate", "none.pem"), "shardway: cannot serve"),
        (("--port", "99999"), "shardway: port must be from 0 to 65535, not 99999: 0 takes a free one"),
        (("--port", "-1"), "shardway: port must be from 0 to 65535, not -1"),
        (("--port", "0", "--region", "evil.com/"), "shardway: region 'evil.com/': no AWS region is written so"),
        (("--port", "0", "--key", "key.pem"), "shardway: key is given without certificate"),
    ):
        done = run("local", *arguments)
        assert done.status == 1
        assert done.stderr.startswith(reason)
        assert done.stderr.count("\n") == 1
    taken.stop()


@pytest.mark.parametrize("tls", [False, True])
def test_a_port_that_a_local_kinesis_has_is_told_with_its_process(
    run: Callable[..., Any], start: Callable[..., Any], tls: bool
) -> None:
    other = start("local", "--port", "0", "-o", "json", *(["--tls"] if tls else []))
    port = json.loads(other.stdout.readline())["endpoint_url"].rpartition(":")[2]
    done = run("local", "--port", port)
    assert done.status == 1
    assert f": another local Kinesis of process {other.pid}, with its own streams, has this port" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"SSH-2.0-other\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"pid": 4711',
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
    ],
)
def test_a_port_that_another_program_has_is_told_as_that(run: Callable[..., Any], says: bytes) -> None:
    def answer() -> None:
        for _ in range(2):  # over HTTP, and over HTTPS
            connection = listener.accept()[0]
            with connection, contextlib.suppress(OSError):
                connection.recv(10_000)
                connection.sendall(says)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        answers = threading.Thread(target=answer, daemon=True)
        answers.start()
        done = run("local", "--port", str(listener.getsockname()[1]))
    assert done.status == 1
    assert done.stderr.endswith(": another program has this port\n")
    assert done.stderr.count("\n") == 1


def test_a_host_whose_name_is_none(run: Callable[..., Any]) -> None:
    done = run("local", "--port", "0", "--host", "a..b")
    assert (done.status, done.stderr.splitlines()[-1]) == (
        1,
        "shardway: cannot serve on a..b:0: 'a..b' is no host's name",
    )


def test_an_address_that_others_can_reach_is_remarked_on(start: Callable[..., Any]) -> None:
    process = start("local", "--port", "0", "--host", "127.0.0.2")
    assert b"127.0.0.2 may be reached from other machines" in process.stderr.readline()


def test_version_and_help(run: Callable[..., Any]) -> None:
    assert run("--version").stdout == f"shardway {__version__}\n"
    shown = run("local", "--help")
    assert "--dynamodb-endpoint-url" in shown.stdout
    assert run("nonsense").status == 2


def test_without_its_extra_it_says_what_to_install() -> None:
    program = "import sys\nsys.modules['typer'] = None\nfrom shardway.cli import main\nsys.exit(main())\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'The shardway command needs its extra: pip install "shardway[cli]"\n'


def test_streams_are_names_with_or_without_a_number() -> None:
    assert _streams(["orders:4", "clicks"], 2) == {"orders": 4, "clicks": 2}
    assert _streams([], 2) == {}
    for wrong in (":4", "orders:x", "orders:-1"):
        with pytest.raises(OptionError, match="NAME:SHARDS"):
            _streams([wrong], 1)


def test_streams_settle_as_slowly_as_is_wanted(start: Callable[..., Any]) -> None:
    """CREATING, UPDATING and DELETING, as a program meets them at AWS; and pages that may call are named."""
    process = start("local", "--port", "0", "--settle", "3600", "--origin", "http://localhost:3000", "-o", "json")
    said = json.loads(process.stdout.readline())
    client = boto3.client("kinesis", endpoint_url=said["endpoint_url"], region_name="us-east-1")

    def status() -> str:
        return str(client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamStatus"])

    def pass_time() -> None:
        advance = urllib.request.Request(f"{said['endpoint_url']}/_shardway/clock", b'{"advance_s": 3601}')
        with urllib.request.urlopen(advance) as answer:
            assert answer.status == 200

    client.create_stream(StreamName="orders", ShardCount=1)
    assert status() == "CREATING"
    pass_time()
    assert status() == "ACTIVE"
    client.increase_stream_retention_period(StreamName="orders", RetentionPeriodHours=48)
    assert status() == "UPDATING"
    pass_time()
    client.delete_stream(StreamName="orders")
    assert status() == "DELETING"
    client.close()


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_a_time_that_is_none(run: Callable[..., Any], seconds: str) -> None:
    done = run("local", "--port", "0", "--settle", seconds)
    assert (done.status, done.stderr.startswith("shardway: stream_settle_s")) == (1, True)
