"""The page with the form that puts one record into a stream. Writers alone may send the form, as the gate decides.

The audit log notes the stream, the size and the position of a record. Neither the log nor a page that follows shows the
data or the key.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.calls.answers import reading
from shardway.aws.calls.retry import RetryPolicy
from shardway.aws.wire import Wire
from shardway.console.page import console_of, form_of, link, rendered
from shardway.console.writing import Write, written
from shardway.errors import OptionError
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console


KEY_CHARACTERS_MAX = 256
"""Kinesis takes partition keys of 1 to 256 characters."""
DATA_BYTES_MAX = 128 * 1024
"""The data that the form takes. A whole form has at most 256 KiB, in which a byte may take three."""
ENCODINGS = {"text": "text", "json": "JSON, which is checked", "base64": "base64"}
_ONE_ATTEMPT = RetryPolicy(attempts_max=1)
"""A put that was sent again after no answer could put the record twice: the page says that it is not known."""


class _PutAnswer(msgspec.Struct):
    shard_id: str = msgspec.field(name="ShardId")
    sequence_number: str = msgspec.field(name="SequenceNumber")


async def form(request: Request) -> Response:
    """Show the empty form."""
    return _page(request, {}, None)


async def put(request: Request) -> Response:
    """Put the record of the form. Where the form cannot be taken, show the form again with what it held."""
    console, name, fields = console_of(request), request.path_params["name"], form_of(request)
    try:
        key, data = record_of(name, fields)
    except OptionError as fault:
        return _page(request, fields, str(fault))

    async def do() -> dict[str, str]:
        return await _put(console, name, key, data)

    target = {"stream": name, "bytes": len(data)}
    write = Write("record.put", f"A record for {name}", target)
    return await written(request, write, do, back=link("streams", name, "records"))


def record_of(name: str, fields: dict[str, str]) -> tuple[str, bytes]:
    """Return the key and the data of a form. Raises OptionError, which quotes neither."""
    if fields.get("confirm", "").strip() != name:
        raise OptionError("Nothing was put: write the stream's name to confirm it.")
    key = fields.get("key", "")
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise OptionError(f"Nothing was put: a partition key has 1 to {KEY_CHARACTERS_MAX} characters.")
    data = _data(fields.get("data", ""), fields.get("encoding", "text"))
    if len(data) > DATA_BYTES_MAX:
        raise OptionError(f"Nothing was put: the form takes {DATA_BYTES_MAX} bytes of data (shardway put takes more).")
    return key, data


def _data(text: str, encoding: str) -> bytes:
    text = text.replace("\r\n", "\n")  # a browser sends the ends of lines so, whatever was typed
    if encoding not in ENCODINGS:
        raise OptionError("Nothing was put: choose how the data is written.")
    if encoding == "base64":
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise OptionError("Nothing was put: the data is no base64.") from None
    if encoding == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as fault:
            where = f" (line {fault.lineno}, column {fault.colno})" if isinstance(fault, json.JSONDecodeError) else ""
            raise OptionError(f"Nothing was put: the data is no JSON{where}.") from None
    return text.encode()


async def _put(console: Console, name: str, key: str, data: bytes) -> dict[str, str]:
    stream = stream_name(name)
    named = {"StreamARN": stream.arn} if stream.arn is not None else {"StreamName": stream.short}
    body = msgspec.json.encode({**named, "PartitionKey": key, "Data": data})
    async with Wire(console.connection) as wire:
        answer = await wire.call("kinesis", "PutRecord", body, retry=_ONE_ATTEMPT, stream_arn=stream.arn)
    with reading("PutRecord"):
        found = msgspec.json.decode(answer, type=_PutAnswer)
    return {"shard": found.shard_id, "sequence_number": found.sequence_number}


def _page(request: Request, fields: dict[str, str], fault: str | None) -> Response:
    name = request.path_params["name"]
    context: dict[str, Any] = {
        "title": f"Put a record into {name}",
        "name": name,
        "form": fields,
        "encodings": ENCODINGS,
        "fault": fault,
    }
    return rendered(request, "put.html", context, status=400 if fault else 200)


ROUTES = [("/streams/{name}/put", ["GET"], form), ("/streams/{name}/put", ["POST"], put)]
