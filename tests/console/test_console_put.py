"""The form that puts a record: which visitor may send it, what becomes of it, and what of it is noted."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.console.pages.puts import DATA_BYTES_MAX, record_of
from shardway.errors import OptionError
from shardway.testing import Fault
from tests.console.asking import VIEWER_TOKEN, ask, csrf_of, signed_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardway.local import LocalKinesis
    from tests.console.conftest import MakeGate

SECRET, KEY = '{"card": "4111111111111111"}', "ada@example.org"
FORM = {"key": KEY, "data": SECRET, "encoding": "json", "confirm": "puts"}


@pytest.fixture(scope="module")
def kinesis(service: LocalKinesis) -> Iterator[Any]:
    client = boto3.client("kinesis", endpoint_url=service.endpoint_url, region_name=service.region)
    client.create_stream(StreamName="puts", ShardCount=1)
    yield client
    client.delete_stream(StreamName="puts")
    client.close()


def records(kinesis: Any) -> list[Any]:
    iterator = kinesis.get_shard_iterator(
        StreamName="puts", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found: list[Any] = kinesis.get_records(ShardIterator=iterator)["Records"]
    return found


async def send(gate: Any, browser: dict[str, str], **changed: str) -> Any:
    page = (await ask(gate, "GET", "/streams/puts/put", headers=browser)).text
    return await ask(
        gate, "POST", "/streams/puts/put", headers=browser, form={**FORM, "csrf": csrf_of(page), **changed}
    )


async def test_a_writer_puts_a_record_and_neither_log_nor_page_has_its_data_or_its_key(
    make_gate: MakeGate, kinesis: Any, tmp_path: Path
) -> None:
    gate = make_gate(allow_writes=True)
    before = len(records(kinesis))
    answer = await send(gate, await signed_in(gate))
    assert answer.status == 200, answer.text
    assert "It is done." in answer.text
    form = (await ask(gate, "GET", "/streams/puts/put", headers=await signed_in(gate))).text
    assert "In us-east-1 · account" in form  # a form says where it writes
    found = records(kinesis)[before:]
    assert [(one["Data"], one["PartitionKey"]) for one in found] == [(SECRET.encode(), KEY)]
    assert found[0]["SequenceNumber"] in answer.text
    log = (tmp_path / "audit.jsonl").read_text()
    for text in (log, answer.text):
        assert "4111" not in text
        assert KEY not in text
    entries = (json.loads(one) for one in log.splitlines())
    begun, done = (one for one in entries if one["action"] == "record.put")  # beside the sign-ins
    assert (begun["action"], begun["outcome"], begun["target"]) == (
        "record.put", "begun", {"stream": "puts", "bytes": len(SECRET)},
    )  # fmt: skip
    assert (done["outcome"], done["after"]["sequence_number"]) == ("done", found[0]["SequenceNumber"])


async def test_a_viewer_a_read_only_console_and_a_form_of_another_page_put_nothing(
    make_gate: MakeGate, kinesis: Any
) -> None:
    before = len(records(kinesis))
    writing, reading = make_gate(allow_writes=True), make_gate()
    viewer, writer = await signed_in(writing, VIEWER_TOKEN), await signed_in(reading)
    assert "A writer may put records" in (await ask(writing, "GET", "/streams/puts/put", headers=viewer)).text
    page = (await ask(writing, "GET", "/streams/puts/records", headers=viewer)).text
    assert "Put a record" not in page
    for gate, browser in ((writing, viewer), (reading, writer)):
        form = {**FORM, "csrf": csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)}
        assert (await ask(gate, "POST", "/streams/puts/put", headers=browser, form=form)).status == 403
    writer = await signed_in(writing)
    assert (await send(writing, writer, csrf="x")).status == 403
    assert (await send(writing, {**writer, "origin": "http://evil.example"})).status == 403
    assert len(records(kinesis)) == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"confirm": "put"}, "to confirm"),
        ({"key": ""}, "1 to 256 characters"),
        ({"key": "k" * 257}, "1 to 256 characters"),
        ({"data": "{"}, "the data is no JSON (line 1, column 2)"),
        ({"data": "[" * 100_000}, "the data is no JSON"),
        ({"data": "%%", "encoding": "base64"}, "no base64"),
        ({"data": "x" * (DATA_BYTES_MAX + 1), "encoding": "text"}, "bytes of data"),
        ({"encoding": "zip"}, "how the data is written"),
    ],
)
def test_a_form_that_cannot_be_taken_says_why_and_quotes_nothing(changed: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        record_of("puts", {**FORM, **changed})
    assert said in str(raised.value)
    assert "4111" not in str(raised.value)


async def test_a_form_that_is_refused_keeps_what_was_typed(make_gate: MakeGate, kinesis: Any) -> None:
    gate = make_gate(allow_writes=True)
    answer = await send(gate, await signed_in(gate), confirm="x", data="<script>1</script>", encoding="text")
    assert answer.status == 400
    assert "&lt;script&gt;1&lt;/script&gt;</textarea>" in answer.text


def test_data_is_taken_as_bytes_by_its_encoding() -> None:
    assert record_of("puts", {**FORM, "data": "a\r\nb", "encoding": "text"})[1] == b"a\nb"
    assert record_of("puts", {**FORM, "data": base64.b64encode(b"\x00\xff").decode(), "encoding": "base64"})[1] == (
        b"\x00\xff"
    )


@pytest.mark.parametrize(
    ("how", "outcome"), [("access_denied", "refused"), ("lost_reply", "unknown"), ("throttle", "refused")]
)
async def test_a_put_that_fails_is_told_as_refused_or_not_known_and_is_not_sent_again(
    make_gate: MakeGate, kinesis: Any, service: LocalKinesis, tmp_path: Path, how: Any, outcome: str
) -> None:
    service.faults.add(Fault(how=how, operation="PutRecord"))
    gate = make_gate(allow_writes=True)
    answer = await send(gate, await signed_in(gate))
    assert answer.status == 502
    (line,) = [one for one in (tmp_path / "audit.jsonl").read_text().splitlines() if f'"{outcome}"' in one]
    assert json.loads(line)["outcome"] == outcome
