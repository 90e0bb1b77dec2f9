"""What a run shows: lines for people, or one line of JSON for each event."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from penstock import shown

if TYPE_CHECKING:
    from penstock.pipeline.job.account import BatchReport, StateReport, Totals
    from penstock.pipeline.job.delivery import Delivery
    from penstock.pipeline.job.files import JobFile
    from penstock.pipeline.job.outcome import ExitCode


class Show:
    """Writes to ``out`` what happens, and to ``errors`` what is wrong."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None, errors: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = sys.stdout if out is None else out
        self._errors = sys.stderr if errors is None else errors

    @property
    def rows_out(self) -> TextIO:
        """Where a console sink shows rows: not between lines of JSON."""
        return self._errors if self.as_json else self._out

    def checked(self, job_file: JobFile, deliveries: list[Delivery]) -> None:
        """The file is right; what its sinks promise."""
        source = job_file.job.source
        stream = str(source.get("streamName") or source.get("streamARN"))
        self._event("checked", job=job_file.job.name, stream=stream, sinks=[one.as_dict() for one in deliveries])
        width = max(len(one.sink) for one in deliveries)
        lines = [f"{job_file.path}: job {job_file.job.name}, from stream {stream}"]
        for one in deliveries:
            lines.append(f"  {one.sink:{width}}  {one.how}: {one.why}")
            lines += [f"  {'':{width}}  note: {one.note}"] if one.note else []
        self._text("\n".join(lines))

    def began_anew(self, checkpoint: str, removed: list[str]) -> None:
        """A former start was killed before it had written an offset, and what it left is removed."""
        self._event("began_anew", checkpoint=checkpoint, removed=removed)
        self._text(f"a former start was killed before its first batch; removed from {checkpoint}: {', '.join(removed)}")

    def started(self, name: str, query_id: str) -> None:
        """The query runs."""
        self._event("started", job=name, query_id=query_id)
        self._text(f"job {name} runs (query {query_id})")

    def batch(self, report: BatchReport) -> None:
        """A batch is committed."""
        self._event("batch", **msgspec.to_builtins(report))
        lag = ", ".join(f"{seconds:,.1f} s" for seconds in report.lag_s.values())
        self._text(
            f"batch {report.batch}: {report.rows:,} records in {report.seconds:,.1f} s ({report.rows_per_s:,.0f}/s), "
            f"lag {lag}, {report.dead_letters:,} dead letters, {report.repeats:,} repeats, {report.late:,} late"
            + (f", {report.aggregates_outside:,} aggregates outside" if report.aggregates_outside else "")
            + (f", {report.possible_losses:,} possible losses" if report.possible_losses else "")
            + (f", state {_state(report.state)}" if report.state is not None else "")
        )

    def stopping(self, why: str) -> None:
        """A stop was asked for."""
        self._event("stopping", why=why)
        self._text(f"{why}: the batch is finished first; once more to leave it")

    def ended(self, name: str, how: str, code: ExitCode, totals: Totals, seconds: float) -> None:
        """The summary."""
        speed = totals.rows / totals.seconds_busy if totals.seconds_busy else 0.0
        numbers: dict[str, Any] = msgspec.to_builtins(totals)
        self._event(
            "summary", job=name, outcome=how, exit_code=int(code), seconds=round(seconds, 1),
            rows_per_s=round(speed, 1), **numbers,
        )  # fmt: skip
        lines = [f"job {name}: {how} after {seconds:,.1f} s"]
        for label, value in (
            ("batches", f"{totals.batches:,}"),
            ("records", f"{totals.rows:,} ({speed:,.0f}/s while a batch ran)"),
            ("dead letters", f"{totals.dead_letters:,}"),
            ("repeats", f"{totals.repeats:,}"),
            ("late", f"{totals.late:,}"),
            *([("outside", f"{totals.aggregates_outside:,} aggregates")] if totals.aggregates_outside else []),
            *([("losses", f"{totals.possible_losses:,} possible")] if totals.possible_losses else []),
            *([("state", _state(totals.state))] if totals.state is not None else []),
            *((f"lag of {stream}", f"{lag:,.1f} s") for stream, lag in totals.lag_s.items()),
        ):
            lines.append(f"  {label:<14} {value}")
        self._text("\n".join(lines))

    def wrong(self, faults: list[str], code: ExitCode, step: str = "job file") -> None:
        """What is wrong, a line for each fault."""
        for fault in faults:
            self._event("error", step=step, exit_code=int(code), message=fault)
            print(f"penstock: {shown.lines(fault)}", file=self._errors, flush=True)

    def _event(self, event: str, **values: Any) -> None:
        if self.as_json:
            print(shown.json_line({"event": event, **values}), file=self._out, flush=True)

    def _text(self, text: str) -> None:
        if not self.as_json:
            print(shown.lines(text), file=self._out, flush=True)


def _state(state: StateReport) -> str:
    rows, mib = f"{state.rows:,} rows", f"{state.bytes / 2**20:,.0f} MiB"
    return f"{rows} in {mib} of memory ({state.rows_per_s:,.0f}/s, commit {state.commit_s:,.1f} s)"
