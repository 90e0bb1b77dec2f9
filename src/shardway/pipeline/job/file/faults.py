"""Say what is wrong in a job file, each fault with its place in the file."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shardway.pipeline.job.file.lines import KeyPath


class Fault(NamedTuple):
    """One fault: where in the file it is, and what is wrong."""

    path: KeyPath
    what: str

    @property
    def place(self) -> str:
        """The place of the fault as messages call it, such as ``sinks[1].path``."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


class JobFileError(OptionError):
    """A job file is wrong, or does not fit what is there. ``faults`` has every fault as ``file:line: what``."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(list(faults))

    def __str__(self) -> str:
        """Return a line for each fault."""
        return "\n".join(self.faults)


def nearest(name: str, names: Collection[str]) -> str:
    """Return ``: did you mean ...?``, or the names there are when they are few, or nothing."""
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f": did you mean {by_lower[near[0]]}?"
    return f" (there are {', '.join(sorted(names))})" if 0 < len(names) <= 12 else ""
