"""What a signed call repeats, when, and what it mends by itself."""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.calls.retry import NEVER, ONCE, RetryPolicy
from shardway.aws.credentials import WAIT_INTERVAL_S
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.wire import Wire
from shardway.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ServiceError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from tests.aws.aws_servers import Received, Reply, ScriptedServer, fault, ok

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

USED = Credentials("AKID", "secret")
NOW_S = 1_800_000_000.0
RESET = Reply(raw=b"", then="reset")
CUT = Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", then="close")


class Clock:
    """A clock that moves only while a call sleeps."""

    def __init__(self) -> None:
        self.now_s = NOW_S
        self.waits: list[float] = []

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def wire(server: ScriptedServer, clock: Clock) -> AsyncIterator[Wire]:
    settings = ConnectionOptions(region="us-east-1", endpoint_url=server.url, credentials=USED)
    async with Wire(settings, rng=random.Random(1), now=clock.now, sleep=clock.sleep) as opened:
        yield opened


def call(wire: Wire, retry: RetryPolicy | None = None) -> Any:
    return wire.call("kinesis", "GetRecords", b"{}", retry=retry)


@pytest.mark.parametrize(
    "failure",
    [
        fault("ProvisionedThroughputExceededException"),
        fault("LimitExceededException"),
        fault("ThrottlingException"),
        fault("InternalFailureException", status=500),
        Reply(b"<html>", 503),
        Reply(b"", 429),
        RESET,
        CUT,
    ],
    ids=lambda reply: f"{reply.status}-{reply.then}",
)
async def test_what_is_repeated(server: ScriptedServer, wire: Wire, clock: Clock, failure: Reply) -> None:
    server.replies += [failure, failure, ok({"done": 1})]
    assert await call(wire) == b'{"done": 1}'
    assert len(server.requests) == 3
    assert len(clock.waits) == 2


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (fault("ResourceNotFoundException"), NotFoundError),
        (fault("InvalidArgumentException"), InvalidArgumentError),
        (fault("ExpiredIteratorException"), ExpiredIteratorError),
        (fault("AccessDeniedException"), AccessDeniedError),
        (fault("ResourceInUseException"), ServiceError),
    ],
)
async def test_what_is_not_repeated(
    server: ScriptedServer, wire: Wire, clock: Clock, failure: Reply, kind: type[ServiceError]
) -> None:
    server.replies.append(failure)
    with pytest.raises(kind) as caught:
        await call(wire)
    assert (caught.value.operation, caught.value.request_id) == ("GetRecords", "request-1")
    assert len(server.requests) == 1
    assert clock.waits == []


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (fault("ProvisionedThroughputExceededException"), ThrottledError),
        (Reply(b"", 500), UnavailableError),
        (CUT, TransportError),
    ],
)
@pytest.mark.parametrize("attempts_max", [1, 2, 4])
async def test_repeating_ends(
    server: ScriptedServer, wire: Wire, failure: Reply, kind: type[Exception], attempts_max: int
) -> None:
    server.otherwise = lambda received: failure
    with pytest.raises(kind):
        await call(wire, RetryPolicy(attempts_max=attempts_max))
    assert len(server.requests) == attempts_max


async def test_no_attempt_begins_after_the_deadline(server: ScriptedServer, wire: Wire, clock: Clock) -> None:
    server.otherwise = lambda received: fault("ThrottlingException")
    with pytest.raises(ThrottledError):
        await call(wire, RetryPolicy(attempts_max=1000, base_s=1.0, cap_s=1.0, deadline_s=10.0))
    assert 10 < len(server.requests) < 60
    assert clock.now_s < NOW_S + 10


@given(
    attempt=st.integers(1, 10_000),
    base_s=st.floats(0, 10),
    cap_s=st.floats(10, 60),
    seed=st.integers(0, 100),
)
def test_waits_are_full_jitter(attempt: int, base_s: float, cap_s: float, seed: int) -> None:
    policy = RetryPolicy(base_s=base_s, cap_s=cap_s)
    wait_s = policy.wait_s(attempt, random.Random(seed))
    assert 0 <= wait_s <= min(cap_s, base_s * 2 ** min(attempt - 1, 40))


def test_waits_reach_their_bounds() -> None:
    policy, rng = RetryPolicy(base_s=0.1, cap_s=5.0), random.Random(7)
    waits = [policy.wait_s(30, rng) for _ in range(2_000)]
    assert min(waits) < 0.05
    assert max(waits) > 4.95


@pytest.mark.parametrize(
    "wrong",
    [{"attempts_max": 0}, {"base_s": -1.0}, {"base_s": 9.0, "cap_s": 1.0}, {"deadline_s": 0.0}],
)
def test_a_policy_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        RetryPolicy(**wrong)


# --- connections ---


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_stale_connection_costs_no_attempt(server: ScriptedServer, wire: Wire, clock: Clock, then: str) -> None:
    server.replies += [ok(), Reply(raw=b"", then=then), ok({"done": 1})]
    await call(wire)
    assert await call(wire, NEVER) == b'{"done": 1}'
    assert server.connections == 2
    assert clock.waits == []


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_write_that_must_know_is_not_sent_again_on_a_stale_connection(
    server: ScriptedServer, wire: Wire, clock: Clock, then: str
) -> None:
    """The service may have done the first one: the caller is told, and decides."""
    server.replies += [ok(), Reply(raw=b"", then=then), ok({"done": 1})]
    await call(wire)
    with pytest.raises(TransportError):
        await call(wire, ONCE)
    assert len(server.requests) == 2
    assert clock.waits == []
    assert await call(wire, ONCE) == b'{"done": 1}', "the next write has a new connection"


async def test_stale_connections_are_not_tried_forever(server: ScriptedServer, wire: Wire) -> None:
    await asyncio.gather(*[call(wire) for _ in range(20)])
    server.otherwise = lambda received: RESET
    before = len(server.requests)
    with pytest.raises(TransportError):
        await call(wire, NEVER)
    assert len(server.requests) - before <= 4


async def test_an_error_names_operation_and_endpoint(wire: Wire, server: ScriptedServer) -> None:
    server.replies.append(CUT)
    with pytest.raises(TransportError, match=rf"^GetRecords at {server.url}/: .* before the answer's end$"):
        await call(wire, NEVER)


async def test_a_wire_belongs_to_one_loop(wire: Wire, server: ScriptedServer) -> None:
    await call(wire)

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="make one for each loop"):
            asyncio.run(call(wire))

    await asyncio.to_thread(elsewhere)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_process_makes_its_own(server: ScriptedServer, wire: Wire) -> None:
    """As Spark's workers do. The parent's connection goes on."""
    await call(wire)
    child = os.fork()
    if child == 0:  # nothing here may reach pytest
        status = 1
        try:

            async def in_child() -> None:
                async with Wire(wire.options) as own:
                    await call(own)

            asyncio.run(in_child())
            status = 0
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    await call(wire)
    assert [received.connection for received in server.requests] == [0, 1, 0]


async def test_a_closed_wire_says_so(wire: Wire) -> None:
    await call(wire)
    await wire.close()
    with pytest.raises(RuntimeError, match="closed"):
        await call(wire)


async def test_an_unknown_service(wire: Wire) -> None:
    with pytest.raises(OptionError, match="'s3' is not one of the JSON services: kinesis"):
        await wire.call("s3", "ListBuckets", b"")


async def test_the_user_agent_names_version_and_tag(server: ScriptedServer) -> None:
    settings = ConnectionOptions(region="us-east-1", endpoint_url=server.url, credentials=USED, user_agent_tag="driver")
    async with Wire(settings) as tagged:
        await call(tagged)
    agent = server.requests[0].headers["user-agent"]
    assert agent.startswith("shardway/0.")
    assert agent.endswith(" tag/driver")


# --- the service's clock ---


def date(epoch_s: float) -> str:
    return email.utils.formatdate(epoch_s, usegmt=True)


def checks_time(service_now: Callable[[], float]) -> Callable[[Received], Reply]:
    """A service that refuses signatures more than 5 minutes off."""

    def answer(received: Received) -> Reply:
        written = dt.datetime.strptime(received.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        signed = written.replace(tzinfo=dt.UTC).timestamp()
        now_s = service_now()
        if abs(signed - now_s) > 300:
            return fault("InvalidSignatureException", "Signature expired", 400, Date=date(now_s))
        return ok({}, Date=date(now_s))

    return answer


@pytest.mark.parametrize("off_s", [-86_400.0, -3_600.0, -400.0, 400.0, 7_200.0])
async def test_a_wrong_clock_is_corrected(server: ScriptedServer, wire: Wire, clock: Clock, off_s: float) -> None:
    server.otherwise = checks_time(lambda: clock.now_s + off_s)
    await call(wire, NEVER)
    assert len(server.requests) == 2
    assert wire.clock.offset_s == pytest.approx(off_s, abs=1.0)
    await call(wire, NEVER)
    assert len(server.requests) == 3


async def test_a_clock_that_jumps_is_corrected_again(server: ScriptedServer, wire: Wire, clock: Clock) -> None:
    off_s = 1_000.0
    server.otherwise = checks_time(lambda: clock.now_s + off_s)
    await call(wire, NEVER)
    off_s = 0.0
    await call(wire, NEVER)
    assert wire.clock.offset_s == pytest.approx(0.0, abs=1.0)
    assert len(server.requests) == 4


async def test_a_wrong_secret_is_not_blamed_on_the_clock(server: ScriptedServer, wire: Wire, clock: Clock) -> None:
    server.otherwise = lambda received: fault("InvalidSignatureException", Date=date(clock.now_s))
    with pytest.raises(AccessDeniedError):
        await call(wire)
    assert len(server.requests) == 1


async def test_a_clock_that_cannot_be_corrected(server: ScriptedServer, wire: Wire, clock: Clock) -> None:
    """A Date that is of no help: one repeat, then the error."""
    server.otherwise = lambda received: fault(
        "RequestTimeTooSkewed", Date=date(clock.now_s + 1e6 * len(server.requests))
    )
    with pytest.raises(AccessDeniedError):
        await call(wire)
    assert len(server.requests) == 2


@pytest.mark.parametrize("written", ["", "yesterday", "Sat, 99 Nov 2026 11:20:50 GMT"])
async def test_a_date_that_is_none(server: ScriptedServer, wire: Wire, written: str) -> None:
    server.otherwise = lambda received: ok({}, Date=written)
    await call(wire)
    assert wire.clock.observations == 0


# --- credentials that a service refuses ---


async def test_expired_credentials_are_loaded_again_once(
    server: ScriptedServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment (or the files) got new ones meanwhile."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    def answer(received: Received) -> Reply:
        if "Credential=OLD/" in received.headers["authorization"]:
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
            return fault("ExpiredTokenException")
        return ok({"done": 1})

    server.otherwise = answer
    async with Wire(
        ConnectionOptions(region="us-east-1", endpoint_url=server.url), now=clock.now, sleep=clock.sleep
    ) as wire:
        assert await call(wire, NEVER) == b'{"done": 1}'
        await call(wire, NEVER)
    assert len(server.requests) == 3
    assert clock.waits == []


def _write_profile(path: Path, key_id: str) -> None:
    path.write_text(f"[shop]\naws_access_key_id = {key_id}\naws_secret_access_key = secret\n", encoding="utf-8")


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
async def test_credentials_that_have_worked_and_end_may_be_renewed_where_they_come_from(
    server: ScriptedServer, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str
) -> None:
    file, good = tmp_path / "credentials", {"OLD"}
    _write_profile(file, "OLD")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def answer(received: Received) -> Reply:
        key_id = received.headers["authorization"].partition("Credential=")[2].partition("/")[0]
        return ok({"done": 1}) if key_id in good else fault(code)

    server.otherwise = answer
    options = ConnectionOptions(region="us-east-1", endpoint_url=server.url, profile="shop")
    async with Wire(options, now=clock.now, sleep=clock.sleep) as wire:
        await call(wire, NEVER)
        good.clear()
        for _ in range(2):
            with pytest.raises(AccessDeniedError, match=code) as refused:
                await call(wire, NEVER)
            assert refused.value.retryable
        good.add("NEW")
        _write_profile(file, "NEW")
        with pytest.raises(AccessDeniedError):  # the file is read again, but not for each call of a thousand shards
            await call(wire, NEVER)
        clock.now_s += WAIT_INTERVAL_S
        await call(wire, NEVER)


async def test_credentials_that_the_program_gave_and_that_end_are_final(server: ScriptedServer, wire: Wire) -> None:
    server.replies.append(ok({}))
    await call(wire, NEVER)
    server.otherwise = lambda received: fault("ExpiredTokenException")
    with pytest.raises(AccessDeniedError) as refused:
        await call(wire)
    assert not refused.value.retryable


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
async def test_credentials_that_stay_the_same_are_not_tried_again(
    server: ScriptedServer, wire: Wire, code: str
) -> None:
    server.otherwise = lambda received: fault(code, "The security token included in the request is invalid")
    with pytest.raises(AccessDeniedError, match=code):
        await call(wire)
    assert len(server.requests) == 1


async def test_a_stream_is_signed_and_its_error_is_raised(server: ScriptedServer, wire: Wire, clock: Clock) -> None:
    server.replies += [
        Reply(b"frames", headers={"Date": date(clock.now_s - 5_000)}),
        fault("ResourceInUseException", "wait 5 s"),
    ]
    got = [part async for part in wire.stream("kinesis", "SubscribeToShard", b"{}")]
    assert b"".join(got) == b"frames"
    assert wire.clock.offset_s == pytest.approx(-5_000, abs=1.0)
    with pytest.raises(ServiceError, match="ResourceInUseException: wait 5 s"):
        async for _ in wire.stream("kinesis", "SubscribeToShard", b"{}"):
            pass
    assert len(server.requests) == 2
