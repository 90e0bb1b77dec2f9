"""One worker in a process of its own: ``python watched_worker.py APPLICATION STREAM HOW``.

HOW is ``settles`` or ``hangs``: a worker that hangs never returns from the handler of a shard's second record. It says
``ready`` on standard output once it has settled a record. What reads its environment reaches the local services.
"""

from __future__ import annotations

import asyncio
import sys

from shardway import BufferOptions, CheckpointOptions, Consumer
from shardway.checkpoints import Prompt
from shardway.model import StartingPosition


async def main(application: str, stream: str, how: str) -> None:
    """Read until the process is ended."""
    async with Consumer(
        stream,
        application=application,
        starting_position=StartingPosition.TRIM_HORIZON,
        buffer=BufferOptions(batch_records_max=1),
        checkpoints=CheckpointOptions(cadence=Prompt()),
    ) as consumer:
        settled = 0
        async for batch in consumer:
            with batch:
                if how == "hangs" and settled:
                    await asyncio.Event().wait()
                settled += 1
            print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
