"""When a checkpoint is written, and the two-phase ones.

By default checkpoints ride on the renewals of the lease; a cadence asks for writes of their own. While a prepared
checkpoint is not committed, none of them is written: the KCL's checkpoint write clears the columns of the pending one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from penstock.core.leases.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Riding:
    """Checkpoints go with the renewals only, and at each planned end of a tenure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Checkpoints also go when so many records were settled since the last one, or when so many seconds have passed
    since it and any record was settled.
    """

    records: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.records, self.seconds) if value is not None]
        if not given or not all(value > 0 for value in given):
            raise OptionError("Every: give records or seconds or both, above 0")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Checkpoints also go whenever a record was settled, one write at a time: a crash repeats what is unsettled and
    little else.
    """


Cadence: TypeAlias = Riding | Every | Prompt


class Pending(NamedTuple):
    """A prepared checkpoint."""

    checkpoint: Checkpoint
    state: bytes | None
    """The application's own bytes, which the next owner is given."""


class Phase(Enum):
    """Where a two-phase checkpoint is."""

    NONE = "none"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"


class Checkpoints:
    """What of one tenure's progress is stored, and what is to be stored next. At most one write is on its way.

    No write is known to have failed: the lease's machine repeats it until it is stored, or the tenure is over.
    """

    __slots__ = (
        "_cadence", "_clear", "_records", "_writing", "pending", "phase", "writes_alone", "written", "written_at_s",
    )  # fmt: skip

    def __init__(self, cadence: Cadence, written: Checkpoint, now_s: float) -> None:
        """``written``: what the lease holds when the tenure begins, at ``now_s``."""
        self._cadence = cadence
        self.writes_alone = not isinstance(cadence, Riding)
        """False: only renewals carry checkpoints, and none is ever `due`."""
        self.written = written
        """Confirmed."""
        self.written_at_s = now_s
        self.pending: Pending | None = None
        self.phase = Phase.NONE
        self._records = 0
        self._writing: tuple[Checkpoint, int] | None = None
        self._clear = False

    # --- what the former owner left ---

    def found(self, pending: Pending) -> None:
        """The lease has a pending checkpoint, which is to be kept until it is committed or abandoned."""
        self.pending, self.phase = pending, Phase.PREPARED

    def clear_next(self) -> None:
        """It has one that the next ordinary write clears."""
        self._clear = True

    # --- ordinary ones ---

    @property
    def timed(self) -> bool:
        """True when a write may become due by time alone."""
        return isinstance(self._cadence, Every) and self._cadence.seconds is not None

    @property
    def clears(self) -> bool:
        """True when the next ordinary write is to clear the columns of a pending one."""
        return self._clear

    def riding(self, safe: Checkpoint) -> Checkpoint | None:
        """What a renewal, or the last write of a tenure, carries; None: nothing."""
        if self.phase is not Phase.NONE:
            return None
        if safe > self.written:
            return safe
        return self.written if self._clear else None

    def due(self, safe: Checkpoint, settled_records: int, now_s: float) -> bool:
        """True when a write of its own is wanted now. ``settled_records``: of the tenure, up to ``safe``."""
        if self._writing is not None or self.riding(safe) is None:
            return False
        match self._cadence:
            case Prompt():
                return True
            case Every(records=records, seconds=seconds):
                if records is not None and settled_records - self._records >= records:
                    return True
                return seconds is not None and now_s >= self.written_at_s + seconds
        return False

    def next_at_s(self, safe: Checkpoint) -> float:
        """When `due` may say True though nothing else happens; infinity if never."""
        if self._writing is not None or self.riding(safe) is None:
            return math.inf
        match self._cadence:
            case Prompt():
                return -math.inf
            case Every(seconds=float() | int() as seconds):
                return self.written_at_s + seconds
        return math.inf

    def writing(self, checkpoint: Checkpoint, settled_records: int) -> None:
        """A write of this checkpoint is sent, alone or with a renewal."""
        self._writing = (checkpoint, settled_records)

    def wrote(self, now_s: float) -> None:
        """It is known to be stored."""
        if self._writing is not None:
            self.written, self._records = max(self.written, self._writing[0]), self._writing[1]
            self.written_at_s, self._writing, self._clear = now_s, None, False

    def carried(self, checkpoint: Checkpoint, now_s: float) -> None:
        """A renewal, which was due anyway, has taken this one along."""
        if checkpoint > self.written or self._clear:
            self.written, self.written_at_s = max(self.written, checkpoint), now_s
            self._clear = False

    # --- two-phase ones ---

    def prepare(self, checkpoint: Checkpoint, state: bytes | None, *, came_to: Checkpoint) -> Pending:
        """What to store as pending. From here on no other checkpoint is written, until it is committed or abandoned.

        A second one takes the place of the first. Raises CheckpointError for one that lies before what is stored, or
        behind the last record that came (``came_to``), and while another is on its way.
        """
        if self.phase in (Phase.PREPARING, Phase.COMMITTING):
            raise CheckpointError(
                f"another prepared checkpoint is on its way ({self.phase.value}): wait for its answer"
            )
        stored = self.written if self._writing is None else max(self.written, self._writing[0])
        if checkpoint < stored:
            raise CheckpointError(f"a checkpoint at {_shown(checkpoint)} would go back: {_shown(stored)} is stored")
        if checkpoint > came_to:
            raise CheckpointError(
                f"a checkpoint at {_shown(checkpoint)} lies behind the last record, {_shown(came_to)}"
            )
        self.pending = Pending(checkpoint, state)
        self.phase = Phase.PREPARING
        return self.pending

    def prepared(self) -> None:
        """The pending checkpoint is known to be stored."""
        if self.phase is Phase.PREPARING:
            self.phase = Phase.PREPARED

    def commit(self, safe: Checkpoint) -> Checkpoint:
        """What to write now, as an ordinary checkpoint. Raises CheckpointError when nothing is prepared, or when
        records before it are not settled.
        """
        if self.pending is None or self.phase is not Phase.PREPARED:
            raise CheckpointError(f"there is no prepared checkpoint to commit ({self.phase.value}): prepare one first")
        checkpoint = self.pending.checkpoint
        if checkpoint > safe:
            raise CheckpointError(
                f"records up to {_shown(checkpoint)} were prepared, but only those up to {_shown(safe)} are settled: "
                "settle the others, then commit"
            )
        self.phase = Phase.COMMITTING
        return checkpoint

    def committed(self, now_s: float) -> None:
        """The commit is known to be stored."""
        if self.phase is Phase.COMMITTING and self.pending is not None:
            self.written, self.written_at_s = max(self.written, self.pending.checkpoint), now_s
            self.pending, self.phase, self._clear = None, Phase.NONE, False

    def abandon(self) -> None:
        """Let the pending checkpoint go. The next ordinary write clears its columns, so there is one."""
        if self.phase is Phase.PREPARED:
            self.pending, self.phase, self._clear = None, Phase.NONE, True


def _shown(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.text}/{checkpoint.sub_sequence_number}" if checkpoint.is_position else checkpoint.text
