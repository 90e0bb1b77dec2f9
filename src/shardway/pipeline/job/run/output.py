"""Show a run: as lines of text, or as one line of JSON for each event."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from shardway import shown

if TYPE_CHECKING:
    from shardway.aws.kinesis.shapes import StreamSummary
    from shardway.pipeline.job.errors.exit_codes import ExitCode
    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.run.reports import BatchReport, StateReport, Totals
    from shardway.pipeline.job.sinks.delivery import Delivery


class RunOutput:
    """Writes what happens to ``out``, and what is wrong to ``errors``. ``lag``: the words for ``lag_s`` of a batch."""

    def __init__(
        self, *, as_json: bool, lag: str = "lag", out: TextIO | None = None, errors: TextIO | None = None
    ) -> None:
        self.as_json, self._lag = as_json, lag
        self._output = sys.stdout if out is None else out
        self._errors = sys.stderr if errors is None else errors

    @property
    def rows_out(self) -> TextIO:
        """The stream on which a console sink shows rows, which are not to stand between lines of JSON."""
        return self._errors if self.as_json else self._output

    def checked(self, job_file: JobFile, deliveries: list[Delivery], notes: list[str]) -> None:
        """Show that the job file is right, what its sinks promise, and what its reader may take for something else."""
        source = job_file.job.source
        stream = str(source.get("streamName") or source.get("streamARN"))
        sinks = [one.as_dict() for one in deliveries]
        self._event("checked", job=job_file.job.name, stream=stream, sinks=sinks, notes=notes)
        width = max(len(one.sink) for one in deliveries)
        lines = [f"{job_file.path}: job {job_file.job.name}, from stream {stream}"]
        for one in deliveries:
            lines.append(f"  {one.sink:{width}}  {one.how}: {one.why}")
            lines += [f"  {'':{width}}  note: {one.note}"] if one.note else []
        lines += [f"  note: {note}" for note in notes]
        self._text("\n".join(lines))

    def found(self, summary: StreamSummary) -> None:
        """Show what the service says of the stream that the job reads."""
        shards, hours = summary.open_shard_count, summary.retention_hours
        self._event("stream", arn=summary.stream_arn, status=summary.stream_status, shards=shards, hours=hours)
        self._text(f"{summary.stream_arn} is {summary.stream_status}: {shards:,} open shards, {hours:,} hours are kept")

    def began_anew(self, checkpoint: str, removed: list[str]) -> None:
        """Show that a former start was killed before it had written an offset, and that what it left is removed."""
        self._event("began_anew", checkpoint=checkpoint, removed=removed)
        self._text(f"a former start was killed before its first batch; removed from {checkpoint}: {', '.join(removed)}")

    def waits(self, checkpoint: str, owner: str, wait_s: float) -> None:
        """Show that another run had the checkpoint directory, and that this one looks whether it is gone."""
        self._event("waits", checkpoint=checkpoint, owner=owner, seconds_max=wait_s)
        self._text(f"{owner} has, or had, {checkpoint}: waiting for up to {wait_s:g} s to see whether it is gone")

    def unlocked(self, checkpoint: str, claim: str, why: str) -> None:
        """Show that nothing keeps a second run away from the checkpoint directory."""
        self._event("unlocked", checkpoint=checkpoint, claim=claim, why=why)
        self._text(f"a second run of {checkpoint} would not be refused: {claim} cannot be written: {why}")

    def started(self, name: str, query_id: str) -> None:
        """Show that the query runs."""
        self._event("started", job=name, query_id=query_id)
        self._text(f"job {name} runs (query {query_id})")

    def serves(self, host: str, port: int) -> None:
        """Show where Prometheus may ask for the numbers."""
        self._event("serves", host=host, port=port)
        self._text(f"serving /metrics on {host}, port {port}")

    def batch(self, report: BatchReport) -> None:
        """Show the report of a batch that is committed."""
        self._event("batch", **msgspec.to_builtins(report))
        lag = ", ".join(f"{self._lag} {seconds:,.1f} s" for seconds in report.lag_s.values())
        self._text(
            f"batch {report.batch}: {report.rows:,} records in {report.seconds:,.1f} s ({report.rows_per_s:,.0f}/s), "
            f"{lag}, {report.dead_letters:,} dead letters, {report.duplicates:,} duplicates, {report.late:,} late"
            + (f", {report.dropped:,} dropped" if report.dropped else "")
            + "".join(f", {one.not_met:,} not {name}" for name, one in report.expectations.items() if one.not_met)
            + (f", {report.aggregates_outside_range:,} aggregates outside" if report.aggregates_outside_range else "")
            + (f", {report.possible_losses:,} possible losses" if report.possible_losses else "")
            + (f", state {_state(report.state)}" if report.state is not None else "")
        )

    def stopping(self, why: str) -> None:
        """Show that a stop was asked for."""
        self._event("stopping", why=why)
        self._text(f"{why}: the batch is finished first; once more to leave it")

    def ended(self, name: str, how: str, code: ExitCode, totals: Totals, seconds: float) -> None:
        """Show the summary of the run."""
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
            ("duplicates", f"{totals.duplicates:,}"),
            ("late", f"{totals.late:,}"),
            *([("dropped", f"{totals.dropped:,}")] if totals.expectations else []),
            *((name, f"{one.met:,} met, {one.not_met:,} not met") for name, one in totals.expectations.items()),
            *(
                [("outside", f"{totals.aggregates_outside_range:,} aggregates")]
                if totals.aggregates_outside_range
                else []
            ),
            *([("losses", f"{totals.possible_losses:,} possible")] if totals.possible_losses else []),
            *([("state", _state(totals.state))] if totals.state is not None else []),
            *((f"{self._lag} of {stream}", f"{lag:,.1f} s") for stream, lag in totals.lag_s.items()),
        ):
            lines.append(f"  {label:<14} {value}")
        self._text("\n".join(lines))

    def wrong(self, faults: list[str], code: ExitCode, step: str = "job file") -> None:
        """Show what is wrong, a line for each fault."""
        for fault in faults:
            self._event("error", step=step, exit_code=int(code), message=fault)
            print(f"shardway: {shown.lines(fault)}", file=self._errors, flush=True)

    def _event(self, event: str, **values: Any) -> None:
        if self.as_json:
            print(shown.json_line({"event": event, **values}), file=self._output, flush=True)

    def _text(self, text: str) -> None:
        if not self.as_json:
            print(shown.lines(text), file=self._output, flush=True)


def _state(state: StateReport) -> str:
    rows, mib = f"{state.rows:,} rows", f"{state.bytes / 2**20:,.0f} MiB"
    return f"{rows} in {mib} of memory ({state.rows_per_s:,.0f}/s, commit {state.commit_s:,.1f} s)"
