"""What the parts of the read model ask of the inspector that they read through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
    from typing import TypeVar

    from shardway.aws.kinesis.shapes import GetRecordsPage
    from shardway.errors import ServiceError
    from shardway.inspect.applications.stores import Store
    from shardway.inspect.applications.views import ApplicationReport
    from shardway.inspect.heat import HeatReport
    from shardway.inspect.lag.reports import LagReport, LagTimes, Look
    from shardway.inspect.reads.wire import ReadingWire
    from shardway.inspect.values import Missing, StreamReport, StreamView
    from shardway.model import IteratorAt, ListedShard, StreamName

    T = TypeVar("T")


class Calls(Protocol):
    """Calls of the read model, and what they did not show."""

    wire: ReadingWire
    missing: list[Missing]

    @property
    def calls(self) -> dict[str, int]:
        """See `Inspector.calls`."""

    @property
    def now_s(self) -> float:
        """See `Inspector.now_s`."""

    async def shown(self, what: str, service: str, looking: Awaitable[T]) -> T | None:
        """See `Inspector.shown`."""

    def lacks(self, what: str, service: str, fault: ServiceError) -> None:
        """See `Inspector.lacks`."""


class StreamReads(Calls, Protocol):
    """Reads of a stream and its shards, within the share of each."""

    async def describe(self, stream: StreamName) -> StreamView:
        """See `Inspector.describe`."""

    async def shards(self, stream: StreamName) -> list[ListedShard]:
        """See `Inspector.shards`."""

    async def consumer_arn(self, stream: StreamName, consumer: str) -> str:
        """See `Inspector.consumer_arn`."""

    async def iterator(self, stream: StreamName, shard_id: str, at: IteratorAt) -> str:
        """See `Inspector.iterator`."""

    async def page(
        self, stream: StreamName, shard_id: str, iterator: str, *, limit: int | None = None
    ) -> GetRecordsPage:
        """See `Inspector.page`."""

    def pages(
        self, stream: StreamName, shard_id: str, at: IteratorAt, *, limit: int | None = None, is_patient: bool = False
    ) -> AsyncGenerator[GetRecordsPage, None]:
        """See `Inspector.pages`."""


class Reports(Calls, Protocol):
    """Reports of a stream and an application; a snapshot is made of them."""

    @property
    def clock_off_s(self) -> float:
        """See `Inspector.clock_off_s`."""

    async def stream(self, stream: str, *, shards: bool = True, consumers: bool = True) -> StreamReport:
        """See `Inspector.stream`."""

    async def application(self, name: str, store: Store | None = None) -> ApplicationReport:
        """See `Inspector.application`."""

    async def lag(
        self,
        application: str,
        stream: str | None = None,
        store: Store | None = None,
        *,
        times: LagTimes | None = None,
        history: Mapping[str, Sequence[Look]] | None = None,
    ) -> tuple[LagReport, Mapping[str, Sequence[Look]]]:
        """See `Inspector.lag`."""

    async def heat(
        self,
        stream: str,
        *,
        since_s: float = 300.0,
        records_max: int = ...,
        keys_shown_max: int = 5,
        show_keys: bool = True,
    ) -> HeatReport:
        """See `Inspector.heat`."""
