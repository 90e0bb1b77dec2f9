"""Note which records a visitor views, and name the shards to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.console.page import console_of, visitor_of
from shardway.shown import one_line

if TYPE_CHECKING:
    from starlette.requests import Request

    from shardway.console.console import Console


async def note_view(request: Request, action: str, target: dict[str, Any]) -> None:
    """Write into the audit log which records the visitor of a request is shown; nothing where payloads are hidden."""
    console = console_of(request)
    if console.payloads.shown:
        await console.audit.viewed(
            visitor_of(request), action, {name: _short_value(one) for name, one in target.items()}
        )


def _short_value(value: Any) -> Any:
    return one_line(value)[:256] if isinstance(value, str) else value


async def shard_ids(console: Console, name: str) -> list[str]:
    """Return the shards of a stream, as far as they are known within a few seconds."""
    sample = await console.sampler.sample(console.topics.stream(name), wait_s=3.0)
    return [one.shard_id for one in (sample.value.shards or [])] if sample.value is not None else []
