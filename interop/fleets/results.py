"""What was measured, as lines of text."""

from __future__ import annotations

from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEAD = ("what was done", "shard from", "to", "moves", "gap median s", "gap max s", "repeated", "two readers", "for s")


def table(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A table for each journey: its moves, by what was done, from which worker and to which."""
    for result in results:
        yield ""
        if "moves" not in result:
            yield f"{result['journey']}: did not come to its end: {result['steps']}"
            continue
        yield (
            f"{result['journey']}, {result['start']}: {result['records']} records, {result['missing']} missing, "
            f"{result['duplicates']} repeated; first record after {result['first_record_s']} s, "
            f"stopped in {result['stop_s']} s"
        )
        yield from aligned([HEAD, *move_rows(result)])
        for child in result["children"]:
            yield f"  child {child['shard']} at {child['taker']}: first record after {child['delay_ms']} ms"


def move_rows(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    def group(move: dict[str, Any]) -> tuple[int, str, str]:
        steps = [one["step"] for one in result["steps"]]
        return steps.index(move["step"]) if move["step"] in steps else -1, move["giver"], move["taker"]

    for (_, giver, taker), grouped in groupby(sorted(result["moves"], key=group), group):
        moves = list(grouped)
        gaps_s = [move["gap_ms"] / 1000 for move in moves]
        yield (
            moves[0]["step"],
            giver,
            taker,
            str(len(moves)),
            f"{median(gaps_s):.1f}",
            f"{max(gaps_s):.1f}",
            str(sum(move["duplicates"] for move in moves)),
            str(sum(move["late"] for move in moves)),
            f"{max(move['late_ms'] for move in moves) / 1000:.1f}",
        )


def aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
