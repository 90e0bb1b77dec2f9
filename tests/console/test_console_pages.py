"""What the pages say: of records with masks, of missing permissions, of bad input; and what is looked at for them."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from shardway.aws.calls.retry import RetryPolicy
from shardway.console.live import _events
from shardway.console.looks.sampler import FULL, TOPICS_MAX, Sampler, Topic
from shardway.console.looks.tailing import BASKET_BYTES_MAX, BASKET_RECORDS_MAX, Basket, rows
from shardway.console.page import BEAT_S
from shardway.console.pages.tails import _tail_events
from shardway.console.payloads import HIDDEN, MASKED, Payloads, Row
from shardway.console.plans import PLANS_MAX, Plans
from shardway.console.settings import ConsoleSettings
from shardway.errors import OptionError, TransportError
from shardway.inspect import Inspector, SeenRecord, decode
from shardway.inspect.filters import parse
from shardway.model import Record
from shardway.testing import Fault
from tests.cli.tables_kit import SHARDS, lease, make_table
from tests.console.asking import TOKEN, ask, looked_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardway.local import LocalKinesis
    from tests.console.conftest import MakeGate

PROGRAM = {"authorization": f"Bearer {TOKEN}", "accept": "text/html"}
BODY = {"customer": {"email": "ada@example.org", "id": 7}, "items": [{"card": "4111"}, {"card": "4222"}], "amount": 5}


@pytest.fixture(scope="module")
def kinesis(service: LocalKinesis) -> Iterator[Any]:
    client = boto3.client("kinesis", endpoint_url=service.endpoint_url, region_name=service.region)
    client.create_stream(StreamName="pages", ShardCount=1)
    client.put_record(StreamName="pages", Data=json.dumps(BODY).encode(), PartitionKey="ada-key")
    client.put_record(StreamName="pages", Data=b"ada@example.org in plain text", PartitionKey="ada-key")
    yield client
    client.delete_stream(StreamName="pages")
    client.close()


def seen(data: bytes, key: str = "ada-key") -> SeenRecord:
    import datetime as dt

    return SeenRecord(
        Record(
            stream="pages", shard_id="shardId-000000000000", partition_key=key, data=data, sequence_number=1,
            sub_sequence_number=0, approximate_arrival_timestamp=dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
        )
    )  # fmt: skip


def payloads(**changed: Any) -> Payloads:
    return Payloads(ConsoleSettings(token=TOKEN, audit="audit.jsonl", **changed))


# --- what is hidden -------------------------------------------------------------------------------


def test_masks_hide_what_their_paths_name_and_nothing_else() -> None:
    shown = payloads(masks=(".customer.email", ".items[*].card"))
    row = shown.row(shown.masked(seen(json.dumps(BODY).encode())))
    assert json.loads(row.text) == {
        "customer": {"email": MASKED, "id": 7}, "items": [{"card": MASKED}, {"card": MASKED}], "amount": 5,
    }  # fmt: skip
    assert row.key == "ada-key"


ADA = {"email": "ada@example.org"}


@pytest.mark.parametrize(
    ("mask", "value", "shown"),
    [
        pytest.param(".customer.email", [{"customer": ADA}] * 2, [{"customer": {"email": MASKED}}] * 2, id="events"),
        pytest.param(".customer.email", {"customer": [ADA]}, {"customer": [{"email": MASKED}]}, id="an array today"),
        pytest.param(".customer.email", {"customer": [[ADA]]}, {"customer": [[{"email": MASKED}]]}, id="arrays"),
        pytest.param(".customer.email", {"Customer": {"EMAIL": "ada@example.org", "n": 1}},
                     {"Customer": {"EMAIL": MASKED, "n": 1}}, id="another case"),
        pytest.param(".customer.email", {"customer": ADA, "CUSTOMER": ADA},
                     {"customer": {"email": MASKED}, "CUSTOMER": {"email": MASKED}}, id="both cases"),
        pytest.param(".items[*].email", {"items": ADA}, {"items": {"email": MASKED}}, id="one in place of several"),
        pytest.param(".customer.email", {"customer": None, "n": 1}, {"customer": None, "n": 1}, id="null"),
        pytest.param(".items[*].email", {"items": [], "n": 1}, {"items": [], "n": 1}, id="empty"),
        pytest.param(".customer", {"customer": json.dumps(ADA)}, {"customer": MASKED}, id="text that the path ends at"),
        pytest.param(".*.email", {"a": ADA, "b": [ADA]}, {"a": {"email": MASKED}, "b": [{"email": MASKED}]}, id="any"),
    ],
)  # fmt: skip
def test_a_mask_is_met_in_arrays_and_in_any_case(mask: str, value: Any, shown: Any) -> None:
    seen_by = payloads(masks=(mask,))
    row = seen_by.row(seen_by.masked(seen(json.dumps(value).encode())))
    assert json.loads(row.text) == shown


@pytest.mark.parametrize(
    ("mask", "value"),
    [
        pytest.param(".customer.email", {"customer": json.dumps(ADA)}, id="JSON in a text"),
        pytest.param(".customer.email", {"logEvents": [{"message": json.dumps({"customer": ADA})}]}, id="a log event"),
        pytest.param(".customer.email", {"buyer": ADA}, id="another name"),
        pytest.param(".customer.email", {"customer": {"mail": "ada@example.org"}}, id="another name at the end"),
        pytest.param(".customer.email", {"customer": [ADA, "ada@example.org"]}, id="a text among the values"),
        pytest.param(".items[*].email", {"items": [ADA, {"mail": "ada@example.org"}]}, id="one of several"),
        pytest.param(".customer.email", "ada@example.org", id="a text"),
        pytest.param(".customer.email", {"customer": {"email": "x"}, "CUSTOMER": {"mail": "ada@example.org"}},
                     id="one of both cases"),
    ],
)  # fmt: skip
def test_a_record_that_a_mask_does_not_fit_is_hidden_and_says_so(mask: str, value: Any) -> None:
    shown = payloads(masks=(mask,))
    masked = shown.masked(seen(json.dumps(value).encode()))
    assert (shown.row(masked).text, shown.row(masked).kind) == (HIDDEN, "hidden")
    assert shown.whole_text(masked) == (HIDDEN, False)
    assert f"the mask {mask} does not fit this record" in masked.decoded.steps[-1].why
    assert not parse('text contains "ada"')(masked)


@given(
    st.recursive(
        st.none() | st.integers() | st.just("ada@example.org"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "A", "b", "c"]), inner),
        max_leaves=12,
    ),
    st.lists(st.sampled_from([".a", ".b", "[*]", ".*"]), min_size=1, max_size=4).map("".join),
)
def test_nothing_below_a_mask_is_shown_whatever_the_record_is(value: Any, mask: str) -> None:
    """All texts below the place that the mask's first names lead to are hidden, or the record is."""
    shown = payloads(masks=(mask,))
    text = shown.row(shown.masked(seen(json.dumps({"a": value, "A": [value]}).encode()))).text
    if text != HIDDEN and mask in (".a", ".*", "[*].a", ".a[*]", ".*[*]"):
        assert "ada@" not in text


def test_what_is_no_json_is_hidden_where_masks_are_set() -> None:
    shown = payloads(masks=(".customer.email",))
    row = shown.row(shown.masked(seen(b"ada@example.org")))
    assert (row.text, row.kind) == (HIDDEN, "hidden")


def test_a_filter_does_not_see_what_a_mask_hides() -> None:
    shown = payloads(masks=(".customer.email", "key"))
    masked = shown.masked(seen(json.dumps(BODY).encode()))
    assert not parse('.customer.email startswith "ada"')(masked)
    assert not parse('text contains "ada@"')(masked)
    assert not parse('key == "ada-key"')(masked)
    assert parse(".amount == 5 and .customer.id == 7")(masked)
    with pytest.raises(OptionError, match="no partition keys"):
        shown.checked(where=None, key="ada-key")


def test_without_payloads_nothing_is_shown_and_nothing_can_be_searched() -> None:
    shown = payloads(show_payloads=False)
    row = shown.row(shown.masked(seen(json.dumps(BODY).encode())))
    assert (row.text, row.key, row.size) == (HIDDEN, HIDDEN, len(json.dumps(BODY)))
    for where, key in (("size > 1", None), (None, "a")):
        with pytest.raises(OptionError, match="this console shows no"):
            shown.checked(where=where, key=key)


@pytest.mark.parametrize("changed", [{"show_payloads": False}, {"masks": (".customer.email", "key")}])
async def test_no_page_tells_what_is_hidden(make_gate: MakeGate, kinesis: Any, changed: dict[str, Any]) -> None:
    gate = make_gate(**changed)
    first = await ask(gate, "GET", "/streams/pages/records?from=trim-horizon", headers=PROGRAM)
    assert "2 shown" in first.text
    number = first.text.partition("seq=")[2].partition("&")[0].partition('"')[0]
    for target in (
        "/streams/pages/records?from=trim-horizon",
        f"/streams/pages/record?seq={number}",
        "/streams/pages/download?from=trim-horizon",
        "/streams/pages?heat=5m",
        "/streams/pages/records?from=trim-horizon&key=ada-key",
        '/streams/pages/records?from=trim-horizon&where=.customer.email+contains+"ada"',
    ):
        text = (await ask(gate, "GET", target, headers=PROGRAM)).text
        assert "ada@example.org" not in text, target
        assert "plain text" not in text, target
        shown = text.replace('value="ada-key"', "")  # what was asked for stands in its field
        assert "ada-key" not in shown, target


async def test_a_view_of_payloads_is_in_the_audit_log(make_gate: MakeGate, kinesis: Any, tmp_path: Path) -> None:
    gate = make_gate()
    target = "/streams/pages/records?from=trim-horizon&key=ada-key&where=.amount+%3E+1"
    assert (await ask(gate, "GET", target, headers=PROGRAM)).status == 200
    (line,) = [json.loads(one) for one in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (line["action"], line["outcome"], line["user"]) == ("records.viewed", "viewed", "token:writer")
    assert line["target"] == {"stream": "pages", "from": "trim-horizon", "key": "given", "where": "given"}


async def test_a_download_goes_back_into_a_stream_as_it_was(make_gate: MakeGate, kinesis: Any) -> None:
    answer = await ask(make_gate(), "GET", "/streams/pages/download?from=trim-horizon", headers=PROGRAM)
    assert answer.headers["content-disposition"] == 'attachment; filename="pages.jsonl"'
    assert answer.headers["content-type"] == "application/octet-stream"
    lines = [json.loads(one) for one in answer.text.splitlines()]
    assert [one["data"].encode() for one in lines] == [json.dumps(BODY).encode(), b"ada@example.org in plain text"]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("where=(", "character 2"),
        ("where=" + "(" * 200, "more than 50 levels"),
        ("where=" + "a" * 5000, "at most 4096"),
        ("from=yesterday", "is no time"),
        ("until=never", "is no time"),
        ("where=text+%3D~+%22(%22", "is no pattern"),
    ],
)
async def test_a_search_that_cannot_be_read_says_where(make_gate: MakeGate, query: str, said: str) -> None:
    for page in ("records", "tail"):
        if page == "tail" and "until" in query:
            continue
        answer = await ask(make_gate(), "GET", f"/streams/orders/{page}?{query}", headers=PROGRAM)
        assert answer.status == 400
        assert said in answer.text


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/streams/orders/record?seq=x", 400),
        ("/streams/orders/record?seq=1&sub=-1", 400),
        (f"/streams/orders/record?seq={'9' * 60}", 400),
        ("/streams/no%20stream%3C/records", 200),
        ("/streams/orders/tail/events", 400),
        ("/streams/orders/tail/events?browser=%3Cscript%3E", 400),
        ("/live?page=none", 404),
        ("/applications/no-such-table", 404),
        ("/letters?place=/etc/passwd", 404),
        ("/local", 404),
        ("/streams/orders?heat=2d", 400),
    ],
)
async def test_an_address_that_means_nothing_is_told_so(make_gate: MakeGate, target: str, status: int) -> None:
    answer = await ask(make_gate(), "GET", target, headers=PROGRAM)
    assert answer.status in (status, 404 if status == 200 else status), answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "operation",
    ["ListStreams", "DescribeStreamSummary", "ListShards", "ListStreamConsumers", "GetRecords", "ListTables"],
)
async def test_a_permission_that_lacks_leaves_the_rest(
    make_gate: MakeGate, service: LocalKinesis, operation: str
) -> None:
    service.faults.add(Fault(how="access_denied", operation=operation))
    gate = make_gate()
    told = []
    for target in ("/", "/streams/orders", "/streams/orders/records?from=trim-horizon"):
        answer = await ask(gate, "GET", target, headers=PROGRAM)
        assert answer.status in (200, 400), answer.text
        told.append(answer.text)
    assert any(operation in text for text in told)


# --- what is looked at ----------------------------------------------------------------------------


def counted(calls: list[str], name: str, fault: list[Exception]) -> Topic[int]:
    async def look(_: Inspector) -> int:
        calls.append(name)
        if fault:
            raise fault[0]
        return len(calls)

    return Topic((name,), look, 0.0)


async def test_what_no_page_shows_is_not_looked_at(make_gate: MakeGate) -> None:
    now, calls = [0.0], list[str]()
    sampler = Sampler(make_gate().console.inspector, clock=lambda: now[0])
    a, b = counted(calls, "a", []), counted(calls, "b", [])
    assert calls == []
    assert (await sampler.sample(a, wait_s=5.0)).value == 1
    assert looked_at(sampler) == [("a",)]
    assert sampler.newest(b) is None
    now[0] = 1000.0  # nothing holds it, and it was loaded long ago
    async with asyncio.timeout(10):
        while looked_at(sampler):
            await asyncio.sleep(0.05)
    assert calls == ["a"]
    with sampler.held([a]):
        await asyncio.wait_for(sampler.change.wait(), 5.0)
    assert calls == ["a", "a"]
    assert (await sampler.sample(a)).value == 2
    await sampler.close()


async def test_many_pages_are_one_look(make_gate: MakeGate) -> None:
    calls = list[str]()
    sampler = Sampler(make_gate().console.inspector)
    topic = counted(calls, "a", [])
    with sampler.held([topic]), sampler.held([topic]):
        found = await asyncio.gather(*(sampler.sample(topic, wait_s=5.0) for _ in range(20)))
    assert {one.value for one in found} == {1}
    await sampler.close()


async def test_a_look_that_fails_leaves_what_was_seen(make_gate: MakeGate) -> None:
    calls, fault = list[str](), list[Exception]()
    sampler = Sampler(make_gate().console.inspector)
    topic = counted(calls, "a", fault)
    with sampler.held([topic]):
        assert (await sampler.sample(topic, wait_s=5.0)).fault is None
        fault.append(TransportError("no answer"))
        await asyncio.wait_for(sampler.change.wait(), 5.0)
        sample = await sampler.sample(topic)
        assert (sample.value, sample.fault) == (1, "no answer")
    await sampler.close()


async def test_a_shard_is_asked_once_a_second_at_most(make_gate: MakeGate) -> None:
    assert make_gate().console.inspector.paces.calls_per_s == 1.0


async def test_a_page_that_is_being_told_hears_of_the_end(make_gate: MakeGate) -> None:
    console = make_gate().console
    events = _events(console, Request({"type": "http"}), lambda *_: [])
    async with asyncio.timeout(10):
        await anext(events)
        await anext(events)
        console.end()  # before the page waits for what comes next
        began_s = asyncio.get_running_loop().time()
        assert [event async for event in events] == []
    assert asyncio.get_running_loop().time() - began_s < BEAT_S


HALF = b'{"name": "cut emoji \\ud83d", "n": 1, "\\ude00": 2}'


@pytest.mark.parametrize("changed", [{}, {"masks": (".n",)}])
async def test_half_an_emoji_breaks_no_page(make_gate: MakeGate, kinesis: Any, changed: dict[str, Any]) -> None:
    gate = make_gate(**changed)
    kinesis.create_stream(StreamName="halves", ShardCount=1)
    try:
        number = kinesis.put_record(StreamName="halves", Data=HALF, PartitionKey="k")["SequenceNumber"]
        for target in (
            "/streams/halves/records?from=trim-horizon",
            '/streams/halves/records?from=trim-horizon&where=.name+contains+"cut"',
            '/streams/halves/records?from=trim-horizon&where=.name+=~+"%5Cud83d|cut"',
            '/streams/halves/records?from=trim-horizon&where=text+contains+"%5Cud83d"',
            f"/streams/halves/record?seq={number}",
            "/streams/halves/download?from=trim-horizon",
            '/streams/halves/download?from=trim-horizon&where=.name+contains+"cut"',
        ):
            assert (await ask(gate, "GET", target, headers=PROGRAM)).status == 200, target
        target = '/streams/halves/tail/events?from=trim-horizon&browser=half-browser&where=.name+contains+"cut"'
        async with asyncio.timeout(30):
            answer = await ask(gate, "GET", target, headers=PROGRAM, until=lambda text: "cut emoji" in text)
        assert '"fault":null' in answer.text
    finally:
        kinesis.delete_stream(StreamName="halves")


@pytest.mark.parametrize("limit", ["9" * 5_000, "0", "-1", "x", "\u0663"])
async def test_a_limit_of_any_length_is_a_limit(make_gate: MakeGate, kinesis: Any, limit: str) -> None:
    target = f"/streams/pages/records?from=trim-horizon&limit={quote(limit)}"
    answer = await ask(make_gate(), "GET", target, headers=PROGRAM)
    assert (answer.status, "2 shown" in answer.text) == (200, True)


async def test_a_record_that_takes_long_holds_up_no_other_visitor(
    make_gate: MakeGate, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first record is not decoded before another visitor's page has come."""
    gate, other_was_served = make_gate(), threading.Event()

    def slow(data: bytes) -> Any:
        assert other_was_served.wait(20)
        return decode(data)

    monkeypatch.setattr("shardway.inspect.records.seen_records.decode", slow)
    targets = [
        "/streams/pages/records?from=trim-horizon",
        "/streams/pages/records?from=trim-horizon&where=.amount+>+1",
        "/streams/pages/download?from=trim-horizon&where=.amount+>+1",
    ]
    for target in targets:
        other_was_served.clear()
        first = asyncio.ensure_future(ask(gate, "GET", target, headers=PROGRAM))
        other = await ask(gate, "GET", "/assets/console.css", headers=PROGRAM)
        assert other.status == 200
        other_was_served.set()
        assert (await first).status == 200


async def test_a_search_ends_in_time_though_a_record_takes_longer(
    make_gate: MakeGate, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, page_came = make_gate(), threading.Event()

    def slow(data: bytes) -> Any:
        assert page_came.wait(20)
        return decode(data)

    monkeypatch.setattr("shardway.inspect.records.seen_records.decode", slow)
    monkeypatch.setattr("shardway.console.pages.record_search.SEARCH_S", 0.5)
    answer = await ask(gate, "GET", "/streams/pages/records?from=trim-horizon", headers=PROGRAM)
    page_came.set()
    assert "0.5 s were searched" in answer.text


# --- live tails -----------------------------------------------------------------------------------


async def test_rows_go_to_the_newest_connection_of_a_browser(make_gate: MakeGate) -> None:
    console, basket = make_gate().console, Basket(None, payloads())
    older = _tail_events(console, basket, None, anew=False)
    newer = _tail_events(console, basket, None, anew=False)
    async with asyncio.timeout(10):
        await anext(older)
        await anext(older)  # it waits for rows from now on, and a proxy does not say that the browser has gone
        waiting = asyncio.ensure_future(anext(older, None))
        await asyncio.sleep(0)
        await anext(newer)
        await anext(newer)
        basket.offer(seen(b"for the page"))
        assert "for the page" in await anext(newer)
        assert await waiting is None
    assert basket.left_at_s is None  # the end of the older one is not the browser's
    console.end()
    assert [event async for event in newer] == []
    assert basket.left_at_s is not None


async def test_a_browser_that_comes_in_steps_begins_anew(make_gate: MakeGate, kinesis: Any) -> None:
    gate = make_gate()
    target = "/streams/pages/tail/events?from=trim-horizon&browser=held-browser"
    await ask(gate, "GET", target, headers=PROGRAM, until=lambda text: '"seen":2' in text)  # and the proxy holds it
    # The step is long, since the rows come when a loaded machine has read them; it ends as soon as they are there.
    in_steps = await ask(gate, "GET", f"{target}&for=60", headers=PROGRAM, until=lambda text: '"seen":2' in text)
    assert in_steps.text.count('"shard_id"') >= 2
    again = await ask(gate, "GET", f"{target}&for=1", headers=PROGRAM)
    assert '"shard_id"' not in again.text


def test_a_browser_that_sleeps_loses_records_and_is_told_how_many() -> None:
    basket = Basket(None, payloads())
    for number in range(BASKET_RECORDS_MAX + 50):
        basket.offer(seen(b'{"n": %d}' % number))
    shown = rows(basket.take(), payloads())
    assert (basket.seen, basket.matched, basket.lost, len(shown)) == (250, 250, 50, BASKET_RECORDS_MAX)
    assert shown[0].text == '{"n": 50}'  # the newest are kept
    assert basket.take() == []
    for _ in range(10):
        basket.offer(seen(b"x" * (BASKET_BYTES_MAX // 2 - 4_000)))
    assert len(basket.take()) == 2
    basket.offer(seen(b"x" * (2 * BASKET_BYTES_MAX)))
    (row,) = rows(basket.take(), payloads())  # one that is larger than a basket is shown all the same
    assert row.cut
    assert len(row.text) < 1000


@pytest.mark.parametrize("where", ["", "&where=.n+>+0", '&where=text+contains+"n"'])
async def test_a_tail_keeps_nothing_that_was_decoded(make_gate: MakeGate, kinesis: Any, where: str) -> None:
    """A basket that its browser does not empty holds rows, or records as they came."""
    gate = make_gate()
    kinesis.create_stream(StreamName="packed", ShardCount=1)
    try:
        data = gzip.compress(b'{"n": 1, "pad": "%s"}' % (b"0" * 1_000_000))
        for _ in range(5):
            kinesis.put_record(StreamName="packed", Data=data, PartitionKey="k")
        test = parse(where.partition("=")[2].replace("+", " ")) if where else None
        basket = gate.console.tails.follow("browser", "packed", "trim-horizon", (), test)
        async with asyncio.timeout(30):
            while basket.seen < 5:
                basket.filled.clear()
                await basket.filled.wait()
        assert (basket.seen, basket.matched) == (5, 5)
        assert basket.held_bytes < 5 * 10_000
        held = basket.take()
        assert [isinstance(one, Row) or "decoded" not in vars(one) for one in held] == [True] * 5
        assert [row.kind for row in rows(held, payloads())] == ["json"] * 5
    finally:
        kinesis.delete_stream(StreamName="packed")


async def test_three_browsers_share_one_reading_of_what_comes(make_gate: MakeGate, kinesis: Any) -> None:
    gate, left = make_gate(), [3]

    async def follow(browser: str, where: str = "") -> list[dict[str, Any]]:
        target = f"/streams/pages/tail/events?browser={browser}-browser{where}"
        answer = await ask(gate, "GET", target, headers=PROGRAM, until=lambda text: '"n"' in text or "n\\" in text)
        left[0] -= 1
        found = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        return [row for one in found for row in one["rows"]]

    async def put() -> None:
        number = 0
        while left[0]:  # the reading begins at the newest record: it is not there at once
            number += 1
            data = json.dumps({"n": number}).encode()
            await asyncio.to_thread(kinesis.put_record, StreamName="pages", Data=data, PartitionKey="n")
            await asyncio.sleep(0.05)

    async with asyncio.timeout(60):
        rows = await asyncio.gather(follow("one"), follow("two"), follow("three", "&where=.n+>+0"), put())
    assert gate.console.tails.readings == 1
    assert all(rows[:3])


async def test_a_browser_that_begins_elsewhere_misses_nothing(make_gate: MakeGate, kinesis: Any) -> None:
    gate = make_gate()
    for browser in ("first", "second"):  # the second comes when the first has had it all
        target = f"/streams/pages/tail/events?from=trim-horizon&browser={browser}-browser"
        async with asyncio.timeout(60):
            answer = await ask(gate, "GET", target, headers=PROGRAM, until=lambda text: "plain text" in text)
        assert "ada@example.org" in answer.text
    assert gate.console.tails.readings == 2  # the first has not taken all of the shard's calls


async def test_a_browser_that_comes_again_goes_on(make_gate: MakeGate, kinesis: Any) -> None:
    gate = make_gate()
    target = "/streams/pages/tail/events?from=trim-horizon&browser=the-browser"
    await ask(gate, "GET", target, headers=PROGRAM, until=lambda text: '"seen":2' in text)
    kinesis.put_record(StreamName="pages", Data=b"later", PartitionKey="b")
    again = await ask(gate, "GET", target, headers=PROGRAM, until=lambda text: '"later"' in text)
    assert again.text.count('"shard_id"') == 1  # what it had is not sent again


async def test_refusals_for_the_rate_end_no_tail(
    make_gate: MakeGate, kinesis: Any, service: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.inspect.reads.wire.RETRY", RetryPolicy(attempts_max=2, base_s=0.001, cap_s=0.001))
    gate = make_gate()
    service.faults.add(Fault(how="throttle", operation="GetRecords", count=4))
    target = "/streams/pages/tail/events?from=trim-horizon&browser=patient-browser"
    answer = await ask(
        gate, "GET", target, headers=PROGRAM, until=lambda text: "plain text" in text and "GetRecords was" in text
    )
    assert '"fault":"' not in answer.text


# --- seek -----------------------------------------------------------------------------------------


def test_a_plan_is_written_once_and_by_the_visitor_that_saw_it() -> None:
    plans, plan = Plans(), object()
    number = plans.add(plan, "ada")  # type: ignore[arg-type]
    assert plans.take(number, "eve") is None
    assert plans.take(number, "ada") is plan
    assert plans.take(number, "ada") is None
    first = plans.add(plan, "ada")  # type: ignore[arg-type]
    for _ in range(PLANS_MAX):
        plans.add(plan, "ada")  # type: ignore[arg-type]
    assert plans.take(first, "ada") is None


def test_no_visitor_takes_the_plans_of_another_away() -> None:
    plans, plan = Plans(), object()
    adas = plans.add(plan, "ada")  # type: ignore[arg-type]
    for _ in range(10 * PLANS_MAX):
        plans.add(plan, "eve")  # type: ignore[arg-type]
    for number in range(10 * PLANS_MAX):
        plans.add(plan, f"visitor-{number % 3}")  # type: ignore[arg-type]
    assert plans.take(adas, "ada") is plan
    assert len(plans._plans) <= PLANS_MAX


async def test_the_choice_of_a_stream_is_of_one_address_alone(make_gate: MakeGate, dynamodb: Any) -> None:
    make_table(dynamodb, "chosen", lease(SHARDS[0], "LATEST"))
    gate = make_gate()
    before = dict(gate.console.streams)
    for _ in range(2):
        page = await ask(gate, "GET", "/applications/chosen?stream=orders", headers=PROGRAM)
        assert page.status == 200
        assert "stream=orders" in page.text, "what the page leads to goes by the choice"
    assert gate.console.streams == before
    assert (
        "Its leases do not name their stream" in (await ask(gate, "GET", "/applications/chosen", headers=PROGRAM)).text
    )


async def test_a_visitor_that_may_not_write_has_no_plan_kept(make_gate: MakeGate, dynamodb: Any) -> None:
    make_table(dynamodb, "planned", lease(SHARDS[0], "TRIM_HORIZON", owner=None))
    gate = make_gate()
    target = "/applications/planned/seek?stream=orders&to=latest"
    assert (await ask(gate, "GET", target, headers=PROGRAM)).status == 200
    assert gate.console.plans._plans == {}


# --- topics ---------------------------------------------------------------------------------------


def odd_topic(number: int, looks: list[int]) -> Topic[int]:
    async def look(inspector: Any) -> int:
        looks.append(number)
        return number

    return Topic(("odd", str(number)), look, 10.0)


async def test_pages_that_are_only_loaded_begin_no_more_topics_than_there_may_be(make_gate: MakeGate) -> None:
    sampler, looks = Sampler(make_gate().console.inspector), list[int]()
    held = odd_topic(-1, looks)
    with sampler.held([held]):
        for number in range(3 * TOPICS_MAX):
            await sampler.sample(odd_topic(number, looks))
            assert len(looked_at(sampler)) <= TOPICS_MAX
        newest = await sampler.sample(odd_topic(10_000, looks), wait_s=30.0)
        assert newest.value == 10_000, "the page that comes last is served: the oldest topic went"
        assert held.key in looked_at(sampler)
    await sampler.close()


async def test_where_open_pages_hold_all_topics_one_more_is_told_so(make_gate: MakeGate) -> None:
    sampler, looks = Sampler(make_gate().console.inspector), list[int]()
    with sampler.held([odd_topic(number, looks) for number in range(TOPICS_MAX + 5)]):
        refused = await sampler.sample(odd_topic(-1, looks), wait_s=30.0)
        assert (refused.value, refused.fault) == (None, FULL)
        assert len(looked_at(sampler)) == TOPICS_MAX
    assert (await sampler.sample(odd_topic(-1, looks), wait_s=30.0)).value == -1
    await sampler.close()


# --- tables that are none, refusals, and what is large --------------------------------------------


@pytest.fixture
def dynamodb(service: LocalKinesis) -> Iterator[Any]:
    client: Any = boto3.client("dynamodb", endpoint_url=service.endpoint_url, region_name=service.region)
    made: list[str] = []

    def table(name: str, *rows: dict[str, Any], key: str = "leaseKey") -> None:
        made.append(name)
        make_table(client, name, *rows, key=key)

    client.table = table
    yield client
    service.faults.clear()
    for one in made:
        client.delete_table(TableName=one)
    client.close()


async def test_a_table_that_is_no_lease_table_is_told_so(make_gate: MakeGate, dynamodb: Any) -> None:
    dynamodb.table("odd", {"id": {"S": "<script>"}}, key="id")
    gate = make_gate()
    answer = await ask(gate, "GET", "/applications/odd?stream=orders", headers=PROGRAM)
    assert "odd" in answer.text
    assert 'class="fault"' in answer.text or answer.status >= 400
    assert "Traceback" not in answer.text


async def test_half_a_table_and_rows_of_wrong_types_leave_the_rest(make_gate: MakeGate, dynamodb: Any) -> None:
    dynamodb.table(
        "half",
        lease(SHARDS[0], "TRIM_HORIZON", 7, "worker"),
        {**lease(SHARDS[1], "TRIM_HORIZON", 7, "worker"), "leaseCounter": {"S": "<script>"}},
        {"leaseKey": {"S": "shardId-000000000002"}},
    )
    answer = await ask(make_gate(), "GET", "/applications/half?stream=orders", headers=PROGRAM)
    assert answer.status == 200
    assert answer.text.count("is no lease that can be read") == 1
    assert "<dt>Rows that are no leases</dt><dd>1</dd>" in answer.text
    assert '<th scope="row">worker</th>' in answer.text
    assert "<script>" not in answer.text.replace('<script type="module"', "")


@pytest.mark.parametrize("how", ["throttle", "access_denied"])
async def test_a_service_that_refuses_all_calls_leaves_every_page_standing(
    make_gate: MakeGate, service: LocalKinesis, dynamodb: Any, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.inspect.reads.wire.RETRY", RetryPolicy(attempts_max=2, base_s=0.001, cap_s=0.001))
    dynamodb.table("refused")
    service.faults.add(Fault(how=how, operation="*"))
    gate = make_gate()
    for target in (
        "/", "/streams/orders", "/streams/orders/records?from=trim-horizon", "/applications/refused?stream=orders",
        "/doctor?app=refused&stream=orders", "/cost?stream=orders", "/jobs", "/letters",
    ):  # fmt: skip
        answer = await ask(gate, "GET", target, headers=PROGRAM)
        assert answer.status in (200, 400, 502), (target, answer.text)
        assert "mistake in the console" not in answer.text, target


async def test_a_record_of_ten_mebibytes_is_shown_in_part(make_gate: MakeGate, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="large", ShardCount=1, MaxRecordSizeInKiB=10_240)
    put = kinesis.put_record(StreamName="large", Data=b"\x00\xff" * (5 * 1024 * 1024 - 100), PartitionKey="k")
    gate = make_gate()
    listed = await ask(gate, "GET", "/streams/large/records?from=trim-horizon", headers=PROGRAM)
    assert "1 shown" in listed.text
    assert len(listed.text) < 100_000
    one = await ask(gate, "GET", f"/streams/large/record?seq={put['SequenceNumber']}", headers=PROGRAM)
    assert one.status == 200
    assert len(one.text) < 1_000_000
    kinesis.delete_stream(StreamName="large")


async def test_a_download_has_its_bound_and_the_page_says_it(
    make_gate: MakeGate, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.console.pages.records.DOWNLOAD_ROWS_MAX", 1)
    gate = make_gate()
    page = await ask(gate, "GET", "/streams/pages/records?from=trim-horizon", headers=PROGRAM)
    assert "the first 1; it breaks off after 1 m" in page.text
    answer = await ask(gate, "GET", "/streams/pages/download?from=trim-horizon", headers=PROGRAM)
    assert answer.text.count("\n") == 1


async def test_the_history_of_moves_and_the_lag_over_time_grow_with_each_look(
    make_gate: MakeGate, dynamodb: Any
) -> None:
    dynamodb.table("moving")
    gate = make_gate()
    topic = gate.console.topics.lag("moving", "orders")
    for number, owner in enumerate(("first", "first", "<b>second")):
        dynamodb.put_item(TableName="moving", Item=lease(SHARDS[0], "TRIM_HORIZON", 7 + number, owner))
        await topic.load(gate.console.inspector.make_sibling())
    answer = await ask(gate, "GET", "/applications/moving?stream=orders", headers=PROGRAM)
    moves = answer.text.partition('data-part="moves"')[2]
    assert "<td>first</td><td>&lt;b&gt;second</td>" in moves
    assert moves.count("<td>first</td>") == 1  # of two looks that say the same nothing is told
    assert "Lag over the last" in answer.text
