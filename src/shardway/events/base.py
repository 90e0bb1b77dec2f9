"""The base of all facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shardway.core.signatures import SignedMeta


class Event(msgspec.Struct, frozen=True, metaclass=SignedMeta):
    """The base of all facts, for a function that is called with every one (``on_event``)."""

    if TYPE_CHECKING:

        @property
        def stream(self) -> str:
            """The stream's name or ARN, as it was given; the table or the application, where the fact is of no
            stream.
            """
