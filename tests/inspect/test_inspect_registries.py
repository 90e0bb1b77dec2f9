"""Schema registries: what a framing names is fetched once, bounded, and said where it cannot be used."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.errors import OptionError
from shardway.inspect import decode
from shardway.inspect.reads.wire import ReadingWire
from shardway.inspect.records import registries
from shardway.inspect.records.registries import AGAIN_S, SCHEMAS_MAX, Registries
from shardway.payloads.confluent import AUTHORIZATION, SCHEMA_BYTES_MAX
from tests.payloads.lying_registry import SCHEMA, VERSION, Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.inspect.records.decoding import Decoded

CREDENTIALS = Credentials(access_key_id="a", secret_access_key="b")
ORDER = b"\x0e"
"""The order 7."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    running = Registry()
    yield running
    running.close()


def opened(registry: Registry, *datas: bytes, clock: list[float] | None = None, **more: Any) -> list[Decoded]:
    """What stands in each record."""
    times = iter(clock or [0.0] * 1_000_000)

    async def look() -> list[Decoded]:
        connection = ConnectionOptions(
            region="eu-west-1",
            endpoint_url=registry.url,
            credentials=Credentials(access_key_id="a", secret_access_key="b"),
        )
        wire = ReadingWire(connection)
        async with wire:
            found = Registries(wire, **{"glue": True, "url": registry.url, "now": lambda: next(times), **more})
            return [await found.opened(decode(data)) for data in datas]

    return asyncio.run(look())


def confluent(data: bytes, number: int = 1) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def glue(data: bytes) -> bytes:
    return b"\3\0" + VERSION.bytes + data


def test_avro_of_either_registry_is_decoded_and_its_schema_is_fetched_once(registry: Registry) -> None:
    first, again, third, packed = opened(
        registry, confluent(ORDER), confluent(ORDER), glue(ORDER), gzip.compress(glue(ORDER))
    )
    assert (first.value, first.text, first.is_json) == ({"id": 7}, '{"id": 7}', True)
    assert [step.kind for step in first.steps] == ["confluent", "avro"]
    assert again == first
    assert third.value == {"id": 7}
    assert "of the schema shop/orders version 3" in third.steps[-1].why
    assert [step.kind for step in packed.steps] == ["gzip", "glue", "avro"]
    assert registry.asked == [("/schemas/ids/1", None), ("AWSGlue.GetSchemaVersion", str(VERSION))]


def test_what_looks_like_another_layer_behind_the_framing_is_avro(registry: Registry) -> None:
    """An order whose bytes would pass for a framing of their own."""
    pairs = json.dumps({"type": "record", "name": "P", "fields": [{"name": c, "type": "int"} for c in "abcdef"]})
    registry.schemas[1] = {"schema": pairs}
    data = confluent(bytes([0, 0, 0, 0, 2, 4]))
    assert [step.kind for step in decode(data).steps][:2] == ["confluent", "confluent"]
    (found,) = opened(registry, data)
    assert list(found.value.values()) == [0, 0, 0, 0, 1, 2]


def test_a_registry_is_asked_only_where_that_is_wanted(registry: Registry) -> None:
    found = opened(registry, confluent(ORDER), glue(b'{"a": 1}'), b'{"a": 1}', glue=False, url=None)
    assert registry.asked == []
    assert found[1].value == {"a": 1}
    (only,) = opened(registry, confluent(ORDER), url=None)
    assert registry.asked == []
    assert only.schema is not None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"schema": SCHEMA, "schemaType": "PROTOBUF"}, "is PROTOBUF, which is not decoded"),
        ({"schema": "{}", "schemaType": "JSON"}, "is JSON, which tells itself"),
        ({"schema": SCHEMA, "references": [{"name": "x"}]}, "refers to others, which are not fetched"),
        ({"schema": "[" * 10_000}, "cannot be used: the schema is no JSON"),
        ({"schema": '"Elsewhere"'}, "it refers to another schema"),
        ({"schema": " " * (SCHEMA_BYTES_MAX + 1)}, f"has more than {SCHEMA_BYTES_MAX} characters"),
        ({"schema": " " * (2 * SCHEMA_BYTES_MAX)}, f"its answer has more than {2 * SCHEMA_BYTES_MAX} bytes"),
        ({"no schema": 1}, "the answer is not what this call returns"),
    ],
)
def test_a_schema_that_cannot_be_used_is_said(registry: Registry, answer: dict[str, Any], why: str) -> None:
    registry.schemas[1] = answer
    (found,) = opened(registry, confluent(b'{"a": 1}'))
    assert why in found.steps[0].why
    assert found.value == {"a": 1}  # as without a registry


def test_data_of_another_schema_is_said_and_shown_as_bytes(registry: Registry) -> None:
    (found,) = opened(registry, confluent(ORDER + b"tail"))
    assert found.steps[-1].kind == "binary"
    assert "it is not of the schema 1: 4 bytes are left over" in found.steps[-1].why
    assert (found.text, found.shown) == (None, "0e 74 61 69 6c")


def test_a_registry_that_fails_is_asked_again_later(registry: Registry) -> None:
    registry.status = 503
    data = confluent(ORDER)
    (found,) = opened(registry, data)
    assert f"its schema cannot be fetched: {registry.url[7:]} answers 503" in found.steps[0].why
    registry.asked.clear()
    opened(registry, data, data, data, clock=[0.0, 1.0, AGAIN_S + 1.0, AGAIN_S + 1.0])
    assert len(registry.asked) == 2
    registry.status = 200
    assert "EntityNotFoundException" in opened(registry, b"\3\0" + uuid.uuid4().bytes + ORDER)[0].steps[0].why


def test_a_registry_that_is_not_there_is_said(registry: Registry) -> None:
    (found,) = opened(registry, confluent(ORDER), url="http://127.0.0.1:9")
    assert "127.0.0.1:9 gives no answer" in found.steps[0].why


def test_the_password_goes_to_the_registry_alone(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AUTHORIZATION, "user:word")
    opened(registry, confluent(ORDER))
    assert registry.asked == [("/schemas/ids/1", "Basic " + base64.b64encode(b"user:word").decode())]
    registry.status = 302
    (found,) = opened(registry, confluent(ORDER))
    assert "answers 302" in found.steps[0].why
    assert len(registry.asked) == 2
    for url in ("http://user:word@127.0.0.1", "ftp://127.0.0.1", "127.0.0.1", "http://127.0.0.1?x=1"):
        with pytest.raises(OptionError, match="--schema-registry") as told:
            opened(registry, url=url)
        assert "word@" not in str(told.value)


def test_no_more_schemas_are_kept_than_the_bound(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "SCHEMAS_MAX", 2)
    registry.schemas = {number: {"schema": SCHEMA} for number in range(1, 4)}
    opened(registry, *(confluent(ORDER, number) for number in (1, 2, 1, 3, 1, 2)))
    assert [path.rpartition("/")[2] for path, _ in registry.asked] == ["1", "2", "3", "2"]
    assert SCHEMAS_MAX == 500
