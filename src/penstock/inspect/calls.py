"""The calls of the read model: counted, paced, and never a write.

Each shard gives 5 GetRecords calls and 2 MiB a second to all of its readers together. An inspector leaves most of that
to the programs whose streams it looks at.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.aws.calls import RetryPolicy, SignedCalls
from penstock.aws.sdk import environment_credentials
from penstock.aws.wire import Wire
from penstock.core.pacing import TokenBucket
from penstock.errors import CredentialsError, OptionError, ThrottledError
from penstock.inspect.moments import utc
from penstock.inspect.values import READ_BYTES_PER_S, READ_CALLS_PER_S, CredentialsView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from penstock.aws.calls import Request
    from penstock.aws.credentials import CredentialCache
    from penstock.aws.options import ConnectionOptions
    from penstock.aws.transport import Answer, HttpTransport

SHARE = 0.4
"""Of each limit. The other 60 % stay with the programs that read for their living."""

INSPECT_POLICY = "docs/iam/inspect.json"
"""The policy that allows all that an inspector calls, and nothing else."""
STATEMENTS: dict[str, str] = {
    "cloudwatch:GetMetricData": "ReadMetrics",
    "cloudwatch:ListMetrics": "ReadMetrics",
    "dynamodb:DescribeTable": "ReadTheTablesOfTheApplication",
    "dynamodb:ListTables": "ListStreamsAndTables",
    "dynamodb:Scan": "ReadTheTablesOfTheApplication",
    "kinesis:DescribeLimits": "ListStreamsAndTables",
    "kinesis:DescribeStreamSummary": "ReadTheStream",
    "kinesis:GetRecords": "ReadTheStream",
    "kinesis:GetShardIterator": "ReadTheStream",
    "kinesis:ListShards": "ReadTheStream",
    "kinesis:ListStreamConsumers": "ReadTheStream",
    "kinesis:ListStreams": "ListStreamsAndTables",
}
"""All that an inspector calls unasked, and the statement of its policy that allows it."""
ASKED_STATEMENTS: dict[str, str] = {
    "glue:GetSchemaVersion": "ReadSchemas",
    "kinesis:SubscribeToShard": "ReadByFanOut",
}
"""What it calls only where that is asked for: schemas, and records by a registered consumer."""
READS: frozenset[tuple[str, str]] = frozenset(
    (service, operation)
    for service, _, operation in (action.partition(":") for action in {**STATEMENTS, **ASKED_STATEMENTS})
)
"""What is not in here is refused before it is sent."""

ACCOUNT_CALLS_PER_S = {"DescribeLimits": 1, "DescribeStreamSummary": 20, "ListStreams": 5, "ListStreamConsumers": 5}
"""Limits that all programs of an account, or of a stream, share (Kinesis API reference)."""

PAGE_RECORDS_FIRST, PAGE_RECORDS_MAX = 2_000, 10_000
"""Of a shard's first GetRecords call, whose records are of an unknown size, and of any."""
PAGE_BYTES = READ_BYTES_PER_S / READ_CALLS_PER_S
"""A page is to have no more, if its records are as large as those of the page before. A call may return 10 MiB, but
then the shard refuses all of its readers for the next five seconds.
"""

RETRY = RetryPolicy(attempts_max=6, base_s=0.2, cap_s=3.0)


class PacedCalls(SignedCalls):
    """Calls whose attempts are counted one by one, and kept within the limits that an account's programs share."""

    def __init__(self, wire: ReadingWire, transport: HttpTransport, **clocks: Any) -> None:
        super().__init__(transport, wire.clock, **clocks)
        self._wire = wire
        self._account = {
            name: TokenBucket(
                records_per_s=rate * SHARE,
                records_burst=max(1.0, rate * SHARE),
                bytes_per_s=float("inf"),
                now_s=self._now(),
            )
            for name, rate in ACCOUNT_CALLS_PER_S.items()
        }

    async def _attempt(self, request: Request, credentials: CredentialCache, retry: RetryPolicy) -> Answer:
        if (bucket := self._account.get(request.operation)) is not None:
            while not bucket.take(self._now(), records=1):
                await self._sleep(bucket.wait_s(self._now(), records=1))
        self._wire.calls[request.operation] += 1
        try:
            return await super()._attempt(request, credentials, retry)
        except ThrottledError:
            self._wire.throttled += 1
            self._wire.refusals[request.operation] += 1
            raise


class ReadingWire(Wire):
    """A wire that counts each attempt, keeps within the account's limits, and refuses to write."""

    def __init__(
        self,
        options: ConnectionOptions | None = None,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(options, now=now, sleep=sleep, retry=RETRY)
        self.calls: Counter[str] = Counter()
        """Attempts by operation."""
        self.throttled = 0
        """Attempts that the service refused for their rate."""
        self.refusals: Counter[str] = Counter()
        """The same, by operation."""

    async def call(
        self,
        service: str,
        operation: str,
        body: bytes,
        *,
        retry: RetryPolicy | None = None,
        stream_arn: str | None = None,
        content_type: str | None = None,
    ) -> bytes:
        """See `Wire.call`. Raises ValueError for an operation that is not in `READS`."""
        _refuse_writes(service, operation)
        return await super().call(
            service, operation, body, retry=retry, stream_arn=stream_arn, content_type=content_type
        )

    async def stream(
        self, service: str, operation: str, body: bytes, *, stream_arn: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Wire.stream`. Raises ValueError for an operation that is not in `READS`."""
        _refuse_writes(service, operation)
        self.calls[operation] += 1
        async with contextlib.aclosing(super().stream(service, operation, body, stream_arn=stream_arn)) as parts:
            async for part in parts:
                yield part

    def _make_calls(self, transport: HttpTransport) -> SignedCalls:
        return PacedCalls(self, transport, rng=self._rng, now=self._now, sleep=self._sleep)

    async def credentials_view(self) -> CredentialsView | None:
        """How long the credentials are good; None: there are none."""
        options = self.options
        given = options.credentials or environment_credentials(options.profile)
        try:
            current = await self._opened().credentials.current()
        except CredentialsError:
            return None
        expires_at_s = current.expires_at_s
        return CredentialsView(
            temporary=current.session_token is not None,
            renewed=options.role_arn is not None or given is None,
            expires_at=None if expires_at_s is None else utc(expires_at_s),
        )


def _refuse_writes(service: str, operation: str) -> None:
    if (service, operation) not in READS:
        raise ValueError(f"{service}:{operation} is no call of the read model")


class ShardPaces:
    """How often each shard may be asked, and for how much. ``calls_per_s``: of the 5 that a shard allows."""

    def __init__(self, calls_per_s: float = READ_CALLS_PER_S * SHARE) -> None:
        if not 0 < calls_per_s <= READ_CALLS_PER_S:
            raise OptionError(
                f"--rate: a shard allows {READ_CALLS_PER_S} read calls a second; choose more than 0 of them"
            )
        self.calls_per_s = calls_per_s
        self.bytes_per_s = READ_BYTES_PER_S * calls_per_s / READ_CALLS_PER_S
        """The same share of a shard's bytes."""
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}
        self._turns: dict[tuple[str, str, str], asyncio.Lock] = {}
        self._page_records: dict[tuple[str, str], int] = {}

    async def before(self, stream: str, shard_id: str, operation: str) -> None:
        """Wait until the shard may be asked. Readers of one shard take turns in the order in which they came."""
        bucket, clock = self._bucket(stream, shard_id, operation), asyncio.get_running_loop().time
        async with self._turns.setdefault((stream, shard_id, operation), asyncio.Lock()):
            # Without turns, the reader whose wait began with the last call wakes first each time, and no other reads.
            while not bucket.take(clock(), records=1, payload_bytes=1):
                await asyncio.sleep(bucket.wait_s(clock(), records=1, payload_bytes=1))

    def page_records(self, stream: str, shard_id: str) -> int:
        """How many records the next GetRecords call may ask for."""
        return self._page_records.get((stream, shard_id), PAGE_RECORDS_FIRST)

    def after(self, stream: str, shard_id: str, records: int, payload_bytes: int) -> None:
        """Note what GetRecords brought: more than the share is paid for by waiting before the next call."""
        now_s = asyncio.get_running_loop().time()
        self._bucket(stream, shard_id, "GetRecords").charge(now_s, payload_bytes=payload_bytes)
        if payload_bytes:
            fitting = int(PAGE_BYTES * records / payload_bytes)
            self._page_records[stream, shard_id] = min(max(fitting, 1), PAGE_RECORDS_MAX)

    def _bucket(self, stream: str, shard_id: str, operation: str) -> TokenBucket:
        key = (stream, shard_id, operation)
        if (found := self._buckets.get(key)) is None:
            found = self._buckets[key] = TokenBucket(
                records_per_s=self.calls_per_s,
                records_burst=1.0,
                bytes_per_s=self.bytes_per_s,
                now_s=asyncio.get_running_loop().time(),
            )
        return found
