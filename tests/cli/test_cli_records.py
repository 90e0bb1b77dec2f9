"""``shardway records``: on the local Kinesis, and back into a stream byte for byte."""

from __future__ import annotations

import gzip
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.calls.retry import RetryPolicy
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.hashkeys import hash_key
from shardway.testing import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]

FAST = ("--rate", "5")


def put(kinesis: Any, data: bytes, key: str = "k", stream: str = "orders", hash_key: int | None = None) -> str:
    explicit = {} if hash_key is None else {"ExplicitHashKey": str(hash_key)}
    answer = kinesis.put_record(StreamName=stream, PartitionKey=key, Data=data, **explicit)
    return str(answer["SequenceNumber"])


def lines(done: Any) -> list[dict[str, Any]]:
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def datas(kinesis: Any, stream: str) -> list[tuple[str, bytes]]:
    found = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while (page := kinesis.get_records(ShardIterator=iterator))["Records"]:
            iterator = page["NextShardIterator"]
            found += [(one["PartitionKey"], one["Data"]) for one in page["Records"]]
    return sorted(found)


async def at_once(*_: Any) -> None:
    """Pacing is tested elsewhere."""


def read_all(run: Run, *more: str, stream: str = "orders") -> Any:
    return run("records", "tail", stream, "--starting-position", "trim-horizon", "--no-follow", *FAST, *more)


def test_records_are_shown_with_what_is_inside(run: Run, kinesis: Any) -> None:
    number = put(kinesis, gzip.compress(b'{"id": 7}'), "a key")
    done = read_all(run)
    assert (done.status, done.stderr) == (0, "")
    _, shard, position, rest = done.stdout.split("  ", 3)
    assert (position, rest) == (number, 'a key  {"id": 7}\n')
    (line,) = lines(read_all(run, "-o", "jsonl", "--decode"))
    assert line["shard_id"] == shard
    assert line["decoded"]["value"] == {"id": 7}
    assert [step["kind"] for step in line["decoded"]["steps"]] == ["gzip", "json"]


@pytest.mark.parametrize("filters", [(), ("--where", 'key startswith "k"')], ids=["all", "filtered"])
def test_half_an_emoji_in_a_record_hides_no_row(run: Run, kinesis: Any, filters: tuple[str, ...]) -> None:
    """JSON may write a letter in two halves. One half alone is valid JSON, and no text."""
    given = [b'{"n": 1}', b'"\\ud83d"', b'{"name": "cut \\ud83d", "\\ude00": 2}', b'"\\ud83d\\ude00"', b'{"n": 5}']
    numbers = [put(kinesis, data, f"k-{place}", hash_key=0) for place, data in enumerate(given)]
    done = read_all(run, "--decode", "-o", "jsonl", *filters)
    found = lines(done)
    assert done.status == 0
    assert [line["sequence_number"] for line in found] == numbers
    assert [line["data"].encode() for line in found] == given, "what was put can be put again"
    assert [line["decoded"]["value"] for line in found] == [
        {"n": 1}, "\ufffd", {"name": "cut \ufffd", "\ufffd": 2}, "\U0001f600", {"n": 5}
    ]  # fmt: skip


def test_an_escape_sequence_and_a_script_stay_text(run: Run, kinesis: Any) -> None:
    put(kinesis, b"\x1b]0;boo\x07<script>alert(1)</script>", "\x1b[31mred\n")
    for shape in ("table", "jsonl"):
        done = read_all(run, "-o", shape)
        assert "\x1b" not in done.stdout
        assert done.stdout.count("\n") == 1
        assert "<script>" in done.stdout


def test_what_is_written_out_is_taken_back_byte_for_byte(run: Run, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="copy", ShardCount=2)
    given = [("text", "grün\r\n\0".encode()), ("binary", bytes(range(256))), ("empty line", b"\n"), ("ü", b"\xff")]
    for key, data in given:
        put(kinesis, data, key)
    inner = [("inner a", b"x\n", None), ("inner b", b"\xfe", 2**127)]
    put(kinesis, encode_aggregate(inner), "container")
    out = read_all(run, "-o", "jsonl")
    assert len(lines(out)) == 6
    done = run("put", "copy", "--format", "records", stdin=out.stdout.encode())
    assert (done.status, done.stderr) == (0, "")
    assert datas(kinesis, "copy") == sorted([*given, *((key, data) for key, data, _ in inner)])
    alone = read_all(run, "-o", "jsonl", "--where", "size >= 0")  # each line is made by itself
    assert sorted(alone.stdout.splitlines()) == sorted(out.stdout.splitlines())
    explicit = [line for line in lines(out) if "explicit_hash_key" in line]
    assert [line["explicit_hash_key"] for line in explicit] == [str(2**127)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[]", "it is no object"),
        ('{"data": "x"}', "it has no field partition_key"),
        ('{"partition_key": "k"}', "it needs one of data and data_base64"),
        ('{"partition_key": "k", "data": "x", "data_base64": "eA=="}', "it needs one of data and data_base64"),
        ('{"partition_key": "k", "data_base64": "x"}', "its field data_base64 is no base64"),
        ('{"partition_key": "k", "data": 7}', "its field data is no text"),
    ],
)
def test_a_line_that_is_no_record_is_said_so(run: Run, local: LocalKinesis, line: str, why: str) -> None:
    done = run("put", "orders", "--format", "records", stdin=line.encode() + b"\n")
    assert done.status == 1
    assert f"line 1: {why}" in done.stderr


def test_by_shard_key_time_position_and_filter(run: Run, kinesis: Any, local: LocalKinesis) -> None:
    old = put(kinesis, b'{"n": 1}', "a", hash_key=0)
    local.clock.advance(3600)
    put(kinesis, b'{"n": 2}', "b", hash_key=0)
    put(kinesis, b'{"n": 3}', "b", hash_key=2**128 - 1)

    def numbers(*more: str) -> list[int]:
        found = lines(run("records", "tail", "orders", "--no-follow", *FAST, "-o", "jsonl", *more))
        return sorted(json.loads(line["data"])["n"] for line in found)

    assert numbers("--starting-position", "trim-horizon") == [1, 2, 3]
    assert numbers("--starting-position", "10m ago") == [2, 3]
    assert numbers("--starting-position", "2h", "--until", "10m ago") == [1]
    assert numbers("--since", "10m") == [2, 3]
    assert numbers("--since", "2h ago", "--until", "10m ago") == [1]
    assert numbers("--starting-position", f"seq:{old}") == [1, 2]
    assert numbers("--starting-position", f"after:{old}") == [2]
    assert numbers("--starting-position", "trim-horizon", "--shard", "shardId-000000000001") == [3]
    assert numbers("--starting-position", "trim-horizon", "--where", '.n >= 2 and key == "b"') == [2, 3]
    assert numbers("--starting-position", "trim-horizon", "-n", "1") == [1]
    assert numbers("--starting-position", "latest") == []
    shard = f"shardId-00000000000{int(hash_key('b') >= 2**127)}"
    of_key = lines(
        run(
            "records",
            "tail",
            "orders",
            "--no-follow",
            "--starting-position",
            "trim-horizon",
            "--key",
            "b",
            *FAST,
            "-o",
            "jsonl",
        )
    )
    assert {line["shard_id"] for line in of_key} == {shard}


def test_a_position_inside_of_an_aggregate(run: Run, kinesis: Any) -> None:
    """As each line, a checkpoint and the doctor name it."""
    number = put(kinesis, encode_aggregate([("k", b"%d" % index, None) for index in range(4)]), hash_key=0)
    put(kinesis, b"last", hash_key=0)

    def shown(at: str) -> list[str]:
        found = lines(run("records", "tail", "orders", "--no-follow", "--starting-position", at, *FAST, "-o", "jsonl"))
        return [line["data"] for line in found]

    assert shown(f"seq:{number}") == shown(f"seq:{number}/0") == [*"0123", "last"]
    assert shown(f"seq:{number}/2") == shown(f"after:{number}/1") == ["2", "3", "last"]
    assert shown(f"after:{number}") == shown(f"after:{number}/0") == ["1", "2", "3", "last"]
    assert shown(f"after:{number}/3") == ["last"]
    assert "is no place" in run("records", "tail", "orders", "--starting-position", "10m/3").stderr


def test_wrong_words_are_said_before_anything_is_asked(run: Run) -> None:
    for more, why in (
        (("--starting-position", "yesterday"), "'yesterday' is no time"),
        (("--since", "yesterday"), "'yesterday' is no time"),
        (("--since", "latest"), "'latest' is no time"),
        (("--since", "2099-01-01"), "--since 2099-01-01: that time is still to come"),
        (("--since", "1h", "--starting-position", "latest"), "give one of them"),
        (("--where", ".a =="), "the filter cannot be read at character 6"),
        (("-o", "yaml"), "records are shown as -o table or -o jsonl"),
    ):
        done = run("records", "tail", "orders", *more)
        assert (done.status, done.stdout) == (1, "")
        assert why in done.stderr


def test_a_shard_that_is_not_there(run: Run, local: LocalKinesis) -> None:
    assert "has no shard shardId-7" in read_all(run, "--shard", "shardId-7").stderr


def test_parents_come_before_their_children(run: Run, kinesis: Any) -> None:
    put(kinesis, b"before", hash_key=0)
    kinesis.split_shard(StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
    put(kinesis, b"after", hash_key=0)
    put(kinesis, b"after", hash_key=2**126)
    found = lines(read_all(run, "-o", "jsonl"))
    assert [line["data"] for line in found] == ["before", "after", "after"]
    place = f"seq:{found[0]['sequence_number']}"
    again = run("records", "tail", "orders", "--starting-position", place, "--no-follow", *FAST, "-o", "jsonl")
    assert [line["data"] for line in lines(again)] == ["before", "after", "after"]


def test_it_follows_through_a_reshard_until_it_is_stopped(start: Callable[..., Any], kinesis: Any) -> None:
    tail = start("records", "tail", "orders", "--starting-position", "trim-horizon", *FAST, "-o", "jsonl")
    put(kinesis, b"first", hash_key=0)
    assert json.loads(tail.stdout.readline())["data"] == "first"
    kinesis.split_shard(StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
    put(kinesis, b"second", hash_key=2**126)
    line = json.loads(tail.stdout.readline())
    assert (line["data"], line["shard_id"]) == ("second", "shardId-000000000003")
    tail.send_signal(signal.SIGINT)
    out, err = tail.communicate(timeout=60)
    assert (tail.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_goes_away_ends_it_quietly(start: Callable[..., Any], kinesis: Any) -> None:
    for number in range(50):
        put(kinesis, b"x" * 3000, str(number))
    tail = start("records", "tail", "orders", "--starting-position", "trim-horizon", *FAST, "-o", "jsonl")
    tail.stdout.readline()
    tail.stdout.close()
    for number in range(50):
        put(kinesis, b"x" * 3000, str(number))
    assert (tail.wait(60), tail.stderr.read()) == (0, b"")


def test_a_record_of_ten_mebibytes(run: Run, kinesis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole as a line of JSON and back; cut in a table; what opens to more than the bound is left closed."""
    monkeypatch.setattr("shardway.inspect.reads.paces.ShardPaces.wait_turn", at_once)
    for stream in ("large", "large-copy"):
        kinesis.create_stream(StreamName=stream, ShardCount=1, MaxRecordSizeInKiB=10240)
    text, binary = b"x" * (10 * 1024 * 1024 - 1), b"\xff" + bytes(10 * 1024 * 1024 - 2)
    bomb = gzip.compress(bytes(17 * 1024 * 1024))
    for data in (text, binary, bomb):
        put(kinesis, data, stream="large")
    shown = read_all(run, stream="large").stdout.splitlines()
    assert [len(line) < 3_000 for line in shown] == [True] * 3
    assert shown[0].endswith("... (10485759 characters)")
    out = read_all(run, "-o", "jsonl", stream="large")
    assert run("put", "large-copy", "--format", "records", stdin=out.stdout.encode()).status == 0
    assert datas(kinesis, "large-copy") == sorted(("k", data) for data in (text, binary, bomb))
    closed = lines(run("records", "grep", "x", "large", *FAST, "-o", "jsonl", "--where", "size > 100000"))
    assert [len(line["data"]) for line in closed] == [len(text)]
    (last,) = lines(read_all(run, "-o", "jsonl", "--decode", "--where", "size < 100000", stream="large"))
    (step,) = last["decoded"]["steps"]
    assert (step["opened"], "left closed" in step["why"]) == (False, True)


@pytest.mark.parametrize("part_s", [0.0, 1000.0])
def test_lines_come_in_parts_however_long_each_takes(
    run: Run, kinesis: Any, monkeypatch: pytest.MonkeyPatch, part_s: float
) -> None:
    monkeypatch.setattr("shardway.cli.records.PART_S", part_s)
    monkeypatch.setattr("shardway.cli.record_lines.PART_S", part_s)
    for number in range(6):
        put(kinesis, b"%d" % number, hash_key=0)
    found = lines(read_all(run, "-o", "jsonl", "--where", "size == 1"))
    assert [line["data"] for line in found] == [*"012345"]
    for limit in (1, 5, 6, 7):
        found = lines(read_all(run, "-o", "jsonl", "-n", str(limit)))
        assert [line["data"] for line in found] == [*"012345"[:limit]]


@pytest.mark.parametrize("operation", ["GetRecords", "GetShardIterator"])
def test_refusals_for_a_rate_end_no_tail_and_are_said_once(
    run: Run, kinesis: Any, local: LocalKinesis, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr("shardway.inspect.reads.wire.RETRY", RetryPolicy(attempts_max=2, base_s=0.001, cap_s=0.001))
    put(kinesis, b"it comes", hash_key=0)
    words = ("--shard", "shardId-000000000000", "--starting-position", "trim-horizon", *FAST, "-o", "jsonl")
    local.faults.add(Fault(how="throttle", operation=operation, count=5))
    done = run("records", "tail", "orders", "-n", "1", *words)
    assert (done.status, json.loads(done.stdout)["data"]) == (0, "it comes")
    assert done.stderr.count(f"shardway: kinesis:{operation} was refused") == 1
    assert done.stderr.endswith("Reading goes on\n")
    local.faults.add(Fault(how="throttle", operation=operation, count=2))
    bounded = run("records", "tail", "orders", "--no-follow", *words)
    assert (bounded.status, bounded.stdout) == (1, "")


@pytest.mark.parametrize("operation", ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"])
def test_a_permission_that_lacks_is_said(run: Run, kinesis: Any, local: LocalKinesis, operation: str) -> None:
    number = put(kinesis, b"shown", hash_key=0)
    local.faults.add(Fault(how="access_denied", operation=operation))
    shows = operation == "DescribeStreamSummary"
    for words in (("tail", "orders", "--no-follow"), ("grep", "sho", "orders"), ("count", "orders")):
        done = run("records", *words, *(() if words[0] == "count" else ("-o", "jsonl")), *FAST)
        if words[0] == "tail":
            assert done.stdout == ""  # it begins at the newest record
        assert (done.status, operation in done.stderr) == (0 if shows else 1, not shows or words[0] != "count")
    assert run("records", "get", "orders", number).status == (0 if shows else 1)


def test_get_shows_a_record_by_its_position(run: Run, kinesis: Any) -> None:
    number = put(kinesis, encode_aggregate([("a", b"zero", None), ("b", gzip.compress(b'{"n": 1}'), None)]))
    done = run("records", "get", "orders", f"{number}/1")
    assert (done.status, done.stderr) == (0, "")
    head, *steps = done.stdout.splitlines()
    assert head.endswith(f'{number}/1  b  {{"n": 1}}')
    assert steps == ["  gzip: it begins with 1f 8b", "  json: it is one value of JSON"]
    assert json.loads(run("records", "get", "orders", f"{number}/0", "-o", "jsonl").stdout)["data"] == "zero"
    gone = run("records", "get", "orders", f"{number}/2")
    assert (gone.status, gone.stdout) == (1, "")
    assert f"the stream orders has no record {number}/2" in gone.stderr
    assert "is no position" in run("records", "get", "orders", "x").stderr


def test_get_raw_is_the_data_alone(start: Callable[..., Any], kinesis: Any) -> None:
    number = put(kinesis, bytes(range(256)))
    out, err = start("records", "get", "orders", number, "--raw").communicate(timeout=60)
    assert (out, err) == (bytes(range(256)), b"")


def test_grep_looks_inside(run: Run, kinesis: Any) -> None:
    put(kinesis, gzip.compress(b"a Needle in here"), "one")
    put(kinesis, encode_aggregate([("two", b"needle", None), ("three", b"hay", None)]))
    found = run("records", "grep", "needle", "orders", *FAST, "-o", "jsonl")
    assert [line["partition_key"] for line in lines(found)] == ["two"]
    found = run("records", "grep", "needle", "orders", "-i", *FAST, "-o", "jsonl")
    assert {line["partition_key"] for line in lines(found)} == {"one", "two"}
    nothing = run("records", "grep", "thimble", "orders", *FAST)
    assert (nothing.status, nothing.stdout, nothing.stderr) == (1, "", "")


def test_count(run: Run, kinesis: Any) -> None:
    put(kinesis, b"xx", hash_key=0)
    put(kinesis, encode_aggregate([("a", b"xyz", None), ("b", b"", None)]), hash_key=2**128 - 1)
    done = run("records", "count", "orders", *FAST)
    assert (done.status, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        ["shardId-000000000000", "1", "2", "B"],
        ["shardId-000000000001", "2", "3", "B"],
        ["all", "3", "5", "B"],
    ]
    report = json.loads(run("records", "count", "orders", "--where", "size > 1", *FAST, "-o", "json").stdout)
    assert (report["schema"], report["user_records"]) == ("shardway.count/1", 2)


@pytest.mark.parametrize("word", ["seq", "after"])
def test_a_number_that_is_trimmed_is_said_and_ends_it(run: Run, kinesis: Any, local: LocalKinesis, word: str) -> None:
    old = put(kinesis, b"old", hash_key=0)
    local.clock.advance(25 * 3600)
    put(kinesis, b"new", hash_key=0)
    for follow in ("--no-follow", "--follow"):
        done = run("records", "tail", "orders", "--starting-position", f"{word}:{old}", follow, *FAST)
        assert (done.status, done.stdout) == (1, "")
        assert f"shardId-000000000000 of orders has no record {old} any more: it is trimmed" in done.stderr


def test_a_long_silence_behind_a_number_is_crossed(run: Run, kinesis: Any, local: LocalKinesis) -> None:
    old = put(kinesis, b"old", hash_key=0)
    local.clock.advance(4 * 3600)
    put(kinesis, b"new", hash_key=0)
    words = ("records", "tail", "orders", "--starting-position", f"after:{old}", "--no-follow", "-o", "jsonl", *FAST)
    assert [line["data"] for line in lines(run(*words))] == ["new"]


def test_records_are_pushed_to_a_consumer_that_is_there(run: Run, kinesis: Any, local: LocalKinesis) -> None:
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="looker")
    local.clock.advance(60)
    put(kinesis, b"before", hash_key=0)
    kinesis.split_shard(StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
    local.clock.advance(60)
    put(kinesis, b"after", hash_key=0)
    local.reset_stats()
    found = lines(read_all(run, "-o", "jsonl", "--fan-out", "looker"))
    assert [line["data"] for line in found] == ["before", "after"]
    assert local.stats().calls("GetRecords") == local.stats().calls("RegisterStreamConsumer") == 0
    none = read_all(run, "--fan-out", "other")
    assert (none.status, none.stdout) == (1, "")
    assert "orders has no consumer other; registered are: looker. None is registered for a look" in none.stderr
    assert local.stats().calls("RegisterStreamConsumer") == 0


def test_records_are_followed_by_fan_out(start: Callable[..., Any], kinesis: Any, local: LocalKinesis) -> None:
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="looker")
    local.clock.advance(60)
    words = ("records", "tail", "orders", "--starting-position", "trim-horizon", "--fan-out", "looker", "-o", "jsonl")
    tail = start(*words)
    put(kinesis, b"first", hash_key=0)
    assert json.loads(tail.stdout.readline())["data"] == "first"
    kinesis.split_shard(StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
    put(kinesis, b"second", hash_key=2**126)
    assert json.loads(tail.stdout.readline())["data"] == "second"
    tail.send_signal(signal.SIGINT)
    out, err = tail.communicate(timeout=60)
    assert (tail.returncode, out, err) == (0, b"", b"")


def test_a_registry_is_named_and_not_guessed(run: Run, kinesis: Any) -> None:
    put(kinesis, b"\0\0\0\0\1\x0e")
    (line,) = lines(read_all(run, "-o", "jsonl", "--decode"))
    assert line["decoded"]["steps"][0]["schema_id"] == "1"
    done = read_all(run, "-o", "jsonl", "--decode", "--schema-registry", "http://127.0.0.1:9")
    (line,) = lines(done)
    assert "its schema cannot be fetched: 127.0.0.1:9 gives no answer" in line["decoded"]["steps"][0]["why"]
    assert "--schema-registry: write its address" in read_all(run, "--schema-registry", "registry").stderr
