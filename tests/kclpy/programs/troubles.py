"""Record processors that do what they should not."""

from __future__ import annotations

import os
import time

from amazon_kclpy import kcl
from shapes import V1, V3, note


def times(name):
    """How often this was asked, over all processes."""
    path = os.environ["KCLPY_JOURNAL"] + "." + name
    with open(path, "ab") as counted:
        counted.write(b"x")
    return os.path.getsize(path)


class EndsLate(V3):
    """It checkpoints at its shard's end only when it is asked for the third time."""

    def shard_ended(self, shard_ended_input):
        note("shard_ended", shard=self.shard_id)
        if times("ended") >= 3:
            shard_ended_input.checkpointer.checkpoint()


class Raises(V1):
    """It raises for one record, twice."""

    def process_records(self, records, checkpointer):
        if any(record.binary_data == b"bad" for record in records) and times("bad") <= 2:
            note("raises", data=[record.binary_data.decode() for record in records])
            raise ValueError("a bad record")
        super().process_records(records, checkpointer)


class Dies(V1):
    """It dies at the first sight of one record, after it has taken and checkpointed those before it."""

    def process_records(self, records, checkpointer):
        for record in records:
            if record.binary_data == b"deadly" and times("deadly") <= 1:
                os._exit(7)
            super().process_records([record], checkpointer)


class Blocks(V1):
    """It never comes back from its records."""

    def process_records(self, records, checkpointer):
        note("blocks", shard=self.shard_id)
        time.sleep(120)


class Slow(V1):
    """It holds its records until a file is there, and checkpoints only then."""

    def process_records(self, records, checkpointer):
        note("holds", shard=self.shard_id)
        end_s = time.monotonic() + 120
        while not os.path.exists(os.environ["KCLPY_JOURNAL"] + ".go") and time.monotonic() < end_s:
            time.sleep(0.01)
        try:
            checkpointer.checkpoint()
        except kcl.CheckpointError as error:
            note("refused", value=error.value, text=str(error))


class Asks(V1):
    """It asks for checkpoints where there can be none."""

    def process_records(self, records, checkpointer):
        first, last = int(records[0].sequence_number), int(records[-1].sequence_number)
        for name, number in (
            ("behind the last", str(last + 1)),
            ("no number", "seven"),
            ("the last", str(last)),
            ("before the stored one", str(first)),
            ("the last again", str(last)),
            ("the last as a number", last),
        ):
            try:
                checkpointer.checkpoint(number)
            except kcl.CheckpointError as error:
                note("asked", name=name, value=error.value)
            else:
                note("asked", name=name, value=None)


class Keeps(V3):
    """It does not checkpoint when it has to leave."""

    def shutdown_requested(self, shutdown_requested_input):
        note("shutdown_requested", shard=self.shard_id)


class RaisesAtFirst(V1):
    """It cannot begin at once."""

    def initialize(self, shard_id):
        if times("begun") <= 1:
            raise ConnectionError("the database is not there yet")
        super().initialize(shard_id)


class CannotBegin:
    """It cannot even be made."""

    def __init__(self):
        raise ImportError("no such thing")


class Counts(V1):
    """It counts what it is called with."""

    def process_records(self, records, checkpointer):
        note("called", records=len(records))
        checkpointer.checkpoint()
