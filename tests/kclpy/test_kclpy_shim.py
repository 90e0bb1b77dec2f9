"""The names that processors import: ours where amazon_kclpy is missing, its own where it is installed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.kclpy.shim import dispatch, kcl, messages, v2, v3
from shardway.stores.memory import MemoryLeaseTable
from tests.kclpy.kclpy_kit import SHARD_ID, put, running

if TYPE_CHECKING:
    from shardway.local import LocalKinesis
    from tests.kclpy.kclpy_kit import Journal

IMPORTS = """
from shardway.kclpy import shim
done = shim.install(always={always})
import amazon_kclpy
import amazon_kclpy.kcl
from amazon_kclpy import checkpoint_error, dispatch, kcl, messages
from amazon_kclpy.checkpoint_error import CheckpointError
from amazon_kclpy.kcl import Checkpointer, KCLProcess, RecordProcessorBase
from amazon_kclpy.messages import Record
from amazon_kclpy.v2 import processor as second
from amazon_kclpy.v3.processor import RecordProcessorBase as Third
assert kcl.CheckpointError is CheckpointError
print(done, RecordProcessorBase.version, second.RecordProcessorBase.version, Third.version)
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": "", **os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


INSTALLED = Path(__file__).parent / "installed"
"""Has something that is found as amazon_kclpy."""


def test_all_names_are_there_without_the_package() -> None:
    assert python(IMPORTS.format(always=False)) == "True 1 2 3"


def test_an_installed_package_is_used_unless_it_is_not_wanted() -> None:
    path = str(INSTALLED)
    assert python(IMPORTS.format(always=False), PYTHONPATH=path) == "False theirs theirs theirs"
    assert python(IMPORTS.format(always=True), PYTHONPATH=path) == "True 1 2 3"
    late = "import amazon_kclpy.kcl\n" + IMPORTS.format(always=True)
    assert python(late, PYTHONPATH=path) == "True 1 2 3"


def test_the_process_of_a_processor_imports_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from shardway.kclpy import child, shim; shim.install()\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(tops - set(sys.stdlib_module_names)))\n"
        "print([name for name in sys.modules if name.startswith('shardway.') and 'kclpy' not in name])"
    )
    assert python(code) == "['amazon_kclpy', 'shardway']\n['shardway.extras', 'shardway.public']"


def record(**fields: Any) -> dict[str, Any]:
    return {
        "action": "record",
        "data": "aGVsbG8=",
        "partitionKey": "k",
        "sequenceNumber": "7",
        "subSequenceNumber": 2,
        "approximateArrivalTimestamp": 1700000000123,
        **fields,
    }


def test_a_record_shows_its_fields_as_amazon_kclpy_does() -> None:
    found = messages.Record(record())
    assert (found.binary_data, found.data, found.partition_key) == (b"hello", "aGVsbG8=", "k")
    assert (found.sequence_number, found.sub_sequence_number, found.timestamp_millis) == ("7", 2, 1700000000123)
    assert found.approximate_arrival_timestamp.timestamp() == 1700000000.123
    assert found.approximate_arrival_timestamp.tzinfo is None
    assert found["sequenceNumber"] == found.get("sequenceNumber") == "7"
    with pytest.raises(KeyError):
        found["nothing"]


def served(processor: Any, *lines: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """What a process writes for these lines, and what it shows."""
    out, shown = io.StringIO(), io.StringIO()
    kcl.KCLProcess(processor, io.StringIO("".join(json.dumps(line) + "\n" for line in lines)), out, shown).run()
    return [json.loads(line) for line in out.getvalue().split("\n") if line], shown.getvalue()


class Bare(v3.RecordProcessorBase):
    """It has nothing of its own but one method."""

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        assert process_records_input.checkpointer is not None
        process_records_input.checkpointer.checkpoint("7", 2)


def test_a_method_that_a_processor_lacks_is_shown_and_passed_over() -> None:
    said, shown = served(Bare(), {"action": "leaseLost"})
    assert said == [{"action": "status", "responseFor": "leaseLost"}]
    assert "TypeError: Bare has no method lease_lost" in shown


def test_checkpoints_go_between_a_call_and_its_status() -> None:
    call = {"action": "processRecords", "records": [record()], "millisBehindLatest": 0}
    answer = {"action": "checkpoint", "sequenceNumber": "7", "subSequenceNumber": 2, "error": None}
    said, shown = served(Bare(), call, answer)
    assert said == [
        {"action": "checkpoint", "sequenceNumber": "7", "subSequenceNumber": 2},
        {"action": "status", "responseFor": "processRecords"},
    ]
    assert shown == ""
    said, shown = served(Bare(), call, {**answer, "error": "ThrottlingException"})
    assert said[-1] == {"action": "status", "responseFor": "processRecords"}
    assert "CheckpointError: 'ThrottlingException'" in shown
    _, shown = served(Bare(), call, {"action": "leaseLost"})
    assert "CheckpointError: 'InvalidStateException'" in shown


def test_an_older_processor_cannot_checkpoint_once_its_lease_is_lost() -> None:
    class Old(v2.RecordProcessorBase):
        def shutdown(self, shutdown_input: messages.ShutdownInput) -> None:
            with pytest.raises(kcl.CheckpointError) as raised:
                shutdown_input.checkpointer.checkpoint()
            self.told = (shutdown_input.reason, raised.value.value)

    processor = Old()
    served(processor, {"action": "leaseLost"})
    assert processor.told == ("ZOMBIE", "ShutdownException")


@pytest.mark.parametrize("line", [{}, {"action": "dance"}, {"action": "initialize"}])
def test_a_line_that_is_no_message_ends_the_process(line: dict[str, Any]) -> None:
    with pytest.raises(dispatch.MalformedAction):
        served(Bare(), line)


@pytest.mark.parametrize(("shim", "base"), [(False, "theirs"), (True, 1)])
async def test_a_processor_on_an_installed_package_speaks_over_our_socket(
    local: LocalKinesis, kinesis: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch, shim: bool, base: object
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(INSTALLED), os.environ["PYTHONPATH"]]))
    table = MemoryLeaseTable()
    numbers = put(kinesis, "0", "1")
    async with running(local, table, "for_installed:Processor", shim=shim) as worker:
        await worker.until(lambda: len(journal.datas()) == 2)
    assert [(note["data"], note["base"]) for note in journal.lines()] == [("0", base), ("1", base)]
    row = await table.get(SHARD_ID)
    assert row is not None
    assert row.checkpoint.text == numbers[-1]
