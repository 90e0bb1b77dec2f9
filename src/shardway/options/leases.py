"""The options of leases: where they are kept, how many a worker takes, and when a worker counts as dead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, cast

import msgspec
from msgspec import Meta

from shardway.aws.options import ConnectionOptions
from shardway.core.assignment.strategies import EQUAL_COUNTS, Custom, Strategy
from shardway.core.assignment.views import LeaseView, WorkerView
from shardway.core.leases.tenure.times import FAILOVER_S
from shardway.core.options.base import Options, hints_of
from shardway.core.options.hints import remarks, shown
from shardway.ports import LeaseTable

if TYPE_CHECKING:
    from collections.abc import Iterator


OF_DYNAMODB = "of a table in DynamoDB"
"""Marks an option that no other table has."""
_FILE_ENDS = (".db", ".sqlite", ".sqlite3", ".db3")


class LeaseOptions(Options, frozen=True, kw_only=True):
    """The options of the lease table, of how many shards each consumer takes, and of when one counts as dead."""

    table: Annotated[
        str | LeaseTable | None,
        Meta(
            title="a name or a LeaseTable",
            description="SqliteLeaseTable(path) keeps leases in a file, a name is that of a table in DynamoDB",
        ),
    ] = None
    """The lease table: the name of a table in DynamoDB (None: the application's name), or a table of another kind, as
    ``SqliteLeaseTable(path)``, which the consumer does not close. A table in DynamoDB is made if it is not there.
    """
    failover_s: Annotated[float, Meta(gt=0)] = FAILOVER_S
    """A worker that has shown no sign of life for this long counts as dead, and other workers take its shards over
    (KCL: failoverTimeMillis). A lease is renewed twice in this time, and a worker stops delivering a twentieth of it
    before others may take its shards.
    """
    leases_max: Annotated[int, Meta(ge=0)] | None = None
    """The most shards that this worker reads (KCL: maxLeasesForWorker)."""
    strategy: Annotated[
        Strategy | Callable[[Sequence[LeaseView], Sequence[WorkerView]], Mapping[str, str]],
        Meta(title="EqualCounts(), ByThroughput(), Fixed() or a function"),
    ] = EQUAL_COUNTS
    """Which worker should read which shard: EqualCounts(), ByThroughput(), Fixed(), or a function. The function gets
    the leases that may be read now and the workers that are present, and returns workers' ids by lease key. It has to
    be the same for all workers.
    """
    other_stream_begins_anew: bool = False
    """What the consumer does when the leases belong to another stream: to one that the application read before, or to
    one that was deleted and made anew under its name. False: it ends with an OptionError. True: once no owner of these
    leases lives, it begins them anew, where ``starting_position`` says.
    """
    upkeep_interval_s: Annotated[float, Meta(gt=0)] = 60.0
    """How often one of the workers deletes leases that are no longer needed, and looks for holes in the hash range
    (KCL: leasesRecoveryAuditorExecutionFrequencyMillis). It repairs a hole that was there three times in a row. It
    retries upkeep that failed after ``failover_s``, if that is sooner.
    """
    kcl_report_interval_s: Annotated[float, Meta(gt=0)] = 30.0
    """How often this worker shows itself to the leader of a KCL 3.x fleet (its ``workerMetricsReporterFreqInMillis``):
    the leader assigns no lease to a worker that it has not seen for twice as long.
    """

    connection: Annotated[ConnectionOptions | None, OF_DYNAMODB] = None
    """How the consumer reaches a table in DynamoDB. None: in the same way as the stream."""
    request_timeout_s: Annotated[float, Meta(gt=0)] = 2.0
    """How long a worker waits for DynamoDB's answer to a write (KCL: dynamoDbRequestTimeout). A consumer waits at most
    a fifth of ``failover_s``, which leaves room for retries before it has to stop delivering.
    """
    workers_table: Annotated[str | None, OF_DYNAMODB] = None
    """The table of workers in DynamoDB; None: the lease table's name with ``-Workers``."""
    coordinator_table: Annotated[str | None, OF_DYNAMODB] = None
    metrics_table: Annotated[str | None, OF_DYNAMODB] = None
    """Where KCL workers of 3.0 to 3.4 keep their rows; None: the lease table's name with ``-CoordinatorState`` and
    ``-WorkerMetricStats``. Shardway never makes these tables.
    """
    read_capacity_units: Annotated[int | None, Meta(gt=0), OF_DYNAMODB] = None
    write_capacity_units: Annotated[int | None, Meta(gt=0), OF_DYNAMODB] = None
    """The provisioned capacity of each table and of the index; give both. None: AWS bills the tables by request."""
    tags: Annotated[dict[str, str], OF_DYNAMODB] = msgspec.field(default_factory=dict)
    """Tags that both tables are made with."""
    owner_index: Annotated[bool, OF_DYNAMODB] = False
    """True: the index by owner that workers of the KCL 3.x need is also added to a table that is there without it. A
    new table has it in any case.
    """
    deletion_protection: Annotated[bool, OF_DYNAMODB] = False
    """True: tables that Shardway makes cannot be deleted before an administrator switches this off at the table."""

    def _rules(self) -> Iterator[str]:
        if isinstance(self.strategy, type):
            yield f"strategy is EqualCounts(), ByThroughput(), Fixed() or a function, not {shown(self.strategy)}"
        if (self.read_capacity_units is None) != (self.write_capacity_units is None):
            yield "read_capacity_units and write_capacity_units are given together, or not at all"
        if isinstance(self.table, str):
            yield from _name_faults(self.table)
        elif self.table is not None:
            defaults = self._defaults()
            for name, hint in hints_of(type(self)).items():
                if OF_DYNAMODB in remarks(hint) and getattr(self, name) != defaults[name]:
                    yield f"{name} is for a table in DynamoDB, and table is another kind"

    @property
    def assignment(self) -> Strategy:
        """The strategy. Where it is a function, its answers are checked."""
        return Custom(self.strategy) if inspect.isroutine(self.strategy) else cast("Strategy", self.strategy)


def _name_faults(name: str) -> Iterator[str]:
    """Yield what is wrong with the name of a table in DynamoDB: most such texts are a file's path or an address."""
    if not name:
        yield "table: there is no name"
    elif name.endswith(_FILE_ENDS):
        yield "table is the name of a table in DynamoDB, and this text looks like a file: SqliteLeaseTable(path)"
    elif "://" in name:
        yield "table is the name of a table in DynamoDB, and this text is an address: PostgresLeaseTable(url)"
    elif "/" in name and not name.startswith("arn:"):
        yield "table is the name of a table in DynamoDB, and this text looks like a path: SqliteLeaseTable(path)"
