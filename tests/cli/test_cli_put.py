"""``shardway put`` against the local Kinesis: what arrives, what is said, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.testing import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]
    ReadBack = Callable[[], list[Any]]

WAIT_S = 60.0


def wait_until(condition: Callable[[], object]) -> None:
    """Look again and again, for up to a minute."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# --- what arrives ---------------------------------------------------------------------------------------


def test_lines_of_standard_input(run: Run, read_back: ReadBack) -> None:
    done = run("put", "orders", stdin=b"one\n\ntwo \r\nthree \xff")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.startswith("orders: 4 records written, 15 B, in ")
    found = read_back()
    assert sorted(one.data for one in found) == [b"", b"one", b"three \xff", b"two \r"]
    assert len({one.key for one in found}) == 4


@pytest.mark.parametrize(
    "options", [(), ("--aggregation",), ("--ordered-by-key",), ("--aggregation", "--ordered-by-key")], ids=str
)
def test_a_file_of_json_lines(run: Run, read_back: ReadBack, tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "orders.jsonl"
    lines = [json.dumps({"n": n, "to": {"key": f"customer-{n % 20}"}}) for n in range(5000)]
    path.write_text("\n".join(lines))
    done = run("put", "orders", str(path), "--format", "jsonl", "--key", "to.key", *options)
    assert (done.status, done.stderr) == (0, "")
    found = read_back()
    assert len(found) == 5000
    assert sorted((one.data for one in found), key=lambda data: json.loads(data)["n"]) == [
        line.encode() for line in lines
    ]
    assert all(one.key == f"customer-{json.loads(one.data)['n'] % 20}" for one in found)
    assert any(one.aggregated for one in found) is ("--aggregation" in options)
    if "--ordered-by-key" in options:
        for key in range(20):
            numbers = [json.loads(one.data)["n"] for one in found if one.key == f"customer-{key}"]
            assert numbers == sorted(numbers)


def test_explicit_hash_keys_and_data_out_of_a_field(run: Run, read_back: ReadBack) -> None:
    lines = b'{"at": 0, "text": "first"}\n{"at": "340282366920938463463374607431768211455", "text": {"a": 1}}\n'
    options = ("--format", "jsonl", "--explicit-hash-key", "at", "--data", "text", "--key-text", "same")
    assert run("put", "orders", "-", *options, stdin=lines).status == 0
    assert [(one.key, one.data, one.shard_id[-1]) for one in read_back()] == [
        ("same", b"first", "0"),
        ("same", b'{"a":1}', "1"),
    ]


HALF = rb'"\ud83d"'


def test_json_with_half_an_emoji_is_put_as_it_is(run: Run, read_back: ReadBack) -> None:
    lines = [b'{"id": "a", "v": %s}' % HALF, b'{"id": "b", "v": {%s: [1.50, "\xc3\xbc"]}}' % HALF]
    assert run("put", "orders", "-", "--format", "jsonl", "--key", "id", stdin=b"\n".join(lines)).status == 0
    assert sorted((one.key, one.data) for one in read_back()) == list(zip("ab", lines, strict=True))


def test_half_an_emoji_inside_of_the_data_field_stays_what_it_was(run: Run, read_back: ReadBack) -> None:
    line = b'{"v": {%s: [%s, "\xc3\xbc"]}}' % (HALF, HALF)
    assert run("put", "orders", "-", "--format", "jsonl", "--data", "v", stdin=line).status == 0
    assert [json.loads(one.data) for one in read_back()] == [{"\ud83d": ["\ud83d", "\u00fc"]}]


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (b'{"id": %s, "v": 1}' % HALF, ("--format", "jsonl", "--key", "id")),
        (b'{"id": %s, "v": 1}' % HALF, ("--format", "jsonl", "--data", "id")),
        (b'{"partition_key": "k", "id": 1, "data": %s}' % HALF, ("--format", "records")),
        (b'{"partition_key": %s, "data": "x"}' % HALF, ("--format", "records")),
    ],
)
@pytest.mark.usefixtures("local")
def test_half_an_emoji_is_no_key_and_no_data(run: Run, line: bytes, options: tuple[str, ...]) -> None:
    done = run("put", "orders", "-", *options, stdin=line)
    assert done.status == 1
    assert "half of a surrogate pair, which UTF-8 cannot write" in done.stderr


@pytest.mark.parametrize("line", [b'{"v": %s, "w": NaN}' % HALF, b'{"v": %s' % HALF, b'{"v": "\xff", "w": %s}' % HALF])
@pytest.mark.usefixtures("local")
def test_what_is_no_json_is_none_with_half_an_emoji_either(run: Run, line: bytes) -> None:
    done = run("put", "orders", "-", "--format", "jsonl", stdin=line)
    assert done.status == 1
    assert "it is not JSON" in done.stderr


def test_nothing_is_nothing(run: Run, read_back: ReadBack) -> None:
    done = run("put", "orders", "-o", "json")
    told = json.loads(done.stdout)
    assert (done.status, told["records"], told["complete"], read_back()) == (0, 0, True, [])


def test_what_the_service_refuses_for_now_is_put_again(run: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    local.faults.add(Fault(how="partial", operation="PutRecords", share=0.5, count=3, seed=1))
    done = run("put", "orders", "-o", "json", stdin=b"".join(b"%d\n" % n for n in range(300)))
    told = json.loads(done.stdout)
    assert (done.status, told["complete"], told["written"]) == (0, True, 300)
    assert told["metrics"]["records_refused"] > 0
    assert "refused" in done.stderr
    assert sorted(int(one.data) for one in read_back()) == list(range(300))


def test_large_lines(run: Run, read_back: ReadBack) -> None:
    lines = [bytes([65 + n]) * 300_000 for n in range(20)]
    assert run("put", "orders", stdin=b"\n".join(lines)).status == 0
    assert sorted(one.data for one in read_back()) == lines


# --- what is said ---------------------------------------------------------------------------------------


def test_the_summary_as_json(run: Run, local: LocalKinesis) -> None:
    lines = b'{"k": "a"}\n\nnot JSON\n{"k": "b"}\n'
    done = run("put", "orders", "--format", "jsonl", "--key", "k", "--skip-bad", "-o", "json", stdin=lines)
    assert done.stdout.count("\n") == 1
    told = json.loads(done.stdout)
    metrics = told.pop("metrics")
    assert told == {
        "stream": "orders",
        "complete": True,
        "interrupted": None,
        "fault": None,
        "records": 2,
        "written": 2,
        "not_written": 0,
        "not_written_reasons": {},
        "not_written_lines": [],
        "not_written_lines_left_out": 0,
        "may_be_written": 0,
        "lines_read": 4,
        "bad_lines_skipped": 1,
        "input_complete": True,
    }
    assert (metrics["user_records_put"], metrics["latency_s"]["count"]) == (2, 2)


def test_a_bad_line_stops_it_and_what_came_before_is_written(run: Run, read_back: ReadBack) -> None:
    lines = b"".join(b'{"n": %d}\n' % n for n in range(700)) + b"s3cret\n" + b"{}\n" * 10
    done = run("put", "orders", "--format", "jsonl", "--key", "n", stdin=lines)
    assert done.status == 1
    assert done.stderr == (
        "shardway: standard input, line 701: it is not JSON: JSON is malformed: invalid character (byte 0)\n"
    )
    assert done.stdout.startswith("orders: 700 records written")
    assert sorted(json.loads(one.data)["n"] for one in read_back()) == list(range(700))


def test_bad_lines_are_passed_over_by_choice_and_the_first_ones_told(run: Run, read_back: ReadBack) -> None:
    lines = b'{"n": 1}\ns3cret\n' * 15
    done = run("put", "orders", "--format", "jsonl", "--skip-bad", stdin=lines)
    assert done.status == 0
    assert done.stderr.count("passed over\n") == 10
    assert "line 2: it is not JSON" in done.stderr
    assert done.stderr.endswith("further bad lines are only counted\n")
    assert "s3cret" not in done.stderr
    assert len(read_back()) == 15


def test_a_record_that_cannot_be_written_stops_it(run: Run, local: LocalKinesis, tmp_path: Path) -> None:
    local.faults.add(Fault(how="access_denied", operation="PutRecords"))
    path = tmp_path / "lines"
    path.write_bytes(b"s3cret, and more\n" * 1_000_000)
    done = run("put", "orders", str(path), "-o", "json")
    told = json.loads(done.stdout)
    assert (done.status, told["complete"], told["written"], told["input_complete"]) == (1, False, 0, False)
    assert told["lines_read"] < 1_000_000
    assert told["not_written"] == told["records"] == sum(told["not_written_reasons"].values())
    assert told["not_written_lines"] == [[1, told["records"]]]
    assert told["may_be_written"] == 0
    assert "records are not written: " in done.stderr
    assert "AccessDeniedException" in done.stderr
    assert "s3cret" not in done.stderr


def test_it_goes_on_by_choice(run: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    local.faults.add(Fault(how="access_denied", operation="PutRecords", count=1))
    done = run("put", "orders", "--keep-going", "-o", "json", stdin=b"".join(b"%d\n" % n for n in range(3000)))
    told = json.loads(done.stdout)
    assert (done.status, told["input_complete"], told["records"]) == (1, True, 3000)
    lost = {n for first, last in told["not_written_lines"] for n in range(first, last + 1)}
    assert 0 < len(lost) == told["not_written"] < 3000
    assert {int(one.data) + 1 for one in read_back()} == set(range(1, 3001)) - lost


def test_records_that_run_out_of_time_are_told(run: Run, local: LocalKinesis) -> None:
    local.faults.add(Fault(how="throttle", operation="PutRecords"))
    done = run("put", "orders", "--record-ttl", "0.3", stdin=b"a\nb\nc\n")
    assert done.status == 1
    assert "shardway: 3 records are not written: 3 expired" in done.stderr
    assert done.stderr.endswith("; lines 1-3\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("orders", "nothing-here.txt"), "shardway: nothing-here.txt cannot be read: No such file or directory\n"),
        (("orders", "--key", "a"), "shardway: --key names a field of JSON: add --format jsonl\n"),
        (("orders", "--record-ttl", "0"), "shardway: record_ttl_s must be more than 0, not 0.0\n"),
        (("orders", "--endpoint-url", "here"), "shardway: endpoint_url must begin with http:// or https://\n"),
        (("nowhere",), "shardway: DescribeStreamSummary: ResourceNotFoundException: "),
        (("orders", "--endpoint-url", "http://127.0.0.1:9"), "shardway: "),
        (("arn:aws:kinesis:eu-west-1:123456789012:stream/orders",), "shardway: "),
    ],
    ids=range(7),
)
def test_what_keeps_it_from_beginning_is_one_line(
    run: Run, local: LocalKinesis, arguments: tuple[str, ...], reason: str
) -> None:
    done = run("put", *arguments, stdin=b"line\n")
    assert (done.status, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(reason)


def test_a_folder_cannot_be_read(run: Run, local: LocalKinesis, tmp_path: Path) -> None:
    done = run("put", "orders", str(tmp_path))
    assert (done.status, done.stderr) == (1, f"shardway: {tmp_path} cannot be read on after line 0: Is a directory\n")


def test_on_a_terminal_it_shows_how_far_it_is(start: Run, local: LocalKinesis, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"line\n" * 100)
    ours, theirs = pty.openpty()
    # On a terminal that is said to be dumb nothing is drawn.
    process = start("put", "orders", str(path), stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # it has ended
        while b"100 records" not in shown:
            shown += os.read(ours, 4096)
    stdout, _ = process.communicate(timeout=WAIT_S)
    os.close(ours)
    assert b"100 records" in shown, (shown, stdout)
    assert b"0 refused" in shown
    assert stdout.startswith(b"orders: 100 records written")


# --- how it ends ----------------------------------------------------------------------------------------


def test_lines_go_as_they_come_and_ctrl_c_ends_it(start: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    reading, writing = os.pipe()
    process = start("put", "orders", stdin=reading)
    os.close(reading)
    os.write(writing, b"one\ntwo\nhal")
    wait_until(lambda: len(read_back()) == 2)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=WAIT_S)
    os.close(writing)
    assert process.returncode == 128 + signal.SIGINT
    assert stdout.startswith(b"orders: 2 records written")
    assert stderr == b"shardway: ended by SIGINT\n"


def test_ctrl_c_ends_it_before_it_has_begun(start: Run, local: LocalKinesis) -> None:
    stalls = local.faults.add(Fault(how="delay", operation="DescribeStreamSummary", delay_s=100.0))
    process = start("put", "orders", stdin=-1)
    process.stdin.write(b"one\n")
    process.stdin.flush()
    wait_until(lambda: stalls.hits)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + signal.SIGINT
    assert stdout.startswith(b"orders: 0 records written")
    assert stderr == b"shardway: ended by SIGINT\n"


async def test_what_was_taken_is_written_also_when_reading_fails(local: LocalKinesis, read_back: ReadBack) -> None:
    from shardway.cli.accounts import Batch
    from shardway.cli.producing import Run
    from shardway.model import OutRecord
    from shardway.options import ProducerOptions

    async def batches() -> AsyncGenerator[Batch, None]:
        yield Batch([1, 2], [OutRecord(b"one", "k"), OutRecord(b"two", "k")])
        raise MemoryError("no more")

    local.faults.add(Fault(how="delay", operation="PutRecords", delay_s=0.2))
    run = Run("orders", options=ProducerOptions(), region=None, endpoint_url=None, profile=None, stop_on_loss=True)
    with pytest.raises(MemoryError, match="no more"):
        await run.deliver(batches(), flush_s=0)
    assert (run.account.written, run.account.complete) == (2, True)
    assert [one.data for one in read_back()] == [b"one", b"two"]


@pytest.mark.parametrize("flush_s", ["0.2", "600"])
def test_ctrl_c_waits_for_what_is_under_way_and_tells_what_is_not_written(
    start: Run, local: LocalKinesis, flush_s: str
) -> None:
    stalls = local.faults.add(Fault(how="delay", operation="PutRecords", delay_s=100.0))
    process = start("put", "orders", "--flush", flush_s, "-o", "json", stdin=-1)
    process.stdin.write(b"one\ntwo\nthree\n")
    process.stdin.flush()
    wait_until(lambda: stalls.hits)
    process.send_signal(signal.SIGTERM)
    if flush_s == "600":
        process.send_signal(signal.SIGINT)  # a second one: at once
    stdout, stderr = process.communicate(timeout=WAIT_S)
    told = json.loads(stdout)
    assert process.returncode == 128 + signal.SIGTERM
    assert (told["interrupted"], told["written"], told["not_written"]) == ("SIGTERM", 0, 3)
    assert told["not_written_lines"] == [[1, 3]]
    assert told["may_be_written"] > 0
    assert b"ended by SIGTERM" in stderr
    assert b"may be written all the same; lines 1-3" in stderr


def test_it_reads_no_faster_than_the_producer_takes(start: Run, local: LocalKinesis) -> None:
    """With a service that does not answer, reading stops; a slow reader would otherwise fill the memory."""
    stalls = local.faults.add(Fault(how="delay", operation="PutRecords", delay_s=100.0))
    process = start("put", "orders", "--flush", "0", "-o", "json", stdin=-1)
    descriptor = process.stdin.fileno()
    os.set_blocking(descriptor, False)
    line = b"x" * 65_535 + b"\n"
    taken = 0
    stalled = 0
    while stalled < 50:  # a second without room in the pipe, once the service was reached
        try:
            taken += os.write(descriptor, line)
            stalled = 0
        except BlockingIOError:
            time.sleep(0.02)
            stalled += stalls.hits > 0
        assert taken < 64 * 1024 * 1024, "it reads without a bound"
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=WAIT_S)
    told = json.loads(stdout)
    assert told["lines_read"] == pytest.approx(256, abs=16)  # 16 MiB
    assert told["not_written"] == told["records"]


def test_everything_that_was_read_is_in_the_account(start: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    """Stopped at any moment, written and not written add up, and what is told as written is there."""
    process = start("put", "orders", "-o", "json", "--aggregation", stdin=-1)
    process.stdin.write(b"".join(b"%d\n" % n for n in range(1, 3001)))
    process.stdin.flush()
    wait_until(lambda: local.stats().calls("PutRecords"))
    process.send_signal(signal.SIGINT)
    told = json.loads(process.communicate(timeout=WAIT_S)[0])
    lost = {n for first, last in told["not_written_lines"] for n in range(first, last + 1)}
    assert told["records"] == told["written"] + told["not_written"]
    assert told["not_written"] == len(lost)
    assert {int(one.data) for one in read_back()} == set(range(1, told["records"] + 1)) - lost


def test_the_local_service_is_asked_like_aws(run: Run, local: LocalKinesis) -> None:
    """The endpoint by option, without its variable."""
    url = local.endpoint_url
    client = boto3.client("kinesis", endpoint_url=url)
    client.create_stream(StreamName="clicks", ShardCount=1)
    client.close()
    os.environ.pop("AWS_ENDPOINT_URL")
    done = run("put", "clicks", "--endpoint-url", url, "--region", local.region, stdin=b"x\n")
    assert done.status == 0
