"""Write one batch of a job for ``foreachBatch``: read it once, part it, transform it, and write it to every sink.

Where all good rows go to one folder as they are, the batch is written in one pass: its good rows are staged beside the
folder, what the write showed of the dead letters is written, and then the staged files are put in place. Else the batch
is kept while it is counted, and written to one place after the other. Either way dead letters come first.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from shardway.errors import ShardwayError
from shardway.pipeline.batches import read_once
from shardway.pipeline.decode import REASON, JsonFaults
from shardway.pipeline.job.batch import steps
from shardway.pipeline.job.batch.expectations import Expectations
from shardway.pipeline.job.batch.observations import BatchReports, partitions_of
from shardway.pipeline.job.batch.payloads import is_opened
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.errors.failures import (
    by_the_data,
    failed_before_writing,
    registry_failed,
    source_failed,
    state_cannot_be_read,
    state_cannot_be_stored,
)
from shardway.pipeline.job.file.decode_rules import JSON_FORMATS
from shardway.pipeline.job.file.faults import Fault
from shardway.pipeline.job.run.reports import SecondPass
from shardway.pipeline.job.session.state_store import told_not_stored, told_unread
from shardway.pipeline.job.sinks.targets import FolderTarget, FormatTarget, dead_letter_target, target_of
from shardway.pipeline.jvm import Selection
from shardway.pipeline.parquet_folder import FILES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.run.stopping import Stopping


class StoppedError(ShardwayError):
    """A batch was not begun, because the run is to end. The next start does it."""


class _NotToldError(ShardwayError):
    """The write did not bring all dead letters of its batch to the driver, or a row of it is to stop the job."""


KEPT_BATCHES = 16
"""The number of batches that are not written in one pass after one whose dead letters did not come with the write."""
ROWS_PER_FILE = 50_000
"""The number of rows for each partition of a batch from which on a folder gets a file of each; where partitions are few
it does so with fewer rows too.
"""


class Batches:
    """Writes the batches of one query, in turn. ``out`` is where the console sink shows rows."""

    def __init__(self, job_file: JobFile, stopping: Stopping, out: TextIO, *, counts: bool = False) -> None:
        """``counts``: what is written to streams is counted, for `written_of`."""
        self.file = job_file
        self._counts = counts
        self._written_counts: dict[int, dict[str, int]] = {}
        self._job = job_file.job
        self._stopping = stopping
        self.busy = False
        """True while a batch is written. Any thread may ask."""
        self._dead_letters: dict[int, int] = {}
        self._run_twice: dict[int, int] = {}
        """The number of rows of each batch that was run twice, by the batch's id."""
        self.expectations = Expectations(self._job.expect)
        self._reports = BatchReports(self.expectations)
        self._good_rows = Selection(lambda: steps.chosen(self._job), where=lambda: fn.col(REASON).isNull())
        self._good_columns: list[str] = []
        self._faults: JsonFaults | None = None
        self._kept_batches = 0
        """The number of the next batches that are kept and not written in one pass."""
        self._rows_before = 0
        """The rows of the batch that was written last in one pass."""
        self.failure: StepError | None = None
        """What went wrong, and in which step: Spark says only that a function failed."""
        self.refused = False
        """True once a batch was not begun because of the end."""
        self.targets = [target_of(sink, job_file.folder, out) for sink in self._job.sinks]
        self.dead_letters = None if self._job.dead_letters is None else dead_letter_target(self._job.dead_letters)

    def dead_letters_of(self, batch_id: int) -> int:
        """Return how many dead letters a batch had, and forget it: this is asked once, when the batch is committed."""
        return self._dead_letters.pop(batch_id, 0)

    def written_of(self, batch_id: int) -> dict[str, int]:
        """Return how many rows a batch has written, by the names of the streams among the sinks, and forget it: this is
        asked once, when the batch is committed.
        """
        written = dict.fromkeys(self.streams, 0) | self._written_counts.pop(batch_id, {})
        return written if self._counts else {}

    @property
    def streams(self) -> list[str]:
        """The names of the streams among the sinks."""
        return [target.stream for target in self.targets if isinstance(target, FormatTarget) and target.stream]

    def second_pass_of(self, batch_id: int) -> SecondPass | None:
        """Return what came of one run of a batch that was run twice, and forget it; None where it was run once."""
        rows = self._run_twice.pop(batch_id, None)
        if rows is None:
            return None
        stamps = self._job.stamps
        is_shuffled = self._job.deduplicate is not None or (stamps is not None and stamps.window is not None)
        return SecondPass(rows, is_shuffled)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch, as ``foreachBatch`` calls it. Raises StoppedError, or StepError that names the step."""
        if self._stopping.asked:
            self.refused = True
            raise StoppedError("the run is to end")
        self.busy = True
        try:
            self._write(batch, batch_id)
        except StepError as error:
            self.failure = error
            raise
        finally:
            self.busy = False

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        folder = self._one_folder()
        if not self._job.sets_apart and len(self.targets) == 1 and folder is None:
            # Nothing is set apart and there is one output: the stream is read once also without keeping the batch.
            self._write_good(batch, batch_id)
            return
        if folder is not None and not self._kept_batches:
            try:
                self._write_in_one_pass(batch, batch_id, folder)
            except _NotToldError:
                self._run_twice[batch_id] = 0
                self._kept_batches = KEPT_BATCHES + 1
            else:
                return
        with read_once(batch) as rows:
            with self._step("source", batch_id, ExitCode.FAILED):
                # This reads and decodes. What fails after it is not the stream.
                dead_rows = fn.count(fn.when(self.expectations.is_dead(), 1))
                counted = rows.agg(fn.count(fn.lit(1)), dead_rows, *self.expectations.counts()).first()
            assert counted is not None
            total, dead, *judged = counted
            dropped = self._check_rows(lambda: rows, batch_id, judged)
            self._dead_letters[batch_id] = dead
            if batch_id in self._run_twice:
                self._run_twice[batch_id] = total
            self._kept_batches = max(0, self._kept_batches - 1)
            self._write_dead(rows, batch_id, dead)
            if total > dead + dropped:
                self._write_good(rows, batch_id)
            else:
                self._write_nothing(rows, batch_id)

    def _check_rows(self, rows: Callable[[], DataFrame], batch_id: int, counted: list[int]) -> int:
        """Take what the expectations counted, and return how many rows were dropped. Raises StepError where a row is to
        stop the job; what ``rows`` returns is read then.
        """
        judged = self.expectations.taken(batch_id, counted)
        stops = self.expectations.stops(judged)
        if stops:
            with self._step("source", batch_id, ExitCode.FAILED):
                why = self.expectations.why_stopped(rows(), judged)
            fault = Fault(("expect", stops[0]), f"the job stops at batch {batch_id}: {why}")
            raise StepError(self.file.fault_text(fault), step=fault.place, code=ExitCode.EXPECTATION, batch_id=batch_id)
        return judged.dropped

    def _one_folder(self) -> FolderTarget | None:
        """Return the folder that all good rows go to as they are, where there is no other sink.

        A transform may ask for its rows twice, or for some of them only, and a sink's own query too.
        """
        if len(self.targets) != 1 or self._job.transform is not None:
            return None
        target = self.targets[0]
        return target if isinstance(target, FolderTarget) and not target.has_query else None

    def _write_in_one_pass(self, batch: DataFrame, batch_id: int, folder: FolderTarget) -> None:
        """Write a batch to one folder in one pass. Raises _NotToldError where another pass has to look for the dead
        letters; nothing is in place then.
        """
        partitions = partitions_of(batch)
        watched = self._reports.of(batch, partitions)
        with self._step("transform", batch_id, ExitCode.TRANSFORM):
            good = self._good_rows.of(watched.rows)
            self._good_columns = self._good_columns or good.columns
        few = partitions is not None and partitions <= max(FILES_MAX, self._rows_before // ROWS_PER_FILE)
        with ExitStack() as open_:
            with self._sink_step(0, batch_id, staging=True):
                staged = open_.enter_context(folder.staged(good, batch_id, as_divided=few, columns=self._good_columns))
            told = watched.told(once=staged.is_direct)
            if told is None or not (told.came or self.dead_letters is None):
                raise _NotToldError("the dead letters did not come with the write")
            judged = self.expectations.taken(batch_id, told.judged)
            if self.expectations.stops(judged):
                raise _NotToldError("a row is to stop the job")
            self._dead_letters[batch_id] = told.dead
            self._rows_before = told.rows
            self._write_letters(told.letters, batch, batch_id, told.dead)
            with self._sink_step(0, batch_id):
                if told.rows > told.dead + judged.dropped:
                    staged.put(first_is_empty=told.first_is_empty)
                else:
                    staged.put_nothing()

    def _write_letters(self, letters: DataFrame | None, batch: DataFrame, batch_id: int, dead: int) -> None:
        """Write the dead letters that came with a write."""
        if self.dead_letters is None:
            return
        with self._step("dead_letters", batch_id, ExitCode.SINK):
            if not dead or letters is None:
                self.dead_letters.write_nothing(batch, batch_id)
                return
            if is_opened(self._job.decode):
                letters = steps.explained(letters, self._job, self.file.folder)
            elif self._job.decode.format in JSON_FORMATS:
                if self._faults is None:
                    self._faults = JsonFaults(steps.schema_text(self._job, self.file.folder), self._reports.names)
                letters = self._faults.of(letters)
            few = letters.coalesce(1)
            if isinstance(self.dead_letters, FolderTarget):
                self.dead_letters.write_few(few, batch_id, self._reports.names)
            else:
                self.dead_letters.write(few, batch_id)

    def _write_dead(self, rows: DataFrame, batch_id: int, dead: int) -> None:
        if self.dead_letters is None:
            return
        with self._step("dead_letters", batch_id, ExitCode.SINK):
            letters = self.expectations.parted(rows)[1]
            if dead:
                self.dead_letters.write(steps.explained(letters, self._job, self.file.folder), batch_id)
            else:
                self.dead_letters.write_nothing(letters, batch_id)

    def _write_good(self, rows: DataFrame, batch_id: int) -> None:
        made = self._transform(rows, batch_id)
        if self._job.transform is None or len(self.targets) == 1:
            self._write_all(made, batch_id)
            return
        # A transform runs once, so that all sinks get the same rows also where it draws lots or asks the time.
        with read_once(made) as kept:
            self._write_all(kept, batch_id)

    def _write_all(self, rows: DataFrame, batch_id: int) -> None:
        for number, target in enumerate(self.targets):
            with self._sink_step(number, batch_id):
                if not (self._counts and isinstance(target, FormatTarget) and target.stream):
                    target.write(rows, batch_id)
                elif (count := target.write_counted(rows)) is not None:
                    of_batch = self._written_counts.setdefault(batch_id, {})
                    of_batch[target.stream] = of_batch.get(target.stream, 0) + count

    def _write_nothing(self, rows: DataFrame, batch_id: int) -> None:
        made = self._transform(rows, batch_id)
        for number, target in enumerate(self.targets):
            with self._sink_step(number, batch_id):
                target.write_nothing(made, batch_id)

    def _transform(self, rows: DataFrame, batch_id: int) -> DataFrame:
        with self._step("transform", batch_id, ExitCode.TRANSFORM):
            return steps.transformed(self.expectations.parted(rows)[0], self._job, self.file.folder)

    def _sink_step(self, number: int, batch_id: int, *, staging: bool = False) -> AbstractContextManager[None]:
        step = f"sinks[{number}] {self._job.sinks[number].label}"
        return self._step(step, batch_id, ExitCode.SINK, staging=staging)

    @contextmanager
    def _step(self, step: str, batch_id: int, code: ExitCode, *, staging: bool = False) -> Iterator[None]:
        """Raise what fails in the block as a StepError that names the step. ``staging``: the step reads, decodes and
        removes duplicates, too.
        """
        try:
            yield
        except Exception as error:
            what = self.file.error_text(error)
            if registry_failed(error):
                step, code = "decode", ExitCode.FAILED
            elif source_failed(error):
                step, code = "source", ExitCode.SOURCE
            elif state_cannot_be_read(error):
                step, code = "state", ExitCode.FAILED
                what = told_unread(self._job, what)
            elif state_cannot_be_stored(error):
                step, code = "state", ExitCode.FAILED
                what = told_not_stored(self._job, what)
            elif staging and failed_before_writing(error):
                step, code = "source", ExitCode.FAILED
            elif code is ExitCode.SINK and self._job.transform is not None and by_the_data(error):
                # Spark runs a transform when its rows are written.
                step, code = "transform", ExitCode.TRANSFORM
            raise StepError(
                f"{step} failed in batch {batch_id}: {what}", step=step, code=code, batch_id=batch_id
            ) from error
