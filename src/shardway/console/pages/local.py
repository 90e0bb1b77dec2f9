"""The pages of the local Kinesis: its clock, its faults, and resharding by hand. They let a user learn Kinesis on a
laptop.

`LocalControl` asks the local service; the pages are made of its answers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

from shardway.console.page import PageError, console_of, form_of, link, rendered
from shardway.console.writing import Write, written
from shardway.errors import OptionError
from shardway.inspect.moments import span_s

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.local_control import LocalControl


_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
ADVANCE_S_MAX = 400 * 86_400.0


def _local(request: Request) -> LocalControl:
    found = console_of(request).local
    if found is None:
        raise PageError(404, "This console shows no local Kinesis (shardway local --console, or --local).")
    return found


async def local_page(request: Request) -> Response:
    """Show all of the local service on one page."""
    from shardway.local.faults import How

    console, local = console_of(request), _local(request)
    streams = await console.sampler.sample(console.topics.streams(), wait_s=2.0)
    name = request.query_params.get("stream", "")
    report = None
    if name:
        report = await console.inspector.make_sibling().stream(name, consumers=False)
    context: dict[str, Any] = {
        "title": "Local Kinesis",
        "state": await local.state(),
        "url": local.url,
        "hows": get_args(How),
        "all_streams": [one.name for one in streams.value.report.streams] if streams.value else [],
        "stream": name,
        "shards": [one for one in report.shards or [] if one.open] if report is not None else [],
    }
    return rendered(request, "local.html", context)


async def advance(request: Request) -> Response:
    """Move the clock forward."""
    local, seconds = _local(request), span_s(form_of(request).get("span", ""))
    if not 0 < seconds <= ADVANCE_S_MAX:
        raise OptionError("the clock moves forward by up to 400 days")
    before = (await local.state())["clock"]
    write = Write("local.clock", "The local clock", {"advance_s": seconds}, before=before)
    return await written(request, write, lambda: local.advance(seconds), back=link("local"))


async def add_fault(request: Request) -> Response:
    """Order a fault."""
    local, form = _local(request), form_of(request)
    values: dict[str, Any] = {"how": form.get("how", ""), "operation": form.get("operation", "").strip() or "*"}
    if stream := form.get("stream", "").strip():
        values["stream"] = stream
    for name in ("count", "probability", "delay_s"):
        if text := form.get(name, "").strip():
            if not (_COUNT if name == "count" else _NUMBER).fullmatch(text):
                raise OptionError(f"{name}: {text[:40]!r} is no number")
            values[name] = int(text) if name == "count" else float(text)
    if values["how"] == "error":
        values["code"] = form.get("code", "").strip() or "InternalFailure"
    write = Write("local.fault", "A fault of the local Kinesis", values)
    return await written(request, write, lambda: local.add_fault(values), back=link("local"))


async def clear_faults(request: Request) -> Response:
    """End all faults."""
    local = _local(request)
    before = (await local.state())["faults"]
    write = Write("local.faults-cleared", "The faults of the local Kinesis", {}, before=before)
    return await written(request, write, local.clear_faults, back=link("local"))


async def reshard(request: Request) -> Response:
    """Split a shard, merge two neighbours, or set the number of shards."""
    local, form = _local(request), form_of(request)
    stream, how = form.get("stream", ""), form.get("how", "")
    listed = await console_of(request).inspector.make_sibling().stream(stream, consumers=False)
    opened = [one for one in listed.shards or [] if one.open]
    by_id = {one.shard_id: one for one in opened}
    shard = form.get("shard", "")
    values: dict[str, Any] = {"StreamName": stream}
    if how == "count":
        if not _COUNT.fullmatch(count := form.get("count", "")):
            raise OptionError("the number of shards is a whole number")
        operation = "UpdateShardCount"
        values |= {"TargetShardCount": int(count), "ScalingType": "UNIFORM_SCALING"}
    elif shard not in by_id:
        raise OptionError(f"the stream {stream} has no open shard {shard}")
    elif how == "split":
        first, last = int(by_id[shard].first_hash_key), int(by_id[shard].last_hash_key)
        operation = "SplitShard"
        values |= {"ShardToSplit": shard, "NewStartingHashKey": str(first + (last - first + 1) // 2)}
    elif how == "merge":
        after = str(int(by_id[shard].last_hash_key) + 1)
        neighbour = next((one.shard_id for one in opened if one.first_hash_key == after), None)
        if neighbour is None:
            raise OptionError(f"no shard follows {shard} in the hash range: choose another")
        operation = "MergeShards"
        values |= {"ShardToMerge": shard, "AdjacentShardToMerge": neighbour}
    else:
        raise OptionError("choose to split, to merge, or a number of shards")
    before = sorted(by_id)
    write = Write(f"local.{operation}", f"{operation} of {stream}", values, before=before)
    return await written(request, write, lambda: local.reshard(operation, values), back=link("streams", stream))


ROUTES = [
    ("/local", ["GET"], local_page),
    ("/local/clock", ["POST"], advance),
    ("/local/faults", ["POST"], add_fault),
    ("/local/faults/clear", ["POST"], clear_faults),
    ("/local/reshard", ["POST"], reshard),
]
