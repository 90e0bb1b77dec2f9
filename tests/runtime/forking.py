"""A program that forks with a producer, and one that ends without closing it: ``python forking.py WHAT ENDPOINT``."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, Any

from shardway import ConnectionOptions, Producer, SyncProducer
from shardway.aws.options import Credentials
from shardway.errors import ShardwayError
from shardway.model import OutRecord

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = OutRecord(b"data", "key")


def wire() -> ConnectionOptions:
    return ConnectionOptions(endpoint_url=sys.argv[2], region="us-east-1", credentials=Credentials("local", "local"))


def tell(name: str, call: Callable[[], Any]) -> None:
    try:
        call()
        told = "returned"
    except ShardwayError as error:
        told = f"{type(error).__name__} {error}"
    print(f"{name}: {told}", flush=True)


def fork() -> None:
    producer = SyncProducer[OutRecord]("orders", connection=wire())
    producer.put(RECORD)
    handle = producer.put_nowait(RECORD)
    unused = Producer[OutRecord]("orders", connection=wire())
    if child := os.fork():
        os.waitpid(child, 0)
        handle.result()
        producer.close()
        print("parent: closed", flush=True)
        return
    tell("put_nowait", lambda: producer.put_nowait(RECORD))
    tell("put", lambda: producer.put(RECORD))
    tell("put_many", lambda: producer.put_many([RECORD]))
    tell("result", lambda: handle.done() or handle.result())
    tell("flush", producer.flush)
    tell("metrics", producer.metrics)
    tell("close", producer.close)

    async def use() -> None:
        async with unused:
            await unused.put(RECORD)

    tell("not used before", lambda: asyncio.run(use()))
    sys.exit()


def end() -> None:
    producer = SyncProducer[OutRecord]("orders", connection=wire())
    for _ in range(17):
        producer.put_nowait(RECORD)


def end_loop() -> None:
    async def use() -> None:
        producer = Producer[OutRecord]("orders", connection=wire())
        for _ in range(17):
            producer.put_nowait(RECORD)

    asyncio.run(use())


PRELOADED = SyncProducer[OutRecord]("orders", connection=wire())
"""A producer at the top of a module, as programs have it that a server loads before it forks."""


def use_preloaded(name: str) -> None:
    with PRELOADED:
        PRELOADED.put(OutRecord(name.encode(), "key"))
    print(name, flush=True)


def unused(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    children = [context.Process(target=use_preloaded, args=("child",)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    use_preloaded("parent")


def unused_bare() -> None:
    PRELOADED.metrics()
    PRELOADED.oldest_pending_s()
    uses: dict[str, Callable[[], Any]] = {
        "put": lambda: PRELOADED.put(RECORD),
        "put_nowait": lambda: PRELOADED.put_nowait(RECORD).result(),
        "put_many": lambda: PRELOADED.put_many([RECORD]).wait(),
        "flush": PRELOADED.flush,
        "start": PRELOADED.start,
    }
    for name, use in uses.items():
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        use()
        PRELOADED.close()
        print(name, flush=True)
        os._exit(0)
    PRELOADED.close()
    print("closed", flush=True)


PROGRAMS: dict[str, Callable[[], None]] = {
    "fork": fork,
    "end": end,
    "end_loop": end_loop,
    "unused-fork": lambda: unused("fork"),
    "unused-spawn": lambda: unused("spawn"),
    "unused-forkserver": lambda: unused("forkserver"),
    "unused-bare": unused_bare,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
