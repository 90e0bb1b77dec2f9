"""One batch: read once, parted, transformed, and written to every sink. What ``foreachBatch`` calls."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from penstock.errors import PenstockError
from penstock.pipeline.batches import read_once
from penstock.pipeline.decode import REASON, split
from penstock.pipeline.job import steps
from penstock.pipeline.job.outcome import ExitCode, StepError, by_the_data, message_of, source_failed
from penstock.pipeline.job.writing import dead_letter_target, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from pyspark.sql import DataFrame

    from penstock.pipeline.job.files import JobFile
    from penstock.pipeline.job.stopping import Stopping


class StoppedError(PenstockError):
    """A batch was not begun, because the run is to end. The next start does it."""


class Batches:
    """Writes the batches of one query, in turn. ``out`` is where the console sink shows rows."""

    def __init__(self, job_file: JobFile, stopping: Stopping, out: TextIO) -> None:
        self._file = job_file
        self._job = job_file.job
        self._stopping = stopping
        self._busy = threading.Event()
        self._dead_letters: dict[int, int] = {}
        self.failure: StepError | None = None
        """What went wrong, in which step: Spark tells only that a function failed."""
        self.refused = False
        """True once a batch was not begun because of the end."""
        self.targets = [target_of(sink, job_file.folder, out) for sink in self._job.sinks]
        self.dead_letters = None if self._job.dead_letters is None else dead_letter_target(self._job.dead_letters)

    @property
    def busy(self) -> bool:
        """True while a batch is written."""
        return self._busy.is_set()

    def dead_letters_of(self, batch_id: int) -> int:
        """How many a batch had; told once, when the batch is committed."""
        return self._dead_letters.pop(batch_id, 0)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """For ``foreachBatch``. Raises StoppedError, or StepError that names the step."""
        if self._stopping.asked:
            self.refused = True
            raise StoppedError("the run is to end")
        self._busy.set()
        try:
            self._write(batch, batch_id)
        except StepError as error:
            self.failure = error
            raise
        finally:
            self._busy.clear()

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        if self._job.decode.format == "bytes" and len(self.targets) == 1:
            # Nothing is set apart and there is one output: the stream is read once also without keeping the batch.
            self._write_good(batch, batch_id)
            return
        with read_once(batch) as rows:
            with self._step("source", batch_id, ExitCode.FAILED):
                # This reads and decodes. What fails after it is not the stream.
                counted = rows.agg(fn.count(fn.lit(1)), fn.count(REASON)).first()
            assert counted is not None
            total, dead = counted
            self._dead_letters[batch_id] = dead
            self._write_dead(rows, batch_id, dead)
            if total > dead:
                self._write_good(rows, batch_id)
            else:
                self._write_nothing(rows, batch_id)

    def _write_dead(self, rows: DataFrame, batch_id: int, dead: int) -> None:
        if self.dead_letters is None:
            return
        with self._step("dead_letters", batch_id, ExitCode.SINK):
            letters = split(rows)[1]
            if dead:
                self.dead_letters.write(steps.explained(letters, self._job, self._file.folder), batch_id)
            else:
                self.dead_letters.write_nothing(letters, batch_id)

    def _write_good(self, rows: DataFrame, batch_id: int) -> None:
        made = self._transformed(rows, batch_id)
        if self._job.transform is None or len(self.targets) == 1:
            self._write_all(made, batch_id)
            return
        # A transform runs once, so that all sinks get the same rows also where it draws lots or asks the time.
        with read_once(made) as kept:
            self._write_all(kept, batch_id)

    def _write_all(self, rows: DataFrame, batch_id: int) -> None:
        for number, target in enumerate(self.targets):
            with self._sink_step(number, batch_id):
                target.write(rows, batch_id)

    def _write_nothing(self, rows: DataFrame, batch_id: int) -> None:
        made = self._transformed(rows, batch_id)
        for number, target in enumerate(self.targets):
            with self._sink_step(number, batch_id):
                target.write_nothing(made, batch_id)

    def _transformed(self, rows: DataFrame, batch_id: int) -> DataFrame:
        with self._step("transform", batch_id, ExitCode.TRANSFORM):
            return steps.transformed(split(rows)[0], self._job, self._file.folder)

    def _sink_step(self, number: int, batch_id: int) -> AbstractContextManager[None]:
        return self._step(f"sinks[{number}] {self._job.sinks[number].label}", batch_id, ExitCode.SINK)

    @contextmanager
    def _step(self, step: str, batch_id: int, code: ExitCode) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if source_failed(error):
                step, code = "source", ExitCode.SOURCE
            elif code is ExitCode.SINK and self._job.transform is not None and by_the_data(error):
                # Spark runs a transform when its rows are written.
                step, code = "transform", ExitCode.TRANSFORM
            what = self._file.secrets.hide(message_of(error))
            raise StepError(
                f"{step} failed in batch {batch_id}: {what}", step=step, code=code, batch_id=batch_id
            ) from error
