"""How far a shard is done: a position, or one of the KCL's four words.

The order and the texts are the KCL's (``ExtendedSequenceNumber``): AT_TIMESTAMP < TRIM_HORIZON < LATEST < any
position < SHARD_END.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.model import Position

_WORDS = ("AT_TIMESTAMP", "TRIM_HORIZON", "LATEST")
_SHARD_END = "SHARD_END"
_POSITION_RANK = len(_WORDS)
_END_RANK = _POSITION_RANK + 1
_NONE = Position(0, 0)


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """What is stored of a lease's progress. Checkpoints compare; of a lease they never go back.

    A position means: up to and with this user record everything is settled. The words say where reading begins
    (the time of AT_TIMESTAMP is not stored: it is the application's setting), or that the shard is done.
    """

    rank: int
    position: Position = _NONE
    """(0, 0) for the words."""
    digits: int = field(default=0, compare=False)
    """As many digits a sequence number was written with: emulators pad with zeros, and look them up as text."""

    AT_TIMESTAMP: ClassVar[Checkpoint]
    TRIM_HORIZON: ClassVar[Checkpoint]
    LATEST: ClassVar[Checkpoint]
    SHARD_END: ClassVar[Checkpoint]

    @classmethod
    def at(cls, position: Position) -> Checkpoint:
        """Settled up to and with this position."""
        if position.sequence_number < 0 or position.sub_sequence_number < 0:
            raise ValueError("a position is not negative")
        return cls(_POSITION_RANK, position)

    @classmethod
    def parse(cls, text: str, sub_sequence_number: int = 0) -> Checkpoint:
        """From a lease's two attributes. Raises ValueError for what is neither a word nor a number."""
        if text in _WORDS:
            return cls(_WORDS.index(text))
        if text == _SHARD_END:
            return cls(_END_RANK)
        if not (text.isascii() and text.isdigit()) or sub_sequence_number < 0:
            raise ValueError("a checkpoint is a word of the KCL or a decimal sequence number")
        return cls(_POSITION_RANK, Position(int(text), sub_sequence_number), len(text))

    @property
    def is_position(self) -> bool:
        """True when it names a user record; False for the words."""
        return self.rank == _POSITION_RANK

    @property
    def is_end(self) -> bool:
        """True when the shard is done."""
        return self.rank == _END_RANK

    @property
    def text(self) -> str:
        """As the attribute ``checkpoint`` holds it."""
        if self.rank == _POSITION_RANK:
            return str(self.position.sequence_number).zfill(self.digits)
        return _SHARD_END if self.rank == _END_RANK else _WORDS[self.rank]

    @property
    def sub_sequence_number(self) -> int:
        """As the attribute ``checkpointSubSequenceNumber`` holds it: 0 for the words."""
        return self.position.sub_sequence_number


Checkpoint.AT_TIMESTAMP = Checkpoint(0)
Checkpoint.TRIM_HORIZON = Checkpoint(1)
Checkpoint.LATEST = Checkpoint(2)
Checkpoint.SHARD_END = Checkpoint(_END_RANK)
