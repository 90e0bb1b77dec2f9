"""Consumer, producer and client on uvloop: a loop that is not asyncio's, and lacks what only that has."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from shardway import Consumer, OutRecord, PollingOptions, Producer, StartingPosition
from shardway.aws.calls.retry import NEVER
from shardway.aws.http import dialing
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.wire import Wire
from shardway.checkpoints import Prompt
from shardway.errors import TransportError
from shardway.leases import MemoryLeaseTable
from shardway.local import LocalKinesis
from shardway.model import StreamName
from tests.options_kit import arguments_of
from tests.runtime.producing import quick, wire_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

DEADLINE_S = 60.0


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def in_time() -> Any:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        async with asyncio.timeout(DEADLINE_S):
            return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(in_time())


@pytest.fixture(scope="module")
def local() -> Any:
    with LocalKinesis(streams={"orders-0": 2, "orders-2": 2}) as running:
        yield running


def by_name(local: LocalKinesis) -> str:
    """The endpoint by a name, which has addresses to choose from; an address has none."""
    return local.endpoint_url.replace("127.0.0.1", "localhost")


HTTP2: dict[str, Any] = {"http2": "all", "http2_cleartext": True}


@pytest.mark.parametrize("more", [{}, HTTP2], ids=["1.1", "2"])
def test_producer_and_consumer(local: LocalKinesis, more: dict[str, Any]) -> None:
    """From end to end, also over a consumer that leaves and one that goes on."""
    stream = f"orders-{len(more)}"
    wire = wire_of(local, endpoint_url=by_name(local), **more)
    datas = {b"%d" % number for number in range(200)}

    async def produce() -> None:
        async with Producer(stream, connection=wire, options=quick(aggregation=True)) as producer:
            await asyncio.gather(*[producer.put(OutRecord(data, data.decode())) for data in datas])

    async def consume() -> list[bytes]:
        leases = MemoryLeaseTable()
        got: list[bytes] = []
        for enough in (50, len(datas)):
            settings = dict[str, Any](
                starting_position=StartingPosition.TRIM_HORIZON,
                cadence=Prompt(),
                polling=PollingOptions(interval_s=0.02, idle_interval_s=0.05),
            )
            consumer = Consumer(
                stream, application="billing", connection=wire, **arguments_of(leases=leases, **settings)
            )
            async with consumer:
                async for batch in consumer:
                    with batch:
                        got += [record.data for record in batch.records]
                    if len(got) >= enough:
                        break
        return got

    run(produce())
    assert sorted(run(consume())) == sorted(datas)


@pytest.mark.parametrize("more", [{}, {"http2": "all"}], ids=["1.1", "2"])
def test_the_client_over_tls(more: dict[str, Any]) -> None:
    with LocalKinesis(streams={"orders": 1}, tls=True) as local:

        async def call() -> int:
            settings = wire_of(local, endpoint_url=by_name(local), ca_bundle=local.ca_file, **more)
            async with Wire(settings) as wire:
                client = KinesisClient(wire)
                answer = await client.put_records(StreamName("orders"), [PutEntry(b"x" * 900_000, "k")] * 5)
                shards = await asyncio.gather(*[client.list_shards(StreamName("orders")) for _ in range(5)])
                return len(shards) - answer.failed_record_count

        assert run(call()) == 5


def test_an_address_that_swallows_packets_holds_up_no_other(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is tried as well, and the connection that loses the race is closed."""
    asked: list[Any] = []

    async def race() -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        forever = loop.create_future()
        port = int(local.endpoint_url.rpartition(":")[2])
        opened: list[socket.socket] = []

        class Loop:
            create_task = staticmethod(loop.create_task)

            async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
                silent, refused, good = ("silent", 1), ("127.0.0.1", 9), ("127.0.0.1", port)
                return [(socket.AF_INET, 1, 6, "", one) for one in (silent, refused, good)]

            async def sock_connect(self, one: socket.socket, address: Any) -> None:
                opened.append(one)
                asked.append(address[0])
                await (forever if address[0] == "silent" else loop.sock_connect(one, address))

        monkeypatch.setattr(dialing, "HAPPY_EYEBALLS_DELAY_S", 0.01)
        winner = await dialing._race(Loop(), "somewhere", port)  # type: ignore[arg-type]
        peer = winner.getpeername()[1] - port
        winner.close()
        while any(one.fileno() != -1 for one in opened):
            await asyncio.sleep(0)
        return "closed", peer

    assert run(race()) == ("closed", 0)
    assert asked == ["silent", "127.0.0.1", "127.0.0.1"]


class Known:
    """Knows the addresses of each name, two times the same: looking them up takes turns of which there is no number."""

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", port))] * 2


class KnownToUvloop(Known):
    """The same around uvloop's, which cannot be inherited from."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class KnownToAsyncio(Known, asyncio.SelectorEventLoop):  # type: ignore[misc]  # it takes fewer arguments
    pass


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("loops", [uvloop.new_event_loop, KnownToAsyncio], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_connection_that_is_given_up_at_any_moment_leaves_no_socket(
    loops: Callable[[], asyncio.AbstractEventLoop], tls: bool
) -> None:
    """A caller that is cancelled while its connection is opened, as a consumer that leaves does."""

    async def connect_and_cancel(local: LocalKinesis, turns: int) -> bool:
        port = int(local.endpoint_url.rpartition(":")[2])
        dialer = dialing.Dialer(
            connect_timeout_s=10.0, tls=lambda: ssl.create_default_context(cafile=local.ca_file or None)
        )
        if isinstance(dialer._loop, uvloop.Loop):
            dialer._loop = KnownToUvloop(dialer._loop)  # type: ignore[assignment]
        connecting = asyncio.create_task(dialer.connect(dialing.Origin("localhost", port, tls=tls)))
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        (ended,) = await asyncio.gather(connecting, return_exceptions=True)
        await dialer.close()
        return isinstance(ended, asyncio.CancelledError)

    with LocalKinesis(streams={"orders": 1}, tls=tls) as local, asyncio.Runner(loop_factory=loops) as runner:
        given_up: list[bool] = []
        turns = 0
        while given_up.count(False) < 5:  # later on the connection is there, and nothing is left to give up
            given_up.append(runner.run(connect_and_cancel(local, turns)))
            turns += 1
    gc.collect()
    assert True in given_up


def test_families_take_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found: list[Any] = [(six, "a"), (six, "b"), (six, "c"), (four, "d")]
    assert [name for _, name in dialing._by_turns(found)] == ["a", "d", "b", "c"]
    assert dialing._by_turns([]) == []


def test_no_address_left_is_an_error_of_the_call(local: LocalKinesis) -> None:
    async def call() -> None:
        async with Wire(wire_of(local, endpoint_url="http://localhost:9")) as wire:
            await KinesisClient(wire).list_shards(StreamName("orders"), retry=NEVER)

    with pytest.raises(TransportError, match="cannot connect"):
        run(call())
