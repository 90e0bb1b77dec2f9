"""Write one batch of a job with windows: the windows that it closes go to every sink, and its dead letters to theirs.

The batch that Spark hands over has the windows that are closed, and none of the records that came. One action computes
them, and with them the state. The dead letters are counted meanwhile, and what the expectations say. Where there are
dead letters, the batch is read once more, as far as they are found, and they are written before the sinks are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardway.pipeline.batches import read_once
from shardway.pipeline.job.batch import steps
from shardway.pipeline.job.batch.batches import Batches
from shardway.pipeline.job.batch.windows import InputOfWindows, with_window_time
from shardway.pipeline.job.errors.exit_codes import ExitCode
from shardway.pipeline.job.errors.failures import by_the_data
from shardway.pipeline.job.run.reports import SecondPass
from shardway.pipeline.job.run.window_note import note_windows

if TYPE_CHECKING:
    from typing import TextIO

    from pyspark.sql import DataFrame

    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.run.stopping import Stopping


class WindowBatches(Batches):
    """Writes the closed windows of one query, batch by batch."""

    def __init__(self, job_file: JobFile, stopping: Stopping, out: TextIO, *, counts: bool = False) -> None:
        super().__init__(replace(job_file, job=with_window_time(job_file.job)), stopping, out, counts=counts)

    def second_pass_of(self, batch_id: int) -> SecondPass | None:
        """Return what came of one run of a batch whose dead letters were looked for, and forget it; None where there
        were none. The state was computed once.
        """
        rows = self._run_twice.pop(batch_id, None)
        return None if rows is None else SecondPass(rows, is_shuffled=False, state_runs=1)

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            with self._step("checkpoint", batch_id, ExitCode.FAILED):
                note_windows(batch.sparkSession, self._job)
        with read_once(batch) as windows:
            try:
                closed = windows.count()
            except Exception as error:
                of_data = by_the_data(error)
                code = ExitCode.TRANSFORM if of_data else ExitCode.FAILED
                with self._step("window" if of_data else "source", batch_id, code):
                    raise
            if self._job.sets_apart:
                self._write_letters_of(batch, windows, batch_id)
            if closed:
                self._write_good(windows, batch_id)
            else:
                self._write_nothing(windows, batch_id)

    def _write_letters_of(self, batch: DataFrame, windows: DataFrame, batch_id: int) -> None:
        with self._step("source", batch_id, ExitCode.FAILED):
            before = InputOfWindows(batch, self.expectations)
            counted = before.counted()
        self._check_rows(before.rows, batch_id, counted.judged)
        self._dead_letters[batch_id] = counted.dead
        target = self.dead_letters
        if target is None:
            return
        if not counted.dead:
            with self._step("dead_letters", batch_id, ExitCode.SINK):
                target.write_nothing(windows, batch_id)
            return
        self._run_twice[batch_id] = counted.rows
        with read_once(before.dead_letters()) as letters:
            with self._step("source", batch_id, ExitCode.FAILED):
                self._dead_letters[batch_id] = letters.count()
            with self._step("dead_letters", batch_id, ExitCode.SINK):
                target.write(steps.explained(letters, self._job, self.file.folder), batch_id)

    def _transform(self, rows: DataFrame, batch_id: int) -> DataFrame:
        if self._job.transform is None:
            return rows
        with self._step("transform", batch_id, ExitCode.TRANSFORM):
            return steps.transformed(rows, self._job, self.file.folder)
