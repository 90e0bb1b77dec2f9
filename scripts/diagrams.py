"""Draws the diagrams of states in the design from the tables that the code itself goes by.

``python -m scripts.diagrams docs/DESIGN.md`` draws them anew. In a page each diagram stands between
``<!-- diagram: NAME -->`` and ``<!-- end -->``. `DIAGRAMS` has the names.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shardway.core.handoff.owner import OWNER, OwnerState
from shardway.core.handoff.receiver import RECEIVER, ReceiverState
from shardway.core.log import transitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from enum import StrEnum

    Move = tuple[StrEnum, StrEnum, StrEnum]
    """A state, an input, and the state that follows."""


def drawn(firsts: Sequence[StrEnum], last: StrEnum, moves: Iterable[Move]) -> str:
    """Return a diagram in Mermaid's language. It begins at the states ``firsts``, ends at ``last``, and has an arrow
    for each pair of states, with all inputs that lead along it. A move that leaves a state as it is has no arrow.
    """
    arrows: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for state, given, after in moves:
        if state is not after:
            arrows.setdefault((state, after), []).append(given.value)
    states = {state for arrow in arrows for state in arrow}
    lines = [f'    state "{state.value}" as {state.name}' for state in type(last) if state in states]
    lines += [f"    [*] --> {first.name}" for first in firsts]
    lines += [f"    {state.name} --> {after.name}: {', '.join(given)}" for (state, after), given in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, f"    {last.name} --> [*]", "```"]) + "\n"


def of_owner() -> str:
    """Return the diagram of what becomes of a lease that this worker holds."""
    moves = ((state, given, after) for (state, given), (after, _) in OWNER.items())
    return drawn([OwnerState.HOLDING], OwnerState.GONE, moves)


def of_receiver() -> str:
    """Return the diagram of how a worker comes to a lease."""
    moves = ((state, given, after) for (state, given), (after, _) in RECEIVER.items())
    return drawn([ReceiverState.IDLE], ReceiverState.HOLDING, moves)


def of_log_cursor() -> str:
    """Return the diagram of the states in which the cursor reads a shard's log."""
    moves = ((state, sign, after.state) for state, signs in transitions.TABLE.items() for sign, after in signs.items())
    begins = [transitions.State.FRESH, transitions.State.SEEKING, transitions.State.OVERTAKEN]
    return drawn(begins, transitions.State.ENDED, moves)


DIAGRAMS: dict[str, Callable[[], str]] = {"owner": of_owner, "receiver": of_receiver, "log cursor": of_log_cursor}


def renewed(page: str) -> str:
    """Return the text of a page with all its diagrams as the code has them now."""
    return re.sub(
        r"(<!-- diagram: (.*?) -->\n).*?(?=<!-- end -->)",
        lambda found: found[1] + DIAGRAMS[found[2]](),
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
