"""Write a plan of moves, and what became of it, as lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.cli.report_output import pairs_of
from shardway.cli.tables import is_wide, table_of
from shardway.inspect.moments import counted, span_text, time_text

if TYPE_CHECKING:
    from shardway.inspect import Applied, Move, Plan


def place_of_plan(plan: Plan) -> str:
    """Return where the stream of a plan is: staging and production have the same names."""
    _, _, _, region, account, *_ = [*plan.stream_arn.split(":"), "", "", "", "", ""]
    return f"of the stream {plan.stream} in {region or 'an unknown region'}, account {account or 'unknown'}"


def plan_text(plan: Plan) -> str:
    """Return a plan as a table, with what it changes and what it leaves."""
    shows_numbers = is_wide.get()  # two sequence numbers have 112 digits: the times say where a lease goes
    numbers = ("FROM", "TO") if shows_numbers else ()
    head = ("SHARD", "WAS", "NEXT RECORD", "DISTANCE", "OWNER", *numbers, "WHY")
    rows = [
        (
            one.shard_id,
            time_text(one.next_before),
            time_text(one.next_after),
            _distance(one.distance_s),
            one.life.value if one.before is None or one.before.owner is None else f"{one.before.owner}: {one.life}",
            *(_numbers(one) if shows_numbers else ()),
            ("" if one.exact else "not exact: ")
            + one.why
            + ("; the prepared checkpoint is dropped" if one.before and one.before.pending else ""),
        )
        for one in plan.moves
    ]
    lines = [f"{plan.application}: {counted(len(plan.moves), 'lease')} of {len(plan.moves) + len(plan.stays)} move"]
    lines[0] += f", {place_of_plan(plan)}"
    if rows:
        lines.append(table_of(head, rows))
    if plan.stays:
        lines.append(pairs_of(("stays", f"{key}: {why}") for key, why in plan.stays.items()))
    if plan.live:
        lines.append(f"{len(plan.live)} of them have live owners: stop these, or have them hand over (--handoff)")
    return "\n".join(lines)


def _numbers(move: Move) -> tuple[str, str]:
    """Return where a lease stands, and where it is to stand, as its row says it."""
    before = move.before
    return (
        "(no row)" if before is None else _place(before.checkpoint, before.sub_sequence_number),
        _place(move.checkpoint, move.sub_sequence_number),
    )


def _place(checkpoint: str, sub: int) -> str:
    return checkpoint + (f"/{sub}" if sub else "")


def _distance(distance_s: float | None) -> str | None:
    if distance_s is None:
        return None
    if abs(distance_s) < 1:
        return "none"
    return f"{span_text(abs(distance_s))} {'back' if distance_s < 0 else 'forward'}"


def outcome_text(applied: Applied) -> str:
    """Return what became of each move of a plan that was applied."""
    lines = [f"{counted(len(applied.written), 'lease')} of {applied.application} written"]
    lines += [f"{key} was refused: {why}" for key, why in applied.refused.items()]
    lines += [f"{key}: it is not known whether it is written: {why}" for key, why in applied.unknown.items()]
    return "\n".join(lines)
