"""The values that go to a task of the sink and come back from it, and what the driver logs of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from shardway.spark.options.sink_options import NO_STAMPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.aws.options import ConnectionOptions
    from shardway.spark.options.sink_columns import SinkColumns
    from shardway.spark.options.sink_options import SinkOptions

logger = logging.getLogger("shardway.spark.sink")


class SinkTask(NamedTuple):
    """The options, columns and connection that a task of the sink gets."""

    options: SinkOptions
    columns: SinkColumns
    connection: ConnectionOptions


@dataclass(frozen=True)
class SinkCommit(WriterCommitMessage):
    """The message of a task about what it wrote."""

    rows: int
    records: int
    """The number of Kinesis records: an aggregate is one."""
    data_bytes: int
    """Bytes of the rows' data, envelopes included."""
    duplicates_possible: int
    """Portion that may be in the stream twice, as the outcome of an attempt was not known."""


def log_commit(task: SinkTask, messages: Sequence[Any], batch_id: int | None) -> None:
    """Log what all tasks have written."""
    done = [message for message in messages if isinstance(message, SinkCommit)]
    logger.info(
        "%s: %s%d rows of %d tasks written as %d records; %d of them may be there twice",
        task.options.stream,
        "" if batch_id is None else f"batch {batch_id}: ",
        sum(one.rows for one in done),
        len(done),
        sum(one.records for one in done),
        sum(one.duplicates_possible for one in done),
    )


def log_abort(task: SinkTask, messages: Sequence[Any], batch_id: int | None) -> None:
    """Log what stays in the stream of a write that not all tasks have finished."""
    done = [message for message in messages if isinstance(message, SinkCommit)]
    logger.warning(
        "%s: %swas not written whole. %d of its %d tasks had written %d rows, others perhaps some; they stay in the "
        "stream and are written again when it runs again%s",
        task.options.stream,
        "the write " if batch_id is None else f"batch {batch_id} ",
        len(done),
        len(messages),
        sum(one.rows for one in done),
        "" if task.options.stamps != NO_STAMPS else "; without stamps a reader cannot tell them apart",
    )
