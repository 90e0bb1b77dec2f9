"""Stands for an installed amazon_kclpy: it speaks the same messages, for processors of the first shape alone."""

import json
import sys

from amazon_kclpy.checkpoint_error import CheckpointError
from amazon_kclpy.messages import Record

__all__ = ["CheckpointError", "Checkpointer", "KCLProcess", "RecordProcessorBase"]


class RecordProcessorBase:
    version = "theirs"


class Checkpointer:
    def __init__(self, process):
        self.process = process

    def checkpoint(self, sequence_number=None, sub_sequence_number=None):
        self.process.say("checkpoint", sequenceNumber=sequence_number, subSequenceNumber=sub_sequence_number)
        assert json.loads(self.process.input_file.readline())["error"] is None


class KCLProcess:
    def __init__(self, record_processor, input_file=sys.stdin, output_file=sys.stdout, error_file=sys.stderr):
        self.processor = record_processor
        self.input_file = input_file
        self.output_file = output_file

    def say(self, action, **fields):
        self.output_file.write(json.dumps({"action": action, **fields}) + "\n")
        self.output_file.flush()

    def run(self):
        for line in iter(self.input_file.readline, ""):
            message = json.loads(line)
            if message["action"] == "initialize":
                self.processor.initialize(message["shardId"])
            elif message["action"] == "processRecords":
                self.processor.process_records([Record(one) for one in message["records"]], Checkpointer(self))
            self.say("status", responseFor=message["action"])
