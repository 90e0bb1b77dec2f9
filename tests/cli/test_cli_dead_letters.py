"""``shardway dead-letters``: the originals are read again from the stream, by position, or taken from their letters."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.ledger.letter import Letter, NotALetterError
from shardway.model import Position
from shardway.runtime.dead_letters import reading, replay
from shardway.testing import Fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]

NOW = dt.datetime(2026, 5, 4, 3, 2, 1, tzinfo=dt.UTC)


def letter_of(answer: dict[str, Any], sub: int = 0, **more: Any) -> Letter:
    return Letter(
        **{
            "stream": "orders", "shard_id": answer["ShardId"], "position": Position(int(answer["SequenceNumber"]), sub),
            "attempts": 3, "error_type": "ValueError", "error_message": "no such customer", "written_at": NOW, **more,
        }
    )  # fmt: skip


def write(path: Path, *letters: Letter, extra: bytes = b"") -> str:
    path.write_bytes(b"".join(letter.to_json() + b"\n" for letter in letters) + extra)
    return str(path)


def datas(kinesis: Any, stream: str) -> list[tuple[str, bytes]]:
    found = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        behind = True
        while behind:
            page = kinesis.get_records(ShardIterator=iterator)
            found += [(record["PartitionKey"], record["Data"]) for record in page["Records"]]
            iterator, behind = page.get("NextShardIterator"), page["MillisBehindLatest"]
    return sorted(found)


def put(kinesis: Any, data: bytes, key: str = "k", stream: str = "orders") -> dict[str, Any]:
    answer: dict[str, Any] = kinesis.put_record(StreamName=stream, PartitionKey=key, Data=data)
    return answer


def aggregate_of(*datas: bytes) -> bytes:
    return encode_aggregate([(f"key {number}", data, None) for number, data in enumerate(datas)])


def test_replay_puts_the_originals_back_into_a_stream(run: Run, kinesis: Any, tmp_path: Path) -> None:
    kinesis.create_stream(StreamName="again", ShardCount=1)
    plain, whole = put(kinesis, b"plain", "a key"), put(kinesis, aggregate_of(b"a0", b"a1", b"a2"))
    put(kinesis, b"others")
    path = write(tmp_path / "dead.jsonl", letter_of(plain), letter_of(whole, 1), letter_of(whole, 1, part=2))
    done = run("dead-letters", "replay", "--of", "orders", path, "--to", "again")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout == (
        "2 records replayed, 0 of them from their letters; 1 letters were of records that were replayed already\n"
    )
    assert datas(kinesis, "again") == [("a key", b"plain"), ("key 1", b"a1")]


def test_replay_takes_what_the_stream_has_no_more_from_the_letter(
    run: Run, kinesis: Any, local: LocalKinesis, tmp_path: Path
) -> None:
    kinesis.create_stream(StreamName="again", ShardCount=1)
    trimmed = put(kinesis, b"old")
    local.clock.advance(25 * 3600)
    put(kinesis, b"new")
    gone = trimmed | {"ShardId": "shardId-000000000099"}
    path = write(
        tmp_path / "dead.jsonl",
        letter_of(gone, data=b"kept", partition_key="p"),
        letter_of(trimmed, data=b"kept too", partition_key="p"),
        letter_of(gone, 1),
    )
    left = tmp_path / "left.jsonl"
    done = run("dead-letters", "replay", "--of", "orders", path, "--to", "again", "--left", str(left))
    assert done.status == 1, done
    assert done.stdout == "2 records replayed, 2 of them from their letters\n"
    assert "in the stream no more, and not in its letter" in done.stderr
    assert datas(kinesis, "again") == [("p", b"kept"), ("p", b"kept too")]
    assert [Letter.from_json(line).position.sub_sequence_number for line in left.read_bytes().splitlines()] == [1]


def test_replay_calls_a_function_with_each_record_and_its_letter(
    run: Run, kinesis: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repairing.py").write_text(
        "got = []\n"
        "async def handle(record, letter):\n"
        "    if record.data == b'bad':\n"
        "        raise ValueError('still bad')\n"
        "    got.append((record.data, record.partition_key, letter.error_type, letter.part))\n"
    )
    monkeypatch.chdir(tmp_path)
    path = write(
        tmp_path / "dead.jsonl",
        letter_of(put(kinesis, b"bad")),
        letter_of(answer := put(kinesis, b"good"), part=0),
        letter_of(answer, part=1),
    )
    done = run("dead-letters", "replay", "--of", "orders", path, "--call", "repairing:handle", "-o", "json")
    import repairing

    assert done.status == 1
    assert json.loads(done.stdout) == {
        "replayed": 2, "from_stream": 2, "from_letter": 0, "again": 0, "gone": 0, "failed": 1, "foreign": 0, "bad": 0,
    }  # fmt: skip
    assert "not taken" in done.stderr
    assert "still bad" not in done.stderr, "an error's message may hold data"
    assert repairing.got == [(b"good", "k", "ValueError", 0), (b"good", "k", "ValueError", 1)]


def test_letters_of_a_stream_are_listed_and_replayed(run: Run, kinesis: Any) -> None:
    for stream in ("graves", "again"):
        kinesis.create_stream(StreamName=stream, ShardCount=2)
    letters = [letter_of(put(kinesis, b"%d" % number)) for number in range(5)]
    for number, letter in enumerate(letters):
        put(kinesis, letter.to_json(), str(number), "graves")
    listed = run("dead-letters", "list", "--from", "graves")
    assert listed.status == 0
    assert listed.stdout.endswith("5 dead letters: 5 ValueError\n")
    assert all(str(letter.position.sequence_number) in listed.stdout for letter in letters)
    assert run("dead-letters", "replay", "--of", "orders", "--from", "graves", "--to", "again").status == 0
    assert [data for _, data in datas(kinesis, "again")] == [b"0", b"1", b"2", b"3", b"4"]


def test_letters_are_listed_once_each_when_an_iterator_expires_between_them(
    run: Run, kinesis: Any, local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RECORDS_MAX", 2)
    kinesis.create_stream(StreamName="graves", ShardCount=1)
    letters = [letter_of(put(kinesis, b"%d" % number)) for number in range(5)]
    for number, letter in enumerate(letters):
        put(kinesis, letter.to_json(), str(number), "graves")
    local.faults.add(Fault(how="expired_iterator", operation="GetRecords", skip=1, count=2))
    listed = run("dead-letters", "list", "--from", "graves")
    assert listed.status == 0, listed.stderr
    assert listed.stdout.endswith("5 dead letters: 5 ValueError\n")


def test_a_replay_crosses_hours_of_silence_in_both_streams(run: Run, kinesis: Any, local: LocalKinesis) -> None:
    """Before the first letter, between letters and behind the last one; and in the stream of the records, where a
    number that is trimmed gives empty pages for ever.
    """
    for stream in ("graves", "again"):
        kinesis.create_stream(StreamName=stream, ShardCount=1)
    trimmed = put(kinesis, b"old")
    local.clock.advance(10 * 3600)
    first = put(kinesis, b"first")
    local.clock.advance(5 * 3600)
    put(kinesis, letter_of(trimmed, data=b"kept", partition_key="k").to_json(), stream="graves")
    local.clock.advance(6 * 3600)
    second = put(kinesis, b"second")
    for one in (first, second):
        put(kinesis, letter_of(one).to_json(), stream="graves")
        local.clock.advance(2 * 3600)  # the oldest record is gone then
    local.reset_stats()
    done = run("dead-letters", "replay", "--of", "orders", "--from", "graves", "--to", "again", "-o", "json")
    assert done.status == 0, done
    assert json.loads(done.stdout) == {
        "replayed": 3, "from_stream": 2, "from_letter": 1, "again": 0, "gone": 0, "failed": 0, "foreign": 0, "bad": 0,
    }  # fmt: skip
    assert local.stats().operations["GetRecords"].calls > 20, "an hour a page is crossed by default"
    assert sorted(data for _, data in datas(kinesis, "again")) == [b"first", b"kept", b"second"]


def test_a_list_shows_no_data_unless_it_is_asked_to(run: Run, tmp_path: Path) -> None:
    answer = {"ShardId": "shardId-000000000000", "SequenceNumber": "17"}
    path = write(
        tmp_path / "dead.jsonl", letter_of(answer, data=b"card 4711", partition_key="Ann"), extra=b"\nrubbish\n"
    )
    done = run("dead-letters", "list", path)
    assert done.status == 1
    assert done.stdout == (
        "2026-05-04T03:02:01+0000  orders shardId-000000000000 17/0  3 attempts  ValueError\n"
        "1 dead letter: 1 ValueError\n"
    )
    assert done.stderr == "shardway: line 3: it is not JSON: no dead letter\n"
    assert "no such customer" in run("dead-letters", "list", path, "--messages").stdout
    (line,) = run("dead-letters", "list", path, "-o", "jsonl").stdout.splitlines()
    assert not {"data", "partition_key", "error_message"} & json.loads(line).keys()
    assert json.loads(line)["data_bytes"] == 9
    (line,) = run("dead-letters", "list", path, "-o", "jsonl", "--data").stdout.splitlines()
    assert json.loads(line)["partition_key"] == "Ann"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("replay", "FILE"), "choose one of"),
        (("replay", "FILE", "--to", "a", "--call", "b:c"), "choose one of"),
        (("replay", "FILE", "--to", "a"), "name the stream of the records with --of"),
        (("replay", "--of", "a", "--to", "orders"), "name a file"),
        (("list", "FILE", "--from", "graves"), "name a file"),
        (("replay", "FILE", "--of", "a", "--call", "nothing"), "MODULE:FUNCTION"),
        (("replay", "FILE", "--of", "a", "--call", "json:nothing"), "nothing"),
        (("replay", "FILE", "--of", "a", "--call", "json:__name__"), "no function"),
        (("list", "not there"), "cannot be read"),
    ],
    ids=str,
)
def test_wrong_uses_are_told(run: Run, tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    path = write(tmp_path / "dead.jsonl")
    done = run("dead-letters", *[path if one == "FILE" else one for one in arguments])
    assert done.status in (1, 2)
    assert text in done.stderr.replace("\n", " ")


def test_what_is_left_is_written_to_a_new_file_only(run: Run, local: LocalKinesis, tmp_path: Path) -> None:
    path = write(tmp_path / "dead.jsonl")
    done = run("dead-letters", "replay", "--of", "orders", path, "--to", "orders", "--left", path)
    assert done.status == 1
    assert "--left" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[1]", b"{}", b'{"kind": "shardway dead letter"}', b'{"kind": "shardway dead letter", "version": 2}',
        b'{"kind": "shardway dead letter", "version": 1}', b"[" * 100_000, b"\xff",
        letter_of({"ShardId": "s", "SequenceNumber": "1"}, data=b"abc").to_json().replace(b'"YWJj"', b'"Y!Jj"'),
    ],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_letter_is_refused_and_not_shown(line: bytes) -> None:
    with pytest.raises(NotALetterError, match=r"^(it is|its fields)"):
        Letter.from_json(line)


def test_a_letter_is_what_it_was_after_it_was_written() -> None:
    letter = letter_of(
        {"ShardId": "s", "SequenceNumber": str(2**186)}, 7, part=3, worker="w", token=9, arrived_at=NOW,
        partition_key="Zoë", explicit_hash_key=2**127, data=bytes(range(256)), left_out_bytes=5,
    )  # fmt: skip
    assert Letter.from_json(letter.to_json()) == letter


HALF = "cut emoji \ud83d"
HALVES: dict[str, Any] = {
    "stream": "or\ud83dders", "shard_id": "shardId-\udfff", "error_type": "Value\ud83dError", "error_message": HALF,
    "worker": HALF, "partition_key": HALF,
}  # fmt: skip


def test_half_an_emoji_is_replaced_when_a_letter_is_written() -> None:
    """A handler's error quotes a record; the record counts as settled once the letter is written."""
    answer = {"ShardId": "s", "SequenceNumber": "1"}
    letter = letter_of(answer, data=b"x", **HALVES)
    found = Letter.from_json(letter.to_json())
    assert (found.error_message, found.partition_key) == ("cut emoji \ufffd", "cut emoji \ufffd")
    assert json.loads(letter.to_json())["error_message"] == "cut emoji \ufffd"


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("options", [[], ["--messages"], ["-o", "jsonl", "--messages", "--data"]])
def test_letters_that_were_written_with_half_an_emoji_are_listed(
    run: Run, tmp_path: Path, name: str, options: list[str]
) -> None:
    good = json.loads(letter_of({"ShardId": "s", "SequenceNumber": "1"}, data=b"x").to_json())
    path = tmp_path / "dead.jsonl"
    path.write_text(json.dumps(good | {name: HALVES[name]}) + "\n", encoding="ascii")
    assert "\\ud" in path.read_text(encoding="ascii")
    done = run("dead-letters", "list", str(path), *options)
    assert (done.status, done.stderr) == (0, "")


def test_letters_that_were_written_with_half_an_emoji_are_replayed(run: Run, kinesis: Any, tmp_path: Path) -> None:
    kinesis.create_stream(StreamName="again", ShardCount=1)
    good = json.loads(letter_of(put(kinesis, b"good")).to_json())
    path = tmp_path / "dead.jsonl"
    path.write_text(json.dumps(good | {"error_message": HALF, "worker": HALF, "partition_key": HALF}) + "\n")
    done = run("dead-letters", "replay", str(path), "--of", "orders", "--to", "again")
    assert (done.status, done.stderr) == (0, "")
    assert datas(kinesis, "again") == [("k", b"good")]


def test_no_letter_chooses_which_stream_is_read(run: Run, kinesis: Any, tmp_path: Path) -> None:
    """A program that may write letters knows a position of a stream that the operator may read."""
    for name in ("again", "salaries"):
        kinesis.create_stream(StreamName=name, ShardCount=1)
    good = letter_of(put(kinesis, b"good"))
    arn = kinesis.describe_stream_summary(StreamName="salaries")["StreamDescriptionSummary"]["StreamARN"]
    secret = put(kinesis, b"secret", stream="salaries")
    foreign = [letter_of(secret, stream=stream, data=b"x") for stream in ("salaries", arn, "orders ", "Orders")]
    path, left = write(tmp_path / "d.jsonl", *foreign, good), tmp_path / "left.jsonl"
    done = run("dead-letters", "replay", path, "--of", "orders", "--to", "again", "--left", str(left), "-o", "json")
    assert done.status == 1
    assert json.loads(done.stdout) | {"replayed": 1, "foreign": 4, "failed": 0} == json.loads(done.stdout)
    assert "of a stream that --of does not name" in done.stderr
    assert datas(kinesis, "again") == [("k", b"good")]
    assert [Letter.from_json(line).stream for line in left.read_bytes().splitlines()] == [one.stream for one in foreign]


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b1A"


@pytest.mark.parametrize("options", [[], ["--messages"], ["-o", "jsonl", "--messages", "--data"]])
def test_no_letter_gives_orders_to_the_terminal(run: Run, tmp_path: Path, options: list[str]) -> None:
    """A program that can write a letter could else hide lines, or rename the window. A line feed forges no line."""
    answer = {"ShardId": f"shardId-{ESCAPES}", "SequenceNumber": "1"}
    letter = letter_of(
        answer, stream=f"or{ESCAPES}ders", error_type=f"Value{ESCAPES}\nError", error_message=f"no{ESCAPES}\nsuch",
        worker=ESCAPES, partition_key=ESCAPES, data=b"\x1b[2J",
    )  # fmt: skip
    done = run("dead-letters", "list", write(tmp_path / "dead.jsonl", letter), *options)
    assert (done.status, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == (1 if "jsonl" in options else 2)
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert "owned" in done.stdout


def test_letters_stand_by_their_errors_and_many_of_one_error_are_counted(run: Run, tmp_path: Path) -> None:
    answer = {"ShardId": "shardId-000000000000", "SequenceNumber": "17"}
    common, rare = (json.loads(letter_of(answer, error_type=name).to_json()) for name in ("KeyError", "OSError"))
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [*[common] * 30, rare, *[common] * 30]))
    lines = run("dead-letters", "list", str(path)).stdout.splitlines()
    assert ["KeyError" in one for one in lines] == [True] * 11 + [False, True]
    assert lines[10] == "and 50 more with KeyError, written from 2026-05-04T03:02:01Z to 2026-05-04T03:02:01Z"
    assert lines[-1] == "61 dead letters: 60 KeyError, 1 OSError"
    assert len(run("dead-letters", "list", str(path), "-o", "jsonl").stdout.splitlines()) == 61


@pytest.mark.usefixtures("local")
def test_nor_does_one_that_is_not_replayed(run: Run, tmp_path: Path) -> None:
    answer = {"ShardId": f"shardId-{ESCAPES}", "SequenceNumber": "1"}
    path = write(tmp_path / "dead.jsonl", letter_of(answer), letter_of(answer, stream=f"or{ESCAPES}ders"))
    done = run("dead-letters", "replay", "--of", "orders", path, "--to", "orders")
    assert done.status == 1
    assert all(line.isprintable() for line in f"{done.stdout}{done.stderr}".splitlines())
    assert "owned" in done.stderr


def test_an_error_of_a_command_is_plain_too(run: Run) -> None:
    done = run("dead-letters", "list", f"missing{ESCAPES}.jsonl")
    assert done.status == 1
    assert all(line.isprintable() for line in done.stderr.splitlines())


ODD_FIELDS = [
    {"stream": 5}, {"stream": ""}, {"stream": None}, {"shard_id": ["s"]}, {"error_type": ["a"]},
    {"error_type": {}}, {"error_message": 5}, {"sequence_number": "1e9"}, {"sequence_number": 1e400},
    {"sequence_number": "-1"}, {"sequence_number": "9" * 5000}, {"sequence_number": True}, {"attempts": "many"},
    {"attempts": None}, {"part": "x"}, {"worker": 5}, {"token": -1}, {"written_at": "yesterday"}, {"written_at": 5},
    {"arrived_at": "9999-99-99"}, {"partition_key": 5}, {"explicit_hash_key": "x"},
    {"data": 5}, {"data": "\xe9"}, {"left_out_bytes": 1e300},
]  # fmt: skip


def test_odd_letters_end_neither_a_list_nor_a_replay(run: Run, kinesis: Any, tmp_path: Path) -> None:
    """Each is told with its line and its field, and what stands around it is listed and replayed."""
    kinesis.create_stream(StreamName="again", ShardCount=1)
    good = letter_of(put(kinesis, b"good"), data=b"x")
    odd = [json.dumps(json.loads(good.to_json()) | fields).encode() for fields in ODD_FIELDS]
    path = tmp_path / "dead.jsonl"
    path.write_bytes(b"\n".join([good.to_json(), *odd, good.to_json()]) + b"\n")
    for options in ([], ["-o", "jsonl", "--messages", "--data"], ["--messages"]):
        listed = run("dead-letters", "list", str(path), *options)
        assert listed.status == 1
        assert listed.stdout.count("shardId-") == 2
        assert "line 2: its fields cannot be read (stream is no text): no dead letter" in listed.stderr
        assert f"and {len(odd) - 10} more: no dead letter" in listed.stderr
    replayed = run("dead-letters", "replay", "--of", "orders", str(path), "--to", "again")
    assert replayed.status == 1
    assert replayed.stdout.startswith("1 records replayed")
    assert datas(kinesis, "again") == [("k", b"good")]


@pytest.mark.parametrize("fields", ODD_FIELDS, ids=lambda fields: repr(fields)[:40])
def test_an_odd_field_makes_it_no_letter(fields: dict[str, Any]) -> None:
    good = json.loads(letter_of({"ShardId": "s", "SequenceNumber": "1"}).to_json())
    with pytest.raises(NotALetterError, match="its fields cannot be read"):
        Letter.from_json(json.dumps(good | fields).encode())


def test_a_letter_that_names_no_stream_keeps_no_other_from_its_replay(run: Run, kinesis: Any, tmp_path: Path) -> None:
    kinesis.create_stream(StreamName="again", ShardCount=1)
    good = letter_of(put(kinesis, b"good"))
    streams = ["arn:aws:kinesis:eu-west-1", "arn:aws:kinesis:mars-1:123456789012:stream/x", "no such stream", "../x"]
    odd = [letter_of({"ShardId": "s", "SequenceNumber": "1"}, stream=stream) for stream in streams]
    path, left = write(tmp_path / "d.jsonl", *odd, good), tmp_path / "left.jsonl"
    of = [word for stream in (*streams, "orders") for word in ("--of", stream)]
    done = run("dead-letters", "replay", path, *of, "--to", "again", "--left", str(left))
    assert (done.status, done.stdout) == (1, "1 records replayed, 0 of them from their letters\n")
    assert len(left.read_bytes().splitlines()) == len(odd)


def test_streams_are_not_kept_open_without_bound(
    run: Run, kinesis: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "SOURCES_MAX", 2)
    kinesis.create_stream(StreamName="again", ShardCount=1)
    good = letter_of(put(kinesis, b"good"))
    others = [letter_of({"ShardId": "s", "SequenceNumber": "1"}, stream=f"other-{n}", data=b"x") for n in range(5)]
    path = write(tmp_path / "d.jsonl", good, *others, good)
    of = [word for one in (good, *others) for word in ("--of", one.stream)]
    done = run("dead-letters", "replay", path, *of, "--to", "again")
    assert done.stdout.startswith("6 records replayed, 5 of them from their letters; 1 letters were of records")


def test_letters_since_a_time(run: Run, tmp_path: Path) -> None:
    answer = {"ShardId": "shardId-000000000000", "SequenceNumber": "7"}
    later = letter_of(answer, 1, written_at=NOW + dt.timedelta(hours=1))
    path = write(tmp_path / "dead.jsonl", letter_of(answer), later)
    found = run("dead-letters", "list", path, "-o", "jsonl", "--since", "2026-05-04T03:30Z").stdout.splitlines()
    assert [json.loads(line)["sub_sequence_number"] for line in found] == [1]
    assert run("dead-letters", "list", path, "--since", "1m ago").stdout == "0 dead letters\n"
    assert "is no time" in run("dead-letters", "list", path, "--since", "noon").stderr
