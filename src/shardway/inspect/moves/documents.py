"""Read positions from documents, and from what other programs keep.

The forms in which other programs keep their positions are taken from the sources of these programs. A position that
does not say exactly where reading goes on is marked so; nothing is guessed.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.aws.dynamodb.values import plain_item, typed_item
from shardway.core.leases.listing import listing_of
from shardway.core.leases.row import (
    CHECKPOINT,
    CHILDREN,
    COUNTER,
    FIRST_HASH_KEY,
    KEY,
    LAST_HASH_KEY,
    PARENTS,
    SUB,
    SWITCHES,
)
from shardway.errors import OptionError
from shardway.inspect.applications.views import ApplicationRows, application_view
from shardway.inspect.moves.positions import SCHEMA, PositionsReport, PositionsSource, PositionView, positions_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shardway.inspect.applications.views import ApplicationView


BYTES_MAX = 256 * 1024 * 1024


class ScanForm(NamedTuple):
    """The attributes of a table in DynamoDB in which another library keeps its positions, a row per shard. Each
    position means that reading goes on behind this number.
    """

    shard: str
    number: str
    end: str | None = None
    """The position of a shard that is read to its end."""
    inside: str | None = None
    """The separator of the parts of a text whose last part is the shard; None: the attribute is the shard alone."""
    scope: str | None = None
    """The attribute that tells the rows of one consumer group or stream from another's."""


SCANS: Mapping[str, ScanForm] = {
    "harlow": ScanForm("shard_id", "sequence_number", scope="namespace"),
    "kinesumer": ScanForm("sk", "sequence_number", scope="pk"),
    "kinsumer": ScanForm("Shard", "SequenceNumber"),
    "redpanda-connect": ScanForm("ShardID", "SequenceNumber", scope="StreamID"),
    "ruby-kcl": ScanForm("shard_id", "checkpoint", end="SHARD_END"),
    "spring": ScanForm("metadataKey", "metadataValue", inside=":"),
    "vmware-go-kcl": ScanForm("ShardID", "Checkpoint", end="SHARD_END"),
}
"""The forms that are read from what ``aws dynamodb scan`` writes."""
FORMATS = ("positions", "kcl", "spark-awslabs", "databricks", *SCANS)
"""All forms that `positions_from` reads. `spark-awslabs` is also the form of kinesis-sql and its other forks."""


def positions_from(path: Path, form: str, *, taken_at: dt.datetime, scope: str | None = None) -> PositionsReport:
    """Return the positions in a file, or in Spark's checkpoint directory. ``scope``: the consumer group or stream whose
    rows are wanted, in a table that several share. Raises OptionError.
    """
    if form not in FORMATS:
        raise OptionError(f"{form!r} is no format of positions: {', '.join(FORMATS)}")
    try:
        if form in ("spark-awslabs", "databricks"):
            shards, streams = (_spark_awslabs if form == "spark-awslabs" else _databricks)(path)
        elif form == "positions":
            return _document(_read(path))
        else:
            items = _scan_items(_read(path))
            if form == "kcl":
                return positions_of(_kcl_view(path, items), taken_at)
            shards, streams = _of_scan(items, SCANS[form], scope), []
    except OSError as fault:
        raise OptionError(f"{path}: {fault.strerror}") from fault
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as fault:
        raise OptionError(f"{path} does not hold positions as {form} writes them: {fault}") from fault
    if not shards:
        raise OptionError(f"{path} holds no positions of the form {form}")
    source = PositionsSource(kind=form, application=scope or path.name, taken_at=taken_at)
    return PositionsReport(source=source, streams=streams, shards=shards, left_out={})


def kcl_items(application: ApplicationView) -> bytes:
    """Return the leases as ``aws dynamodb scan`` writes them, without owners: for a table of the KCL, or to look at
    them.
    """
    items = []
    for lease in application.leases:
        values: dict[str, Any] = {
            KEY: lease.key,
            COUNTER: lease.counter,
            CHECKPOINT: lease.checkpoint,
            SUB: lease.sub_sequence_number,
            SWITCHES: lease.switches,
            PARENTS: frozenset(lease.parents) or None,
            CHILDREN: frozenset(lease.children) or None,
            FIRST_HASH_KEY: lease.first_hash_key,
            LAST_HASH_KEY: lease.last_hash_key,
        }
        items.append(typed_item({name: value for name, value in values.items() if value is not None}))
    found = {"Items": items, "Count": len(items), "ScannedCount": len(items)}
    return msgspec.json.format(msgspec.json.encode(found), indent=2)


def _read(path: Path) -> bytes:
    if path.stat().st_size > BYTES_MAX:
        raise OptionError(f"{path} has more than {BYTES_MAX} bytes")
    return path.read_bytes()


def _document(content: bytes) -> PositionsReport:
    found = msgspec.json.decode(content, type=PositionsReport)
    if found.schema != SCHEMA:
        raise ValueError(f"its schema is {found.schema!r}, not {SCHEMA!r}")
    for key, one in found.shards.items():
        numbered = one.sequence_number is not None and one.sequence_number.isascii() and one.sequence_number.isdigit()
        if (one.at in ("after", "at") or one.sequence_number is not None) and not numbered:
            raise ValueError(f"the position of {key} has no sequence number")
    return found


def _position_after(number: str, why: str, sub: int | None = None) -> PositionView:
    if not (number.isascii() and number.isdigit()):
        return PositionView(at="none", exact=False, why=f"{number[:60]!r} is no sequence number")
    return PositionView(at="after", sequence_number=number, sub_sequence_number=sub, exact=True, why=why)


_END_VIEW = PositionView(at="ended", exact=True, why="the shard is read to its end")


def _scan_items(content: bytes) -> list[dict[str, Any]]:
    """Return the items of ``aws dynamodb scan`` as plain attributes."""
    return [plain_item(one) for one in msgspec.json.decode(content, type=dict[str, Any])["Items"]]


def _kcl_view(path: Path, items: list[dict[str, Any]]) -> ApplicationView:
    return application_view(path.stem, "kcl", ApplicationRows(listing_of(items)))


def _of_scan(items: list[dict[str, Any]], form: ScanForm, scope: str | None) -> dict[str, PositionView]:
    scopes: set[str] = set()
    found: dict[str, PositionView] = {}
    for item in items:
        shard_id, number = item.get(form.shard), item.get(form.number)
        group = str(item.get(form.scope, "")) if form.scope else ""
        if isinstance(shard_id, str) and form.inside:
            group, _, shard_id = shard_id.rpartition(form.inside)
        if not isinstance(shard_id, str) or number is None or (scope is not None and group != scope):
            continue
        scopes.add(group)
        found[shard_id] = (
            _END_VIEW if number == form.end else _position_after(str(number), "all up to this record was read")
        )
    if len(scopes) > 1:
        raise OptionError(f"the table has rows of several: choose one with --scope: {', '.join(sorted(scopes))}")
    return found


def _newest(folder: Path) -> Path:
    numbers = [int(one.name) for one in folder.iterdir() if one.name.isdigit()]
    if not numbers:
        raise OptionError(f"{folder} has no batch")
    return folder / str(max(numbers))


def _spark_offset(checkpoint: Path) -> Any:
    """Return the offset of the newest batch that was committed. Raises ValueError where the query has several sources,
    each of which has a line.
    """
    number = _newest(checkpoint / "commits").name
    lines = _read(checkpoint / "offsets" / number).decode().splitlines()
    if len(lines) < 3 or lines[0] != "v1":
        raise ValueError(f"offsets/{number} is no offset log of version 1")
    if len(lines) > 3:
        raise ValueError(f"offsets/{number} has {len(lines) - 2} sources: which one is meant cannot be told")
    return msgspec.json.decode(lines[2])


def _spark_awslabs(checkpoint: Path) -> tuple[dict[str, PositionView], list[str]]:
    """Return the positions, and the stream's name. The offset is where the batch began; the committer's files say where
    it ended, shard by shard. A shard without such a file had no records in the batch, and stays where the batch began.
    """
    offset = _spark_offset(checkpoint)
    told = offset.pop("metadata")
    commits = checkpoint / "sources" / "0" / "shard-commit" / str(told["batchId"])
    found: dict[str, PositionView] = {}
    for shard_id, began in offset.items():
        path = commits / shard_id
        found[shard_id] = _spark_position(msgspec.json.decode(_read(path)) if path.is_file() else began)
    return found, [str(told["streamName"])]


def _spark_position(at: Mapping[str, Any]) -> PositionView:
    kind, number = str(at["iteratorType"]), str(at.get("iteratorPosition") or "")
    sub = int(at.get("subSequenceNumber", -1))
    if kind == "SHARD_END":
        return _END_VIEW
    if kind == "AFTER_SEQUENCE_NUMBER":
        return _position_after(number, "the last record of the newest committed batch", sub if sub >= 0 else None)
    if kind == "AT_SEQUENCE_NUMBER":
        return msgspec.structs.replace(_position_after(number, "the first record of the next batch"), at="at")
    if kind == "TRIM_HORIZON":
        return PositionView(at="trim_horizon", exact=True, why="nothing of the shard was read")
    if kind == "AT_TIMESTAMP" and number.isdigit():
        at_time = dt.datetime.fromtimestamp(int(number) / 1000, dt.UTC)
        return PositionView(at="timestamp", timestamp=at_time, exact=False, why="the query stored a time, no record")
    return PositionView(at="none", exact=False, why=f"the query stored {kind}, which names no record")


def _databricks(checkpoint: Path) -> tuple[dict[str, PositionView], list[str]]:
    """Return the positions, and the streams. An offset of this source is the batch's end, as Spark's contract says."""
    found: dict[str, PositionView] = {}
    streams: set[str] = set()
    for one in _spark_offset(checkpoint):
        shard = one["shard"]
        streams.add(str(shard["stream"]))
        number = one.get("lastSeqNum")
        # The position of a closed shard counts, too: the flag does not say whether all of the shard was read.
        found[str(shard["shardId"])] = (
            _position_after(str(number), "the last record of the newest committed batch")
            if number
            else PositionView(at="none", exact=False, why="the query read no record of the shard")
        )
    return found, sorted(streams)
