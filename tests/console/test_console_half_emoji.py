"""Half of a surrogate pair in a handler's error goes its whole way: from the handler to the log, the letter, and every
tool that shows the letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway import SettlingOptions
from shardway.dead_letters import DeadLettersToFile
from shardway.pipeline.job.errors.exit_codes import ExitCode
from shardway.pipeline.job.run.output import RunOutput
from shardway.policies import Retry
from shardway.stores.memory import MemoryLeaseTable
from shardway.telemetry.log import log_events
from tests.console.asking import TOKEN, ask
from tests.runtime.consumer.face_kit import consumer_of

if TYPE_CHECKING:
    import io
    from pathlib import Path

    from shardway.local import LocalKinesis
    from tests.console.conftest import MakeGate

HALF = "cut emoji \ud83d"
WHOLE = "cut emoji \ufffd"
COMMAND = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())", "dead-letters"]


class OddError(Exception):
    """What the handler raises."""


async def give_up(service: LocalKinesis, stream: str, path: Path, log: io.TextIOBase, lines: Any) -> None:
    """Have a consumer's handler fail with such an error, until its letter is written and stored as settled."""
    logger = logging.Logger("half")
    logger.addHandler(logging.StreamHandler(log))
    consumer = consumer_of(
        service,
        MemoryLeaseTable(),
        stream=stream,
        dead_letters=DeadLettersToFile(path=path),
        retry=Retry(failures_max=1, base_s=0.01, cap_s=0.01),
        settling=SettlingOptions(log_errors="with_message"),
        on_event=log_events(logger, lines=lines),
    )
    handled = asyncio.Event()

    async def handle(batch: Any) -> None:
        try:
            raise OddError(HALF)
        finally:
            handled.set()

    async with asyncio.timeout(60.0), consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        while not await asyncio.to_thread(lambda: path.exists() and path.read_bytes()):
            await asyncio.sleep(0.01)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert handled.is_set()


@pytest.mark.parametrize("lines", ["json", "text"])
async def test_half_an_emoji_in_a_handlers_error_reaches_every_tool(
    service: LocalKinesis, make_gate: MakeGate, tmp_path: Path, lines: str
) -> None:
    client = boto3.client("kinesis", endpoint_url=service.endpoint_url, region_name=service.region)
    stream = f"halves-{lines}"
    client.create_stream(StreamName=stream, ShardCount=1)
    client.put_record(StreamName=stream, Data=b"x", PartitionKey="k")
    client.close()
    path, logged = tmp_path / "letters.jsonl", tmp_path / "log"
    with logged.open("w", encoding="utf-8", errors="strict") as log:
        await give_up(service, stream, path, log, lines)
    text = logged.read_text(encoding="utf-8")
    assert "cut emoji" in text
    if lines == "json":
        assert any(WHOLE in json.dumps(json.loads(line), ensure_ascii=False) for line in text.splitlines())
    (letter,) = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (letter["error_message"], letter["error_type"].endswith("OddError")) == (WHOLE, True)
    for output in (["-o", "jsonl"], []):
        listed = await asyncio.to_thread(
            subprocess.run, [*COMMAND, "list", str(path), "--messages", *output], capture_output=True, check=True
        )
        assert WHOLE in listed.stdout.decode("utf-8")
    gate = make_gate(letters=(str(path),))
    target = f"/letters?place={path}&error={letter['error_type']}&stream={stream}"
    answer = await ask(gate, "GET", target, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status == 200
    assert WHOLE in answer.text


def test_half_an_emoji_in_a_jobs_error_is_a_line_of_its_json_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8", errors="strict") as log:
        RunOutput(as_json=True, out=log, errors=log).wrong([HALF], ExitCode.FAILED)
    told, plain = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(told)["message"] == WHOLE
    assert "cut emoji" in plain
