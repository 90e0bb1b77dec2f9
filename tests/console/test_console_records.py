"""Lists of records: the newest of all shards, columns out of JSON, and whole records in place."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.console.columns import COLUMNS_MAX, DEFAULT, FIELDS_MAX, Columns, cell_of, fields_of, path_of, steps_of
from shardway.console.decoding_threads import DecodingThreads
from shardway.console.json_colours import coloured
from shardway.console.looks.newest import Mark, NewestQuery, NewestRecords
from shardway.core.aggregation import reader
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.log import user_records
from shardway.errors import OptionError
from shardway.inspect import Inspector
from shardway.wiring import stream_name
from tests.console.asking import TOKEN, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.local import LocalKinesis
    from shardway.wiring import ConnectionOptions
    from tests.console.conftest import MakeGate

PROGRAM = {"authorization": f"Bearer {TOKEN}", "accept": "text/html"}
HOSTILE = ["<script>x</script>", 'a"b', "a\\b", "a,b c", "", "ключ", "\ud83d", "]", "['x']", "\n", "__proto__", "col"]
SPAN = 2**128


@pytest.fixture(scope="module")
def kinesis(service: LocalKinesis) -> Iterator[Any]:
    client = boto3.client("kinesis", endpoint_url=service.endpoint_url, region_name=service.region)
    yield client
    client.close()


@pytest.fixture
def stream(kinesis: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream of four shards, for one test."""
    name = re.sub(r"\W", "-", request.node.name)[:100]
    kinesis.create_stream(StreamName=name, ShardCount=4)
    yield name
    kinesis.delete_stream(StreamName=name)


def put(kinesis: Any, stream: str, number: int, *, shard: int | None = None, data: bytes | None = None) -> None:
    body = json.dumps({"n": number, "of": {"shard": shard}}).encode() if data is None else data
    where = {} if shard is None else {"ExplicitHashKey": str(SPAN // 4 * shard)}
    kinesis.put_record(StreamName=stream, Data=body, PartitionKey=f"key-{number}", **where)


async def numbers_of(connection: ConnectionOptions, stream: str, wish: NewestQuery) -> list[int]:
    async with Inspector(connection) as inspector:
        newest = NewestRecords(inspector, stream_name(stream), wish, DecodingThreads())
        await newest.search()
        assert newest.is_done
        return [one.decoded.value["n"] for one in newest.records]


# --- the newest -----------------------------------------------------------------------------------


async def test_the_newest_are_of_all_shards_in_the_order_of_their_arrival(
    kinesis: Any, stream: str, connection: ConnectionOptions
) -> None:
    for number in range(40):
        put(kinesis, stream, number, shard=number % 4)
    found = await numbers_of(connection, stream, NewestQuery(10))
    assert sorted(found) == list(range(30, 40))
    assert await numbers_of(connection, stream, NewestQuery(10, shard="shardId-000000000002")) == list(range(38, 0, -4))
    put(kinesis, stream, 40)
    assert await numbers_of(connection, stream, NewestQuery(5, key="key-40")) == [40]


async def test_a_quiet_stream_is_read_from_further_back(
    kinesis: Any, stream: str, connection: ConnectionOptions, service: LocalKinesis
) -> None:
    put(kinesis, stream, 1, shard=0)
    service.clock.advance(900)
    put(kinesis, stream, 2, shard=3)
    assert await numbers_of(connection, stream, NewestQuery(5)) == [2, 1]


async def test_a_dense_shard_is_not_read_from_the_beginning_of_the_window(
    kinesis: Any, stream: str, connection: ConnectionOptions, service: LocalKinesis
) -> None:
    for batch in range(24):
        records = [
            {"Data": b'{"n": %d}' % (batch * 400 + at), "PartitionKey": "k", "ExplicitHashKey": "0"}
            for at in range(400)
        ]
        kinesis.put_records(StreamName=stream, Records=records)
        service.clock.advance(0.4)
    async with Inspector(connection) as inspector:
        newest = NewestRecords(inspector, stream_name(stream), NewestQuery(20), DecodingThreads())
        await newest.search()
        assert next(one.decoded.value["n"] for one in newest.records) == 24 * 400 - 1
        assert len(newest.records) == 20
        assert newest.searched < 24 * 400


async def test_large_aggregates_are_opened_beside_the_loop(
    kinesis: Any, stream: str, connection: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in range(3):
        users = [(f"key-{at % 50}", b'{"n": %d}' % (page * 20_000 + at), 0) for at in range(20_000)]
        put(kinesis, stream, page, shard=0, data=encode_aggregate(users))
    real, here, on_loop = reader.open_aggregate, threading.get_ident(), list[int]()

    def counted(data: bytes) -> Any:
        found = real(data)
        if threading.get_ident() == here and found is not None:
            on_loop.append(len(found))
        return found

    monkeypatch.setattr(user_records, "open_aggregate", counted)
    assert await numbers_of(connection, stream, NewestQuery(5)) == list(range(59_999, 59_994, -1))
    assert on_loop == []


async def test_an_empty_stream_and_a_filter_that_nothing_passes_find_nothing(
    kinesis: Any, stream: str, connection: ConnectionOptions
) -> None:
    assert await numbers_of(connection, stream, NewestQuery(5)) == []
    put(kinesis, stream, 1)
    assert await numbers_of(connection, stream, NewestQuery(5, matches=lambda _: False)) == []
    with pytest.raises(OptionError, match="no shard nothing"):
        await numbers_of(connection, stream, NewestQuery(5, shard="nothing"))


@pytest.mark.parametrize("behind_s", [0.0, 0.9])
async def test_older_pages_have_each_record_once_also_where_many_came_in_one_millisecond(
    make_gate: MakeGate, kinesis: Any, stream: str, monkeypatch: pytest.MonkeyPatch, behind_s: float
) -> None:
    """Also where the service's time is known as one that lies before the records: its answers tell whole seconds."""
    now_s: Any = Inspector.now_s
    monkeypatch.setattr(Inspector, "now_s", property(lambda inspector: now_s.fget(inspector) - behind_s))
    # a page that took longer would lack some
    monkeypatch.setattr("shardway.console.pages.record_search.SEARCH_S", 60.0)
    records = [{"Data": b'{"n": %d}' % number, "PartitionKey": str(number)} for number in range(25)]
    kinesis.put_records(StreamName=stream, Records=records)
    gate, found = make_gate(), list[int]()
    target: str | None = f"/streams/{stream}/records?limit=10&col=.n"
    for _ in range(5):
        if target is None:
            break
        text = (await ask(gate, "GET", target, headers=PROGRAM)).text
        found += [int(one) for one in re.findall(r'data-name=".n">(\d+)</td>', text)]
        older = re.search(r'href="([^"]*)" rel="next">Older ones', text)
        target = None if older is None else older[1].replace("&amp;", "&")
    assert sorted(found) == list(range(25))
    assert target is None


async def followed(gate: Any, target: str, word: str) -> tuple[list[int], list[str]]:
    """Open a page, and what it links to by a word, to the end. Returns the numbers and the pages."""
    found, pages, left = list[int](), list[str](), target
    while left and len(pages) < 20:
        text = (await ask(gate, "GET", left, headers=PROGRAM)).text
        found += [int(one) for one in re.findall(r'data-name=".n">(\d+)</td>', text)]
        pages.append(text)
        link = re.search(rf'href="([^"]*)" rel="next">{word}', text)
        left = "" if link is None else link[1].replace("&amp;", "&")
    return found, pages


async def test_a_search_that_is_cut_off_goes_on_where_it_was_cut(
    make_gate: MakeGate, kinesis: Any, stream: str, service: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds of a busy stream are read in time, and ten minutes are not: a filter that seldom holds came no
    further than the first ten seconds.
    """
    for number in range(40):
        put(kinesis, stream, number, shard=number % 4)
        service.clock.advance(1.0)
    plain = NewestRecords._read

    async def read(self: Any, shard: Any, window_s: float, end_s: float) -> None:
        await (asyncio.Event().wait() if window_s > 10.0 else plain(self, shard, window_s, end_s))

    monkeypatch.setattr(NewestRecords, "_read", read)
    monkeypatch.setattr("shardway.console.pages.record_search.SEARCH_S", 1.5)
    target = f"/streams/{stream}/records?col=.n&where=.n+==+12+or+.n+==+31"
    found: list[int] = []
    for _ in range(6):
        text = (await ask(make_gate(), "GET", target, headers=PROGRAM)).text
        found += [int(one) for one in re.findall(r'data-name=".n">(\d+)</td>', text)]
        assert "1.5 s were searched, and all back to 20" in text
        older = re.search(r'href="([^"]*)" rel="next">Older ones', text)
        assert older is not None
        target = older[1].replace("&amp;", "&")
        if 12 in found:
            break
    assert found == [31, 12]


async def test_what_is_older_than_a_page_with_gaps_begins_before_the_gaps(
    make_gate: MakeGate, kinesis: Any, stream: str, service: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One shard is read to the end, another not: the rows of the first are older than what the second lacks."""
    for number in range(60):
        put(kinesis, stream, number, shard=number % 2)
    plain, hangs = NewestRecords._read, True

    async def read(self: Any, shard: Any, window_s: float, end_s: float) -> None:
        slow = hangs and window_s > 10.0 and shard.shard_id.endswith("1")
        await (asyncio.Event().wait() if slow else plain(self, shard, window_s, end_s))

    service.clock.advance(30.0)
    monkeypatch.setattr(NewestRecords, "_read", read)
    monkeypatch.setattr("shardway.console.pages.record_search.SEARCH_S", 1.5)
    gate, target = make_gate(), f"/streams/{stream}/records?limit=20&col=.n"
    text = (await ask(gate, "GET", target, headers=PROGRAM)).text
    assert set(re.findall(r'data-name=".n">(\d+)</td>', text)) == {str(one) for one in range(20, 60, 2)}
    older = re.search(r'href="([^"]*)" rel="next">Older ones', text)
    assert older is not None
    hangs = False
    monkeypatch.setattr("shardway.console.pages.record_search.SEARCH_S", 60.0)
    found, _ = await followed(gate, older[1].replace("&amp;", "&"), "Older ones")
    assert sorted(found) == list(range(60))


async def test_what_follows_a_page_is_the_rest_of_its_aggregate(make_gate: MakeGate, kinesis: Any, stream: str) -> None:
    users = [(f"key-{at}", b'{"n": %d}' % at, 0) for at in range(120)]
    put(kinesis, stream, 0, shard=0, data=encode_aggregate(users))
    put(kinesis, stream, 120, shard=0)
    target = f"/streams/{stream}/records?from=trim-horizon&shard=shardId-000000000000&col=.n"
    found, pages = await followed(make_gate(), target, "What follows")
    assert found == list(range(121))
    assert len(pages) == 3


async def test_a_search_of_one_shard_that_finds_nothing_in_its_time_can_go_on(
    make_gate: MakeGate, kinesis: Any, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.console.pages.record_search.SEARCHED_MAX", 10)
    for number in range(25):
        put(kinesis, stream, number, shard=0)
    target = f"/streams/{stream}/records?from=trim-horizon&shard=shardId-000000000000&col=.n&where=.n+==+24"
    found, pages = await followed(make_gate(), target, "What follows")
    assert found == [24]
    assert len(pages) == 3


async def test_records_open_with_the_newest_and_a_download_has_the_same(
    make_gate: MakeGate, kinesis: Any, stream: str
) -> None:
    for number in range(60):
        put(kinesis, stream, number, shard=number % 4)
    gate = make_gate()
    text = (await ask(gate, "GET", f"/streams/{stream}/records", headers=PROGRAM)).text
    assert "50 shown" in text
    assert "the newest 50 of all shards" in text
    shards = set(re.findall(r'title="shardId-00000000000(\d)"', text))
    assert shards == {"0", "1", "2", "3"}
    lines = (await ask(gate, "GET", f"/streams/{stream}/download", headers=PROGRAM)).text.splitlines()
    assert sorted(json.loads(json.loads(one)["data"])["n"] for one in lines) == list(range(10, 60))


async def test_the_newest_are_in_the_audit_log_and_masks_hold_for_columns(
    make_gate: MakeGate, kinesis: Any, stream: str, tmp_path: Any
) -> None:
    put(kinesis, stream, 1, data=b'{"customer": {"email": "ada@example.org", "tier": "gold"}}')
    gate = make_gate(masks=(".customer.email",))
    target = f"/streams/{stream}/records?col=.customer.email&col=.customer.tier&col=data"
    text = (await ask(gate, "GET", target, headers=PROGRAM)).text
    assert "ada@example.org" not in text
    assert 'data-name=".customer.email">***</td>' in text
    assert 'data-name=".customer.tier">gold</td>' in text
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert line["target"] == {"stream": stream, "from": "newest"}


@pytest.mark.parametrize("query", ["before=x", "before=1.2", f"before={'9' * 40}.1.1", "from=newest&until=never"])
async def test_a_place_that_means_nothing_is_told_so(make_gate: MakeGate, query: str) -> None:
    answer = await ask(make_gate(), "GET", f"/streams/orders/records?{query}", headers=PROGRAM)
    assert answer.status == 400
    assert "Traceback" not in answer.text


def test_a_mark_is_read_as_it_is_written() -> None:
    mark = Mark(1_795_552_920_123, 49680532863550020157113077900349422948475552693783363602, 7)
    assert Mark.parse(mark.text) == mark


async def test_of_a_stream_with_thousands_of_shards_a_bounded_count_is_read_and_the_page_says_so(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch, kinesis: Any, stream: str
) -> None:
    monkeypatch.setattr("shardway.console.looks.newest.SHARDS_MAX", 2)
    for number in range(8):
        put(kinesis, stream, number, shard=number % 4)
    text = (await ask(make_gate(), "GET", f"/streams/{stream}/records", headers=PROGRAM)).text
    assert "2 more shards were not read: choose one" in text
    assert "4 shown" in text


async def test_a_stream_of_five_thousand_shards_is_shown_within_the_time_of_a_search(
    make_gate: MakeGate, kinesis: Any
) -> None:
    kinesis.create_stream(StreamName="wide", ShardCount=5_000)
    try:
        put(kinesis, "wide", 1, shard=0)
        gate = make_gate()
        text = (await ask(gate, "GET", "/streams/wide/records", headers=PROGRAM)).text
        assert "4800 more shards were not read: choose one" in text
        assert "1 shown" in text
        shard = "shardId-000000004999"
        text = (await ask(gate, "GET", f"/streams/wide/records?shard={shard}", headers=PROGRAM)).text
        assert "0 shown, 0 searched; there are no more" in text
        assert (await ask(gate, "GET", "/streams/wide", headers=PROGRAM)).status == 200
    finally:
        kinesis.delete_stream(StreamName="wide")


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_each_name_that_json_may_have_is_a_column(name: str) -> None:
    value = {name: {"inner": [1, {"x": "found"}]}}
    path = path_of((name, "inner", 1, "x"))
    assert path.isascii()
    assert steps_of(path) == (name, "inner", 1, "x")
    assert cell_of(value, steps_of(path)) == "found"
    (offered,) = fields_of([{name: 1}])
    (column,) = Columns([offered]).shown
    assert column.steps == (name,) or column.name == name  # "col" is no fixed column


@pytest.mark.parametrize(
    ("path", "steps"),
    [(".a.b-c", ("a", "b-c")), ("a[0].b", ("a", 0, "b")), ('["a b"].c', ("a b", "c")), (".a", ("a",))],
)
def test_a_path_is_read_as_a_visitor_writes_it(path: str, steps: tuple[str | int, ...]) -> None:
    assert steps_of(path) == steps


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[", "a[x]", 'a["', "[1" + "0" * 40 + "]", "." + "a" * 300, "<"])
def test_a_path_that_cannot_be_read_is_told_so(path: str) -> None:
    with pytest.raises(OptionError, match="is no column"):
        steps_of(path)


def test_columns_are_bounded_and_the_default_is_written_nowhere() -> None:
    assert Columns([]).names == Columns(list(DEFAULT)).names == []
    assert [one.name for one in Columns(["arrived, .a  key", ".a"]).shown] == ["arrived", ".a", "key"]
    with pytest.raises(OptionError, match="at most"):
        Columns([f".f{number}" for number in range(COLUMNS_MAX + 1)])
    assert len(fields_of([{f"f{number}": number for number in range(1_000)}])) == FIELDS_MAX


def test_a_cell_is_bounded_and_tells_null_from_nothing() -> None:
    assert cell_of({"a": None}, ("a",)) == "null"
    assert cell_of({"a": 1}, ("b",)) is None
    assert cell_of([1], ("a",)) is None
    assert cell_of({"a": [1]}, ("a", 7)) is None
    assert len(cell_of({"a": "x" * 10_000}, ("a",)) or "") == 201
    assert cell_of({"a": "\ud83d"}, ("a",)) == "?"


def test_coloured_json_is_the_same_text_and_no_html() -> None:
    text = json.dumps({"<b>": ["</span>", 1.5e7, None, True, 'a"b\\'], "x": {"y": "z"}}, indent=2)
    shown = str(coloured(text))
    assert "<b>" not in shown
    assert (
        re.sub(r'<span class="j-\w+">|</span>', "", shown)
        .replace("&#34;", '"')
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        == text
    )
    assert shown.count('class="j-name"') == 3


@pytest.mark.parametrize("body", [b'{"a": "\\ud83d", "\\udc00": 1}', b'"\\ud83d"', b'["\\ud83d\\ud83d"]'])
async def test_half_an_emoji_is_shown_as_a_sign_of_its_own(
    make_gate: MakeGate, kinesis: Any, stream: str, body: bytes
) -> None:
    put(kinesis, stream, 1, data=body)
    put(kinesis, stream, 2, data=b'{"a": "good"}')
    for query in ("", "?col=.a&col=data"):
        answer = await ask(make_gate(), "GET", f"/streams/{stream}/records{query}", headers=PROGRAM)
        assert answer.status == 200
        assert "good" in answer.text
        assert "2 shown" in answer.text


async def test_hostile_names_of_fields_are_text_on_the_page_and_can_be_chosen(
    make_gate: MakeGate, kinesis: Any, stream: str
) -> None:
    put(kinesis, stream, 1, data=json.dumps(dict.fromkeys(HOSTILE, "value")).encode())
    gate = make_gate()
    text = (await ask(gate, "GET", f"/streams/{stream}/records", headers=PROGRAM)).text
    assert "<script>x" not in text
    names = re.findall(r'name="col" value="([^"]*)"', text)
    assert any("script" in one for one in names)
    chosen = "&".join(f"col={_quoted(one)}" for one in names if one not in DEFAULT)
    text = (await ask(gate, "GET", f"/streams/{stream}/records?{chosen}", headers=PROGRAM)).text
    assert text.count(">value</td>") == len(HOSTILE)
    assert "<script>x" not in text


def _quoted(text: str) -> str:
    import html
    from urllib.parse import quote

    return quote(html.unescape(text), safe="")


async def test_a_record_is_whole_in_its_row_unless_it_is_large(make_gate: MakeGate, kinesis: Any, stream: str) -> None:
    put(kinesis, stream, 1, data=json.dumps({"a": "x" * 50_000}).encode())
    put(kinesis, stream, 2, data=b'{"inner": {"b": 1}}')
    began_s = time.monotonic()
    text = (await ask(make_gate(), "GET", f"/streams/{stream}/records", headers=PROGRAM)).text
    assert text.count("<pre id=") == 1
    assert '<span class="j-name">&#34;b&#34;</span>: <span class="j-number">1</span>' in text
    assert len(text) < 30_000
    assert time.monotonic() - began_s < 30
