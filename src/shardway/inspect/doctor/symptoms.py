"""The table of all symptoms. Each has a pure function that finds its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardway.core.log.feed_cursor import TO_COME_MAX_S
from shardway.inspect.doctor import account_evidence, blind_spots, lease_evidence, reading_evidence, stream_evidence
from shardway.inspect.doctor.findings import Confidence, Severity
from shardway.inspect.lag.reports import CRITICAL_OF_RETENTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardway.inspect.doctor.snapshots import Snapshot


class Symptom(NamedTuple):
    """The texts about a symptom, and the function that finds it."""

    id: str
    """The symptom's id, which never changes and is given to no other symptom."""
    title: str
    severity: Severity
    confidence: Confidence
    seen_by: str
    """What shows the symptom."""
    do: str
    verify: str
    """How to see that the symptom is gone."""
    evidence: Callable[[Snapshot], Iterable[str]]
    """The function that yields what shows the symptom in a snapshot; nothing where the symptom is not there."""
    is_worse: Callable[[Snapshot], bool] | None = None
    """The function that says whether the symptom is critical in a snapshot, whatever its usual severity."""
    too_short: Callable[[Snapshot], Iterable[str]] | None = None
    """The function that yields what the looks of a snapshot leave open of the symptom; None: one look is enough."""


_SYMPTOM_LIST = (
    Symptom(
        id="SHW-D001",
        title="the lease table is too small for its leases",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="its provisioned writes, beside the renewals of its leases",
        do="bill the table by request (UpdateTable, BillingMode PAY_PER_REQUEST), or give it and its index more",
        verify="leases stop moving between workers, and the table's WriteThrottleEvents are 0",
        evidence=lease_evidence.table_too_small,
    ),
    Symptom(
        id="SHW-D002",
        title="shards are owned, and nothing happens",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="the lease is renewed and its checkpoint stands still while records wait, or its worker tells so",
        do=(
            "look at the owner: its handler waits or fails at one record (shardway records get, at the "
            "checkpoint), or the program never checkpoints; then restart that worker"
        ),
        verify="shardway app lag --window 3m shows that the checkpoint moves",
        evidence=reading_evidence.stalled,
        too_short=blind_spots.stalled,
    ),
    Symptom(
        id="SHW-D003",
        title="shards that no worker reads",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="leases without owner, open shards without lease",
        do=(
            "start workers, or raise the number of leases that each may hold; after a reshard wait for the next "
            "look at the shards (a minute or two) first"
        ),
        verify="shardway check leases ends with 0",
        evidence=reading_evidence.without_reader,
    ),
    Symptom(
        id="SHW-D004",
        title="a hole in the hash range: records with these keys are not read",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="open shards, or unfinished leases, leave hash keys out",
        do=(
            "look again in a minute, since a reshard shows holes for a moment; then restart a worker, which looks"
            " for missing leases when it starts"
        ),
        verify="this finding is gone",
        evidence=reading_evidence.hole,
    ),
    Symptom(
        id="SHW-D005",
        title="the lag grows",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the trend over the window",
        do=(
            "if few shards fall behind, look for a hot key (shardway stream heat) or a slow worker; if most do, "
            "add workers, make the handler faster, or split shards"
        ),
        verify="shardway app lag --window 1m says catching up",
        evidence=reading_evidence.falls_behind,
        too_short=blind_spots.falls_behind,
    ),
    Symptom(
        id="SHW-D006",
        title="records may be gone: a checkpoint is older than the retention",
        severity=Severity.CRITICAL,
        confidence=Confidence.POSSIBLE,
        seen_by="a checkpoint behind the retention's horizon",
        do=(
            "lengthen the retention at once, which keeps what is still there; a shard without records since then "
            "has lost nothing"
        ),
        verify="shardway app lag shows no shard that may have lost records",
        evidence=reading_evidence.lost,
    ),
    Symptom(
        id="SHW-D007",
        title="iterators expire before they are used",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the KCL's metric `ExpiredIterator`",
        do=(
            "make the handler return sooner, or give it smaller batches: an iterator is good for 5 minutes; then "
            "look at the worker's clock"
        ),
        verify="the metric ExpiredIterator stays at 0",
        evidence=stream_evidence.iterators,
    ),
    Symptom(
        id="SHW-D008",
        title="shards refuse reads",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the stream's metric `ReadProvisionedThroughputExceeded`, and reads that were refused meanwhile",
        do=(
            "count the programs that read: 5 calls and 2 MiB a second are for all of them together; read less "
            "often, or register consumers for enhanced fan-out"
        ),
        verify="the metric ReadProvisionedThroughputExceeded stays at 0",
        evidence=stream_evidence.reads_refused,
    ),
    Symptom(
        id="SHW-D009",
        title="a shard is hot",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the load of the last minute by shards and keys, and refused writes",
        do=(
            "ask shardway stream heat where to split the shard; where one partition key has most of the load, "
            "spread that key"
        ),
        verify="shardway stream heat marks no shard as hot",
        evidence=stream_evidence.hot_shards,
    ),
    Symptom(
        id="SHW-D010",
        title="an on-demand stream refuses writes",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the mode, and the metric `WriteProvisionedThroughputExceeded`",
        do=(
            "an on-demand stream takes twice the peak of 30 days, and needs minutes to grow: raise its warm "
            "throughput before a known peak, and look for a hot key (shardway stream heat)"
        ),
        verify="the metric WriteProvisionedThroughputExceeded stays at 0",
        evidence=stream_evidence.on_demand_refuses,
    ),
    Symptom(
        id="SHW-D011",
        title="there are far more shards than the load needs",
        severity=Severity.INFO,
        confidence=Confidence.LIKELY,
        seen_by="open shards, beside the busiest hour of 14 days",
        do="merge shards of a provisioned stream (UpdateShardCount); lower the warm throughput of one on demand",
        verify="shardway stream describe shows fewer open shards, and none is hot",
        evidence=stream_evidence.too_many_shards,
    ),
    Symptom(
        id="SHW-D012",
        title="consumers of enhanced fan-out that cannot be used",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="their status, and their number",
        do="wait until a new consumer is ACTIVE, and deregister those that no program uses",
        verify="shardway stream describe shows each consumer as ACTIVE",
        evidence=stream_evidence.consumers,
    ),
    Symptom(
        id="SHW-D013",
        title="the index by owner is not ready",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="its status",
        do="wait: DynamoDB fills an index in minutes; workers of the KCL 3.x read all leases until then",
        verify="shardway app describe shows the index as ACTIVE",
        evidence=lease_evidence.index,
    ),
    Symptom(
        id="SHW-D014",
        title="a migration to the KCL 3.x is under way",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the rows `Migration3.0` and `TableMigration3.5`",
        do=(
            "if it stays so after all workers run the new version, look for a worker of the 2.x that still renews"
            " leases"
        ),
        verify="shardway app describe shows CLIENT_VERSION_3X",
        evidence=lease_evidence.migration,
    ),
    Symptom(
        id="SHW-D015",
        title="leases of another stream, or of a former one with this name",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="shards that the stream does not have, checkpoints from before it was made",
        do=(
            "give the application a new name for this stream; or remove these leases once their records are of no"
            " interest"
        ),
        verify="shardway app lag shows no shard as gone",
        evidence=lease_evidence.other_stream,
    ),
    Symptom(
        id="SHW-D016",
        title="the handler fails, and records may be skipped",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the metric `RecordsFailedProcessing`",
        do=(
            "read the worker's log; the KCL before 3.5.4 goes on behind a batch that its processor raised at, so "
            "handle errors inside of the processor there"
        ),
        verify="the metric RecordsFailedProcessing stays at 0",
        evidence=account_evidence.failed_records,
    ),
    Symptom(
        id="SHW-D017",
        title="leases changed hands since their last checkpoint: records are delivered again",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="`ownerSwitchesSinceCheckpoint`",
        do="checkpoint more often, or drain before a worker stops; make the handler take duplicates",
        verify="the number is 0 after the next checkpoint",
        evidence=lease_evidence.switches,
    ),
    Symptom(
        id="SHW-D018",
        title="owners do not renew their leases",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="counters, or workers' own rows, that stand still for twice the failover time",
        do=(
            "these workers have ended, hang, or cannot write to the lease table; no other worker has taken over, "
            "so look whether any lives"
        ),
        verify="shardway app lag --window 30s shows no shard as stopped",
        evidence=reading_evidence.stopped,
        too_short=blind_spots.stopped,
    ),
    Symptom(
        id="SHW-D019",
        title="aggregates hold user records of other shards, which readers leave out",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="the newest records of each shard, opened",
        do=(
            "find the producer that aggregates by an old map of the shards, and restart it; what it put has to be"
            " put again"
        ),
        verify="shardway doctor finds it no more for records that are put from now on",
        evidence=account_evidence.outside,
    ),
    Symptom(
        id="SHW-D020",
        title="the credentials end, or have ended",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="calls that were refused, and what the credentials tell of their end",
        do=(
            "use a source that renews them (a role, or a profile with one) in place of what was copied into the "
            "environment"
        ),
        verify="shardway stream describe works a day later with the same process",
        evidence=account_evidence.credentials,
    ),
    Symptom(
        id="SHW-D021",
        title="this machine's clock is wrong",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the time in the service's answers",
        do="set the clock by NTP: requests that are signed more than five minutes off are refused",
        verify="this finding is gone",
        evidence=account_evidence.clock,
    ),
    Symptom(
        id="SHW-D022",
        title="the application's metrics are many, and cost",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the metrics in its namespace",
        do=(
            "let workers send their summary level only, without names of workers and shards; metrics that are not"
            " sent any more cost nothing from the next hour on"
        ),
        verify="CloudWatch lists fewer metrics in the namespace after two weeks",
        evidence=account_evidence.many_metrics,
    ),
    Symptom(
        id="SHW-D023",
        title="two processes have one worker's name",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="the processes that the leases of one owner name",
        do="give each process a worker id of its own",
        verify="shardway app describe shows a worker for each process",
        evidence=lease_evidence.twins,
    ),
    Symptom(
        id="SHW-D024",
        title="several owners have given up at the same record",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="changes of owner at a checkpoint that stands still while records wait",
        do=(
            "look at the record behind the checkpoint (shardway records get): each owner fails or hangs at it; "
            "let the handler skip it or write it as a dead letter"
        ),
        verify="shardway app lag --window 3m shows that the checkpoint moves",
        evidence=lease_evidence.poison,
    ),
    Symptom(
        id="SHW-D025",
        title="a limit of the account is near, or its rate of calls is used up",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the account's limits, and calls that were refused meanwhile",
        do="ask for a higher quota; look which program lists and describes streams all the time",
        verify="this finding is gone",
        evidence=account_evidence.quotas,
    ),
    Symptom(
        id="SHW-D026",
        title="the stream's key is refused",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="what the service answers to reads",
        do="give the readers kms:Decrypt on that key (docs/iam), and see that the key is enabled",
        verify="shardway records tail shows records",
        evidence=stream_evidence.encryption,
    ),
    Symptom(
        id="SHW-D027",
        title="channels or queues hang on the stream",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="their number",
        do="look at their state in the console of AWS, and at their dead letters; delete them before the stream",
        verify="shardway stream describe shows the number that is wanted",
        evidence=stream_evidence.channels,
    ),
    Symptom(
        id="SHW-D028",
        title="much of the retention is used up",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the lag beside the retention",
        do=(
            "lengthen the retention before anything else (IncreaseStreamRetentionPeriod), then find out why the "
            "lag grew"
        ),
        verify="shardway check lag ends with 0",
        evidence=reading_evidence.retention,
        is_worse=lambda snapshot: reading_evidence.retention_used(snapshot) > CRITICAL_OF_RETENTION,
    ),
    Symptom(
        id="SHW-D029",
        title="a producer's records are too late, and given up",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the KPL's metric `UserRecordExpired`",
        do=(
            "look for refused writes and a hot shard first; then let the producer wait when its buffer is full, "
            "so that its memory does not grow"
        ),
        verify="the metric UserRecordExpired stays at 0",
        evidence=account_evidence.producer_late,
    ),
    Symptom(
        id="SHW-D030",
        title="permissions lack, so some symptoms could not be looked for",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="calls that were refused",
        do="give these credentials the policy docs/iam/inspect.json",
        verify="this finding is gone",
        evidence=account_evidence.permissions,
    ),
    Symptom(
        id="SHW-D031",
        title="rows of the lease table cannot be read",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the rows",
        do="find out what wrote them; workers of the KCL before 3.5 fail at rows that are no leases",
        verify="shardway app describe tells no such row",
        evidence=account_evidence.unreadable,
    ),
    Symptom(
        id="SHW-D032",
        title="leases go from worker to worker",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the owners that were seen",
        do=(
            "look for workers that hang for longer than the failover time, for throttled writes of the lease "
            "table, and for two processes with one name"
        ),
        verify="shardway app describe shows the same owners a minute later",
        evidence=lease_evidence.lease_moves,
        too_short=blind_spots.lease_moves,
    ),
    Symptom(
        id="SHW-D033",
        title="workers have nothing to do",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="workers without a lease",
        do="stop them, or split shards: one shard is read by one worker",
        verify="shardway app describe shows leases for each worker",
        evidence=lease_evidence.idle_workers,
    ),
    Symptom(
        id="SHW-D034",
        title="the leader of the workers is gone",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="the row `Leader`, and the rows of the workers' metrics",
        do="restart the worker that it names; without a leader no lease is assigned",
        verify="shardway app describe shows a leader",
        evidence=lease_evidence.leader,
    ),
    Symptom(
        id="SHW-D035",
        title="a lease is not handed over",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="both owners, unchanged for two failover times",
        do="look at the old owner: it waits for its handler before it gives the lease up; restart it if it hangs",
        verify="shardway app describe shows one owner for each lease",
        evidence=lease_evidence.handoffs,
        too_short=blind_spots.handoffs,
    ),
    Symptom(
        id="SHW-D036",
        title="a prepared checkpoint is not settled",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the pending checkpoint, unchanged for two failover times",
        do=(
            "look at the program between its prepared checkpoint and its commit; workers of the KCL before 3.5 "
            "may hang there, so update them"
        ),
        verify="shardway app describe -o json shows no pending_checkpoint",
        evidence=lease_evidence.pending,
        too_short=blind_spots.pending,
    ),
    Symptom(
        id="SHW-D037",
        title="the stream or its lease table is not active",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="their status",
        do=("wait for an update to end; a stream that is DELETING does not come back, so find out what deletes it"),
        verify="shardway check stream ends with 0",
        evidence=stream_evidence.not_active,
        is_worse=stream_evidence.is_deleting,
    ),
    Symptom(
        id="SHW-D038",
        title="half of an application's tables",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the tables of the KCL 3.0 to 3.4, of which one is missing; a table without leases",
        do=(
            "restore the table from a backup, or let one worker make it anew; see whether the application's name "
            "is right"
        ),
        verify="shardway app describe shows leases",
        evidence=lease_evidence.half_tables,
    ),
    Symptom(
        id="SHW-D039",
        title="leases without a position: a restart may leave records out",
        severity=Severity.INFO,
        confidence=Confidence.POSSIBLE,
        seen_by="the checkpoints `LATEST` and `AT_TIMESTAMP` without a time beside them",
        do="checkpoint once for each shard: a worker that takes such a lease over begins at what is newest then",
        verify="shardway app export tells each position as exact",
        evidence=reading_evidence.no_position,
    ),
    Symptom(
        id="SHW-D040",
        title="a shard is read before its parent is read to its end",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="leases of parents and children",
        do="see which program moved these checkpoints: records of one key are handled out of order",
        verify="shardway app describe shows SHARD_END for the parent",
        evidence=reading_evidence.out_of_order,
    ),
    Symptom(
        id="SHW-D041",
        title="a checkpoint went back",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the checkpoints that were seen",
        do="ask which program or person moved it: records are delivered again from there",
        verify="shardway app lag --history says it no more after an hour",
        evidence=reading_evidence.rewound,
        too_short=blind_spots.rewound,
    ),
    Symptom(
        id="SHW-D042",
        title="shards have very different parts of the hash keys",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the hash ranges of the open shards",
        do=(
            "split the large shards, or merge small ones that are neighbours: with many keys a shard's load "
            "follows its part"
        ),
        verify="shardway stream shards shows even parts",
        evidence=lease_evidence.uneven,
    ),
    Symptom(
        id="SHW-D043",
        title="a worker's clock is wrong",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="rows of workers that are written in the future",
        do="set that machine's clock by NTP: a leader takes its worker for gone, or for alive",
        verify="this finding is gone",
        evidence=lease_evidence.worker_clocks,
    ),
    Symptom(
        id="SHW-D044",
        title="the lease table refuses calls",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="the table's `WriteThrottleEvents` and `ReadThrottleEvents`, and scans that were refused meanwhile",
        do=("bill the table by request, or give it and its index more: workers that cannot renew lose their leases"),
        verify="the table's WriteThrottleEvents and ReadThrottleEvents stay at 0",
        evidence=lease_evidence.table_refuses,
    ),
    Symptom(
        id="SHW-D045",
        title="workers differ in version or failover time",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the rows of Shardway's workers",
        do=(
            "finish the deployment; where two failover times stay, a worker with the longer one is taken for dead"
            " too soon"
        ),
        verify="shardway app describe shows one version",
        evidence=lease_evidence.workers_differ,
    ),
    Symptom(
        id="SHW-D046",
        title="leases of shards that are long gone fill the table",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="ended leases of shards that the stream does not list",
        do=(
            "let the cleanup of ended leases run (it is on by default in the KCL and in Shardway): each scan "
            "reads them all"
        ),
        verify="shardway app describe shows few ended leases",
        evidence=lease_evidence.old_leases,
    ),
    Symptom(
        id="SHW-D047",
        title="shards are far behind, and a short look does not tell whether they move",
        severity=Severity.WARNING,
        confidence=Confidence.POSSIBLE,
        seen_by="a lag of more than two minutes, at a checkpoint that was not seen to move",
        do=(
            "look for longer (shardway doctor APPLICATION --window 3m): that tells a shard that stands still "
            "(SHW-D002) from one that falls behind (SHW-D005) and from one that catches up"
        ),
        verify="shardway app lag APPLICATION --window 3m shows ok or catching up",
        evidence=reading_evidence.far_behind,
    ),
    Symptom(
        id="SHW-D048",
        title="a shard is not read until a time that is still to come",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by=(
            f"a checkpoint `LATEST` or `AT_TIMESTAMP` with a time that is more than {TO_COME_MAX_S / 60:g} minutes "
            "ahead: a program with a wrong clock wrote it, or a start that was meant for later"
        ),
        do=(
            "set the clock right, and move the shards to where they are to begin (shardway app seek APPLICATION --to "
            "TIME --shard SHARD): until that time the shard waits, and nothing that arrives before is read"
        ),
        verify="shardway app describe shows a position, or a time that has passed",
        evidence=reading_evidence.still_to_come,
    ),
)
SYMPTOMS = {one.id: one for one in _SYMPTOM_LIST}
"""All symptoms by their ids."""
