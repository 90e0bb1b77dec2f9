"""Record processors as people write them for amazon_kclpy, one of each shape. Each notes what it is told."""

from __future__ import annotations

import json
import os
import sys

from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor as v2
from amazon_kclpy.v3 import processor as v3


def note(what, **fields):
    line = json.dumps({"what": what, "pid": os.getpid(), **fields}) + "\n"
    with open(os.environ["KCLPY_JOURNAL"], "a", encoding="utf-8") as journal:
        journal.write(line)


def note_records(shard_id, records):
    print("this is not a message", flush=True)
    sys.stdout.write('{"action": "status", "responseFor": "initialize"}\n')
    for record in records:
        note(
            "record",
            shard=shard_id,
            data=record.binary_data.decode(),
            sub=record.sub_sequence_number,
            number=record.sequence_number,
            key=record.partition_key,
            age_ms=record.approximate_arrival_timestamp.timestamp() * 1000 - record.timestamp_millis,
        )


class V1(kcl.RecordProcessorBase):
    """The first shape: arguments. It checkpoints each record by its sequence number alone."""

    def initialize(self, shard_id):
        self.shard_id = shard_id
        note("initialize", shard=shard_id)

    def process_records(self, records, checkpointer):
        note_records(self.shard_id, records)
        for record in records:
            checkpointer.checkpoint(record.sequence_number)

    def shutdown(self, checkpointer, reason):
        note("shutdown", shard=self.shard_id, reason=reason)
        if reason == "TERMINATE":
            checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer):
        note("shutdown_requested", shard=self.shard_id)
        checkpointer.checkpoint()


class V2(v2.RecordProcessorBase):
    """The second shape: inputs. It checkpoints the largest number that it has seen, when it has seen some."""

    def __init__(self):
        self.largest: tuple[int | None, int | None] = (None, None)

    def initialize(self, initialize_input):
        self.shard_id = initialize_input.shard_id
        start = f"{initialize_input.sequence_number}/{initialize_input.sub_sequence_number}"
        note("initialize", shard=self.shard_id, start=start)

    def process_records(self, process_records_input):
        note_records(self.shard_id, process_records_input.records)
        for record in process_records_input.records:
            self.largest = max(
                self.largest, (int(record.sequence_number), record.sub_sequence_number), key=lambda at: at[0] or -1
            )
        if self.largest[0] is not None:
            process_records_input.checkpointer.checkpoint(str(self.largest[0]), self.largest[1])

    def shutdown(self, shutdown_input):
        note("shutdown", shard=self.shard_id, reason=shutdown_input.reason)
        if shutdown_input.reason == "TERMINATE":
            shutdown_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input):
        note("shutdown_requested", shard=self.shard_id)
        shutdown_requested_input.checkpointer.checkpoint()


class V3(v3.RecordProcessorBase):
    """The third shape: a method for each end. It checkpoints only when it has to."""

    def initialize(self, initialize_input):
        self.shard_id = initialize_input.shard_id
        start = f"{initialize_input.sequence_number}/{initialize_input.sub_sequence_number}"
        note("initialize", shard=self.shard_id, start=start)

    def process_records(self, process_records_input):
        note_records(self.shard_id, process_records_input.records)

    def lease_lost(self, lease_lost_input):
        note("lease_lost", shard=self.shard_id)

    def shard_ended(self, shard_ended_input):
        note("shard_ended", shard=self.shard_id)
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input):
        note("shutdown_requested", shard=self.shard_id)
        shutdown_requested_input.checkpointer.checkpoint()
