"""Send the calls of the read model: each is counted, paced within the limits of an account, and never a write."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from shardway.aws.calls.retry import RetryPolicy
from shardway.aws.calls.signed_calls import SignedCalls
from shardway.aws.sdk import fixed_credentials
from shardway.aws.wire import Wire
from shardway.core.pacing import TokenBucket
from shardway.errors import (
    CredentialsError,
    ThrottledError,
)
from shardway.inspect.moments import utc
from shardway.inspect.values import (
    CredentialsView,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from shardway.aws.calls.signed_calls import Request
    from shardway.aws.credentials import CredentialCache
    from shardway.aws.options import ConnectionOptions
    from shardway.aws.transport import Answer, HttpTransport


SHARE = 0.4
"""The part of each limit that an inspector uses. The other 60 % stay with the programs that process the stream."""
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
"""The actions that an inspector calls unasked, each with the statement of its policy that allows it."""
ASKED_STATEMENTS: dict[str, str] = {
    "glue:GetSchemaVersion": "ReadSchemas",
    "kinesis:SubscribeToShard": "ReadByFanOut",
}
"""The actions that an inspector calls only where the caller asks for schemas, or for records by a registered consumer.
"""
READS: frozenset[tuple[str, str]] = frozenset(
    (service, operation)
    for service, _, operation in (action.partition(":") for action in {**STATEMENTS, **ASKED_STATEMENTS})
)
"""The only calls that are sent, as (service, operation): any other one is refused."""
ACCOUNT_CALLS_PER_S = {"DescribeLimits": 1, "DescribeStreamSummary": 20, "ListStreams": 5, "ListStreamConsumers": 5}
"""Calls a second that all programs of an account, or of a stream, share (Kinesis API reference)."""
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
            self._wire.refusals[request.operation] += 1
            raise


class ReadingWire(Wire):
    """A wire that counts each attempt, keeps within the account's limits, and refuses to write."""

    def __init__(
        self,
        options: ConnectionOptions | None = None,
        *,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(options, now=now, sleep=sleep, retry=RETRY)
        self.calls: Counter[str] = Counter()
        """Attempts by operation."""
        self.refusals: Counter[str] = Counter()
        """The attempts that the service refused for their rate, by operation."""

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
        """Return how long the credentials are good; None: there are none."""
        options = self.options
        given = fixed_credentials(options)
        try:
            current = await self._parts_here().credentials.current()
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
