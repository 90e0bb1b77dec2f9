"""How far a shard is done: a position, or one of the KCL's four words.

The order and the texts are the KCL's (``ExtendedSequenceNumber``):
AT_TIMESTAMP < TRIM_HORIZON < LATEST < any position < SHARD_END.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from shardway.model import Position

_WORDS = ("AT_TIMESTAMP", "TRIM_HORIZON", "LATEST")
_SHARD_END = "SHARD_END"
_POSITION_RANK = len(_WORDS)
_END_RANK = _POSITION_RANK + 1
_NONE = Position(0, 0)


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """The progress of a lease, as it is stored. Checkpoints compare; those of a lease never go back.

    A position means: up to and with this user record everything is settled. The words say where reading begins (the
    times of LATEST and AT_TIMESTAMP stand beside them: `LeaseRow.read_until_ms`), or that the shard is done.
    """

    rank: int
    position: Position = _NONE
    """The position; (0, 0) for the words."""
    digits: int = field(default=0, compare=False)
    """The number of digits that a sequence number was written with: emulators pad with zeros, and look them up
    as text.
    """

    AT_TIMESTAMP: ClassVar[Checkpoint]
    TRIM_HORIZON: ClassVar[Checkpoint]
    LATEST: ClassVar[Checkpoint]
    SHARD_END: ClassVar[Checkpoint]

    @classmethod
    def at(cls, position: Position) -> Checkpoint:
        """Return the checkpoint that is settled up to and with this position."""
        if position.sequence_number < 0 or position.sub_sequence_number < 0:
            raise ValueError("a position is not negative")
        return cls(_POSITION_RANK, position)

    @classmethod
    def parse(cls, text: str, sub_sequence_number: int = 0) -> Checkpoint:
        """Make a checkpoint of a lease's two attributes. Raises ValueError for what is neither a word nor a number."""
        if text in _WORDS:
            return cls(_WORDS.index(text))
        if text == _SHARD_END:
            return cls(_END_RANK)
        if not (text.isascii() and text.isdigit()) or sub_sequence_number < 0:
            raise ValueError("a checkpoint is a word of the KCL or a decimal sequence number")
        return cls(_POSITION_RANK, Position(int(text), sub_sequence_number), len(text))

    @property
    def is_position(self) -> bool:
        """True when the checkpoint names a user record; False for the words."""
        return self.rank == _POSITION_RANK

    @property
    def is_timed(self) -> bool:
        """True for LATEST and AT_TIMESTAMP: reading begins at a time, which the word alone does not say."""
        return self in (Checkpoint.LATEST, Checkpoint.AT_TIMESTAMP)

    @property
    def is_end(self) -> bool:
        """True when the shard is done."""
        return self.rank == _END_RANK

    @property
    def text(self) -> str:
        """The text that the attribute ``checkpoint`` holds."""
        if self.rank == _POSITION_RANK:
            return str(self.position.sequence_number).zfill(self.digits)
        return _SHARD_END if self.rank == _END_RANK else _WORDS[self.rank]

    @property
    def sub_sequence_number(self) -> int:
        """The number that the attribute ``checkpointSubSequenceNumber`` holds: 0 for the words."""
        return self.position.sub_sequence_number


Checkpoint.AT_TIMESTAMP = Checkpoint(0)
Checkpoint.TRIM_HORIZON = Checkpoint(1)
Checkpoint.LATEST = Checkpoint(2)
Checkpoint.SHARD_END = Checkpoint(_END_RANK)
