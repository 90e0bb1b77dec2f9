"""The transactions of programs that put out the output of records, and prepare a checkpoint for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.testing.sim.history.journal import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shardway.model import Position
    from shardway.testing.sim.history.journal import Journal
    from shardway.testing.sim.history.shard_story import ShardStory


class Transactions:
    """Keeps which transactions are done and which are given up, and what each put out."""

    def __init__(self, journal: Journal, shards: Mapping[str, ShardStory]) -> None:
        self._journal = journal
        self._shards = shards
        self._put_out: set[tuple[str, Position]] = set()
        self._is_done: dict[str, bool] = {}

    def put_out(self, who: str, shard_id: str, token: int, name: str, positions: list[Position]) -> bool:
        """Note a transaction with the outputs of records, under a name. Return False where it was given up before."""
        self._journal.note("put out", who, shard_id, name, positions[0], len(positions))
        if self._is_done.setdefault(name, True) is False:
            return False
        is_asked_for = self._shards[shard_id].stint(token).seeks > 0
        for position in positions:
            if (shard_id, position) in self._put_out and not is_asked_for:
                self._journal.fault("put out twice", f"{who}: {shown(position)} of {shard_id}, in two transactions")
            self._put_out.add((shard_id, position))
        self._shards[shard_id].settle(positions)
        return True

    def is_put_out(self, shard_id: str, name: str, position: Position | None) -> bool:
        """Return whether a transaction was done that the former owner prepared; if not, it is given up."""
        done = self._is_done.setdefault(name, False)
        self._journal.note("found prepared", shard_id, name, done)
        if done:
            self._shards[shard_id].resumed = position
        return done

    def want_again(self, shard_id: str, positions: Iterable[Position]) -> None:
        """Note that a seek asks for positions again: they may be put out a second time."""
        self._put_out.difference_update((shard_id, one) for one in positions)
