"""Apply a plan of moves once it is confirmed, and keep the positions that were there before."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from shardway.cli.output import say, warn
from shardway.cli.plan_lines import outcome_text, place_of_plan, plan_text
from shardway.cli.report_output import Shape, show_report, tell_missing
from shardway.errors import OptionError
from shardway.inspect.moments import counted
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.inspect import Applied, Plan, PositionsReport, Store


PLAN_BYTES_MAX = 64 * 1024 * 1024
Shards = Annotated[
    list[str] | None, typer.Option("--shard", help="Only this shard; may be given again.", metavar="SHARD")
]
Failover = Annotated[
    str, typer.Option(help="Failover time of workers whose rows do not tell it, as KCL workers'.", metavar="SPAN")
]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", help="Write the plan to a file, for shardway app apply.", metavar="FILE")
]
Apply = Annotated[bool, typer.Option("--apply", help="Write it, once it is confirmed.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask: what is shown is confirmed.")]
Handoff = Annotated[bool, typer.Option("--handoff", help="Have live Shardway workers hand their leases over for it.")]
Inexact = Annotated[
    bool, typer.Option("--accept-inexact", help="Also write positions that do not say exactly where reading goes on.")
]
Save = Annotated[
    Path | None,
    typer.Option(help="File that keeps what was there; else APPLICATION-TIME.positions.json.", metavar="FILE"),
]


class PlanWriting:
    """The options that say how a plan is written."""

    def __init__(
        self,
        store: Store,
        connection: ConnectionOptions,
        yes: bool,
        handoff: bool,
        accept_inexact: bool,
        save: Path | None,
        before: Callable[[PositionsReport], Awaitable[None]] | None = None,
    ) -> None:
        """``before`` is awaited with the positions as they are, before anything is written; where it raises, nothing is
        written.
        """
        self._check_plan = before
        self.store, self.connection, self.yes, self.save = store, connection, yes, save
        self.handoff, self.accept_inexact = handoff, accept_inexact

    def write(self, plan: Plan) -> Applied:
        """Apply a plan. Raises OptionError for a plan of another store."""
        from shardway.inspect import apply_plan, lease_table

        if plan.store != self.store.kind:
            raise OptionError(f"the plan is for {plan.store}: name the store (--store)")
        path = self.save or Path(f"{plan.application}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%fZ}.positions.json")

        async def keep(found: PositionsReport) -> None:
            keep_positions(path, found)
            if self._check_plan is not None:
                await self._check_plan(found)

        async def write() -> Applied:
            table = lease_table(self.store, plan.application, self.connection)
            try:
                return await apply_plan(
                    plan,
                    table,
                    keep=keep,
                    handoff=self.handoff,
                    accept_inexact=self.accept_inexact,
                )
            finally:
                await table.close()

        return asyncio.run(write())

    def confirm(self, plan: Plan) -> None:
        """Ask the user to confirm the plan: nothing is written that was not confirmed."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise OptionError("nothing was written: there is no terminal to confirm it; give --yes")
        say(f"This writes {counted(len(plan.moves), 'lease')} of {plan.application}, {place_of_plan(plan)}.")
        say("Type the application's name to go on:")
        if sys.stdin.readline().strip() != plan.application:
            raise OptionError("nothing was written: it was not confirmed")


def go_on_with(plan: Plan, plan_file: Path | None, output: Shape, writing: Any, *, apply: bool) -> None:
    """Show a plan, and write it if it is to be written."""
    if not apply or output is Shape.table:
        show_report(plan, plan.moves, plan_text(plan), output)
    tell_missing(plan.missing)
    for key, why in plan.refused.items():
        warn(f"this cannot be written: {key}: {why}")
    if plan_file is not None:
        create_file(plan_file, msgspec.json.format(msgspec.json.encode(plan), indent=2), "--plan")
    if not apply or plan.refused or not plan.moves:
        raise typer.Exit(1 if plan.refused else 0)
    writer = writing()
    writer.confirm(plan)
    applied = writer.write(plan)
    show_report(applied, [applied], outcome_text(applied), output)
    raise typer.Exit(0 if applied.complete else 1)


def keep_positions(path: Path, found: PositionsReport) -> None:
    """Write positions into a new file, and say where they are."""
    create_file(path, msgspec.json.format(msgspec.json.encode(found), indent=2), "--save")
    say(f"shardway: what was there is kept in {path}")


def create_file(path: Path, content: bytes, option: str) -> None:
    """Write a file that was not there before. It is on the disk when this returns."""
    try:
        with path.open("xb") as file:
            file.write(content + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        raise OptionError(f"{option} {path}: {fault.strerror}") from fault
