"""A processor that uses what is installed, whatever that is."""

from __future__ import annotations

import json
import os

from amazon_kclpy import kcl


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        self.shard_id = shard_id

    def process_records(self, records, checkpointer):
        with open(os.environ["KCLPY_JOURNAL"], "a", encoding="utf-8") as journal:
            for record in records:
                note = {"what": "record", "data": record.binary_data.decode(), "base": self.version}
                journal.write(json.dumps(note) + "\n")
        checkpointer.checkpoint(records[-1].sequence_number)
