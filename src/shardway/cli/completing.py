"""The names of streams and applications, for shells that complete words. What cannot be asked, or takes long, is left
out: a shell waits for it at each press of a key.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import typer

from shardway.errors import ShardwayError
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shardway.inspect import Inspector

ANSWER_TIMEOUT_S = 2.0
NAMES_MAX = 1_000


def complete_streams(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of streams that begin so, where the words before say how to reach them."""

    async def names(inspector: Inspector) -> list[str]:
        return [one.name for one in (await inspector.streams()).streams]

    return _matches(_ask(ctx, names), incomplete)


def complete_applications(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of applications that begin so, in the store that the words before name."""
    from shardway.inspect import Store

    async def names(inspector: Inspector) -> list[str]:
        given = ctx.params
        where = Store.parse(given.get("store") or "dynamodb", given.get("table"))
        return [one.name for one in (await inspector.applications(where)).applications]

    return _matches(_ask(ctx, names), incomplete)


def _matches(names: Sequence[str], incomplete: str) -> list[str]:
    return sorted(one for one in names if one.startswith(incomplete))[:NAMES_MAX]


def _ask(ctx: typer.Context, names: Callable[[Inspector], Awaitable[list[str]]]) -> list[str]:
    from shardway.cli.looking import looking

    try:
        look = looking(_connection(ctx), names)
        return asyncio.run(asyncio.wait_for(look, ANSWER_TIMEOUT_S))
    except (ShardwayError, TimeoutError, OSError):
        return []


def _connection(ctx: typer.Context) -> ConnectionOptions:
    """Return how AWS is reached by the options that stand there, or else by the context. Raises OptionError."""
    from shardway.cli.contexts_file import VALUES, contexts_kept

    known, root = contexts_kept(), ctx.find_root()
    wanted = root.params.get("name") or os.environ.get("SHARDWAY_CONTEXT") or known.current
    chosen = known.named(wanted) if wanted else None
    region, endpoint_url, profile = (ctx.params.get(one) or getattr(chosen, one, None) for one in VALUES)
    return ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
