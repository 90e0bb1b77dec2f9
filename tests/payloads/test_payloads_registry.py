"""Records in the frame of a schema registry: read, refused with a reason, or tried again while the registry is away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import json
import threading
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway import ConnectionOptions, Credentials, deserializers
from shardway.errors import OptionError, PayloadError, RegistryError
from shardway.payloads import schema_cache
from shardway.payloads.confluent import AUTHORIZATION, SCHEMA_BYTES_MAX
from shardway.payloads.frames import confluent_frame, glue_frame
from shardway.payloads.registry_schemas import Answer
from shardway.payloads.schema_cache import AWAY_AGAIN_S, UNKNOWN_AGAIN_S, SchemaCache
from tests.payloads.lying_registry import SCHEMA, VERSION, Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDER = b"\x0e"
"""The order 7."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    running = Registry()
    yield running
    running.close()


def framed(data: bytes, number: int = 1) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def glue_framed(data: bytes, kind: int = 0) -> bytes:
    return bytes([3, kind]) + VERSION.bytes + (zlib.compress(data) if kind == 5 else data)


def glue_reader(registry: Registry) -> Any:
    credentials = Credentials(access_key_id="a", secret_access_key="b")
    connection = ConnectionOptions(region="eu-west-1", endpoint_url=registry.url, credentials=credentials)
    return deserializers.glue(connection=connection)


def test_avro_is_read_by_the_schema_it_was_written_with(registry: Registry) -> None:
    later = json.loads(SCHEMA)
    later["fields"].append({"name": "note", "type": ["null", "string"]})
    registry.schemas[2] = {"schema": json.dumps(later)}
    read = deserializers.confluent(registry.url)
    assert [read(framed(ORDER)), read(framed(ORDER)), read(framed(ORDER + b"\2\4ab", 2))] == [
        {"id": 7},
        {"id": 7},
        {"id": 7, "note": "ab"},
    ]
    assert [path for path, _ in registry.asked] == ["/schemas/ids/1", "/schemas/ids/2"]


def test_values_are_those_of_python(registry: Registry) -> None:
    kinds: list[Any] = [
        "bytes",
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "int", "logicalType": "date"},
        "double",
    ]
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    registry.schemas[1] = {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}
    data = b"\4\x00\xff" + b"\2\x6e" + b"\2" + b"\2" + b"\0\0\0\0\0\0\xf0\x7f"
    assert list(deserializers.confluent(registry.url)(framed(data)).values()) == [
        b"\x00\xff",
        Decimal("1.10"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=dt.UTC),
        dt.date(1970, 1, 2),
        float("inf"),
    ]


def test_json_is_read_as_it_is(registry: Registry) -> None:
    registry.schemas[1] = {"schema": "{}", "schemaType": "JSON"}
    read = deserializers.confluent(registry.url)
    assert read(framed(b'{"a": [1, "\\ud83d"]}')) == {"a": [1, "\ufffd"]}
    with pytest.raises(PayloadError, match="not one value of JSON"):
        read(framed(b"{"))


@pytest.mark.parametrize("kind", [0, 5])
def test_the_glue_registry(registry: Registry, kind: int) -> None:
    read = glue_reader(registry)
    assert [read(glue_framed(ORDER, kind)), read(glue_framed(ORDER, kind))] == [{"id": 7}, {"id": 7}]
    assert registry.asked == [("AWSGlue.GetSchemaVersion", str(VERSION))]
    with pytest.raises(PayloadError, match=f"has no schema {uuid.UUID(int=5)}"):
        read(b"\3\0" + uuid.UUID(int=5).bytes + ORDER)
    with pytest.raises(PayloadError, match="broken or cut off"):
        read(glue_framed(ORDER, 5)[:-2])


@pytest.mark.parametrize("number", [0, 2, 10_000_001, 2**32 - 1])
def test_an_id_that_the_registry_does_not_have_is_no_frame_of_its(registry: Registry, number: int) -> None:
    with pytest.raises(PayloadError, match=f"has no schema {number}$"):
        deserializers.confluent(registry.url)(framed(ORDER, number))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"schema": "{}", "schemaType": "PROTOBUF"}, "PROTOBUF, which is not decoded"),
        ({"schema": SCHEMA, "references": [{"name": "other"}]}, "refers to others"),
        ({"schema": " " * SCHEMA_BYTES_MAX + SCHEMA}, "more than"),
        ({"schema": "[" * 100_000}, "no JSON"),
        ({"schema": '{"type": "record"}'}, "no Avro schema"),
        ({"schema": '"string"'}, "it is not of the schema"),
        ({"schema": '{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}'}, "deep"),
    ],
)
def test_a_schema_that_cannot_be_used_makes_the_record_unreadable(registry: Registry, schema: Any, why: str) -> None:
    registry.schemas[1] = schema
    with pytest.raises(PayloadError, match=why):
        deserializers.confluent(registry.url)(framed(ORDER))


@pytest.mark.parametrize("status", [302, 401, 403, 404, 500, 503])
def test_a_registry_that_refuses_makes_no_record_unreadable(
    registry: Registry, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers 404 as any server does is no registry. A redirect would take the password elsewhere."""
    monkeypatch.setenv(AUTHORIZATION, "reader:secret")
    registry.status = status
    if status == 404:
        registry.lie = b"<html>not found</html>"
    with pytest.raises(RegistryError, match=f"answers {status}") as told:
        deserializers.confluent(registry.url)(framed(ORDER))
    assert told.value.retryable
    assert not told.value.pending
    assert "secret" not in str(told.value)
    given = "Basic " + base64.b64encode(b"reader:secret").decode()
    assert registry.asked == [("/schemas/ids/1", given)], "it is asked once, and follows no redirect"


@pytest.mark.parametrize("lie", [b"", b"{", b"[]", b'{"schema": 7}', b'{"schemaType": "AVRO"}', b"\xff", b"[" * 99_999])
def test_an_answer_that_no_registry_gives_makes_no_record_unreadable(registry: Registry, lie: bytes) -> None:
    registry.lie = lie or b" "
    with pytest.raises(RegistryError, match="is not what this call returns"):
        deserializers.confluent(registry.url)(framed(ORDER))


def test_an_endless_answer_ends(registry: Registry) -> None:
    registry.lie = b" " * (2 * SCHEMA_BYTES_MAX + 1)
    with pytest.raises(RegistryError, match="more than"):
        deserializers.confluent(registry.url)(framed(ORDER))


def test_a_registry_that_comes_back_is_asked_again() -> None:
    times = [0.0]
    asked: list[str] = []
    answers: dict[str, Any] = {"1": RegistryError("away")}

    def ask(identity: str) -> Answer:
        asked.append(identity)
        found = answers[identity]
        if isinstance(found, Exception):
            raise found
        return Answer(found, "AVRO", "")

    cache = SchemaCache("registry", ask, now=lambda: times[0])
    for _ in range(3):
        with pytest.raises(RegistryError, match="gives no schema: away"):
            cache.of("1")
    assert asked == ["1"], "it is left alone for a moment"
    times[0] += AWAY_AGAIN_S
    answers["1"] = '"string"'
    assert cache.of("1") is cache.of("1")
    assert asked == ["1", "1"]


def test_an_unknown_id_is_asked_for_again_later(registry: Registry) -> None:
    times = [0.0]
    asked: list[str] = []

    def ask(identity: str) -> Answer:
        from shardway.payloads.confluent import UnknownSchemaError

        asked.append(identity)
        if len(asked) == 1:
            raise UnknownSchemaError("none")
        return Answer('"string"', "AVRO", "")

    cache = SchemaCache("registry", ask, now=lambda: times[0])
    assert cache.of("1").schema is None
    assert cache.of("1").schema is None
    times[0] += UNKNOWN_AGAIN_S
    assert cache.of("1").schema is not None
    assert len(asked) == 2


def test_schemas_are_bounded_in_number() -> None:
    asked: list[str] = []

    def ask(identity: str) -> Answer:
        asked.append(identity)
        return Answer('"string"', "AVRO", "")

    cache = SchemaCache("registry", ask, schemas_max=2)
    for identity in ("1", "2", "1", "3", "1", "2"):
        cache.of(identity)
    assert asked == ["1", "2", "3", "2"]


@pytest.mark.parametrize("on_loop", [True, False])
def test_an_answer_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch, on_loop: bool) -> None:
    """Bytes that trickle keep each timeout of a socket from passing."""
    monkeypatch.setattr(schema_cache, "FETCH_MAX_S", 0.0)
    end, times = threading.Event(), [0.0]

    def ask(identity: str) -> Answer:
        end.wait()
        return Answer('"string"', "AVRO", "")

    cache = SchemaCache("registry", ask, now=lambda: times[0])

    async def asked() -> Any:
        while True:
            with contextlib.suppress(PendingError):
                return not_pending(cache)
            await asyncio.sleep(0.001)

    class PendingError(Exception):
        pass

    def not_pending(cache: SchemaCache) -> Any:
        try:
            return cache.of("1")
        except RegistryError as error:
            if error.pending:
                raise PendingError from None
            return str(error)

    for _ in range(3):
        found = asyncio.run(asked()) if on_loop else not_pending(cache)
        assert "registry gives no schema: it gives no answer within 0 s" in str(found)
        times[0] += AWAY_AGAIN_S
    end.set()
    monkeypatch.undo()
    while isinstance(found, str):
        found = not_pending(cache)
        times[0] += AWAY_AGAIN_S
    assert found.name == "1"


def test_an_error_that_no_registry_makes_is_one_of_the_registry() -> None:
    def ask(identity: str) -> Answer:
        raise LookupError("odd")

    with pytest.raises(RegistryError, match="the fetch ended with LookupError"):
        SchemaCache("registry", ask).of("1")


def test_threads_that_ask_at_once_share_a_fetch() -> None:
    begun, end, asked = threading.Event(), threading.Event(), []

    def ask(identity: str) -> Answer:
        asked.append(identity)
        begun.set()
        end.wait()
        return Answer('"string"', "AVRO", "")

    cache = SchemaCache("registry", ask)
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(cache.of, "1") for _ in range(3)]
        begun.wait()
        end.set()
        assert len({one.result().name for one in found}) == 1
    assert asked == ["1"]


async def test_an_event_loop_is_not_blocked(registry: Registry) -> None:
    read = deserializers.confluent(registry.url)
    with pytest.raises(RegistryError, match="is being fetched: ask again") as told:
        read(framed(ORDER))
    assert told.value.pending
    while not registry.asked:
        await asyncio.sleep(0.005)
    found: list[Any] = []
    while not found:
        with contextlib.suppress(RegistryError):
            found.append(read(framed(ORDER)))
        await asyncio.sleep(0.005)
    assert found == [{"id": 7}]
    assert len(registry.asked) == 1


@pytest.mark.parametrize(
    "url", ["", "registry", "ftp://host", "http://", "http://a:b@host", "http://host?x=1", "http://[1"]
)
def test_what_is_no_address_is_told_at_once(url: str) -> None:
    with pytest.raises(OptionError, match="registry_url: "):
        deserializers.confluent(url)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1", b'{"a": 1}'])
def test_data_in_no_frame_is_refused(registry: Registry, data: bytes) -> None:
    with pytest.raises(PayloadError, match="in no frame of a schema registry"):
        deserializers.confluent(registry.url)(data)
    with pytest.raises(PayloadError, match="in no frame of the Glue registry"):
        glue_reader(registry)(data)
    assert registry.asked == []


@given(st.binary(max_size=40), st.sampled_from([b"", b"\0", b"\3\0", b"\3\5", b"\3\5" + bytes(16) + b"\x78\x9c"]))
def test_any_bytes_are_a_frame_or_refused(data: bytes, begins: bytes) -> None:
    for frame in (confluent_frame, glue_frame):
        try:
            identity, inner = frame(begins + data)
        except PayloadError:
            continue
        assert identity
        assert isinstance(inner, bytes)


def test_a_glue_frame_that_opens_to_too_much_is_refused() -> None:
    with pytest.raises(PayloadError, match="opens to more than 10 bytes"):
        glue_frame(glue_framed(bytes(11), 5), opened_bytes_max=10)


def test_a_registry_behind_a_proxy_is_asked_through_it(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy of the environment counts as for any program, and so do the hosts that it is not for."""
    monkeypatch.setenv("http_proxy", registry.url)
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert deserializers.confluent("http://registry.invalid:8081")(framed(ORDER)) == {"id": 7}
    assert deserializers.confluent(registry.url)(framed(ORDER)) == {"id": 7}
    assert [path for path, _ in registry.asked] == ["http://registry.invalid:8081/schemas/ids/1", "/schemas/ids/1"]
