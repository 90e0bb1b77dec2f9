"""Judge a job: whether it keeps up, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.inspect.jobs.views import JobState, JobVerdict
from shardway.inspect.lag.reports import OK_S, STALLED_S, STEADY, WINDOW_MIN_S
from shardway.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.inspect.jobs.views import JobLook, JobView


SILENT_S = 60.0
"""A job reports its numbers every ten seconds, also while it is idle: older numbers belong to a job that is gone."""


def judge_job(
    job: JobView, looks: Sequence[JobLook], now_s: float, *, ok_s: float = OK_S, stalled_s: float = STALLED_S
) -> JobVerdict:
    """Return the verdict on a job by its numbers now, and by earlier looks at the job, the oldest first."""
    if job.outcome is not None:
        return JobVerdict(JobState.FAILED if job.failed else JobState.ENDED, job.outcome)
    if job.source == "metrics" and job.told_at is not None and (age_s := now_s - job.told_at.timestamp()) > SILENT_S:
        return JobVerdict(JobState.STOPPED, f"it told its numbers {span_text(age_s)} ago")
    if job.planned_at is not None and (runs_s := now_s - job.planned_at.timestamp()) > stalled_s:
        return JobVerdict(
            JobState.STALLED, f"batch {job.planned} was begun {span_text(runs_s)} ago and is not committed"
        )
    if job.source != "metrics":  # files do not say whether the query runs
        return _by_batches(job, now_s, ok_s=ok_s, stalled_s=stalled_s)
    if job.lag_s is None:
        return JobVerdict(JobState.UNKNOWN, "it has read nothing yet")
    if job.lag_s <= ok_s:
        return JobVerdict(JobState.OK, f"{span_text(job.lag_s)} behind")
    window_s = looks[-1].at_s - looks[0].at_s if looks else 0.0
    if window_s < WINDOW_MIN_S:
        return JobVerdict(JobState.UNKNOWN, "one look does not tell whether it moves")
    if looks[0].batch == looks[-1].batch and window_s >= stalled_s:
        return JobVerdict(JobState.STALLED, f"no batch was committed for {span_text(window_s)} while records wait")
    return _trend([(one.at_s, one.lag_s) for one in looks if one.lag_s is not None], job.lag_s)


def _by_batches(job: JobView, now_s: float, *, ok_s: float, stalled_s: float) -> JobVerdict:
    last = job.recent[-1] if job.recent else None
    if last is None or last.lag_s is None:
        return JobVerdict(JobState.UNKNOWN, "no batch tells how far it is behind")
    if job.told_at is not None and (age_s := now_s - job.told_at.timestamp()) > stalled_s:
        why = f"batch {last.batch} was committed {span_text(age_s)} ago; nothing tells whether records wait since"
        return JobVerdict(JobState.UNKNOWN, why)
    if last.lag_s <= ok_s:
        return JobVerdict(JobState.OK, f"{span_text(last.lag_s)} behind when batch {last.batch} was committed")
    points = [(one.at.timestamp(), one.lag_s) for one in job.recent if one.at is not None and one.lag_s is not None]
    if len(points) < 2:
        return JobVerdict(JobState.UNKNOWN, f"{span_text(last.lag_s)} behind; one batch does not tell whether it moves")
    return _trend(points, last.lag_s)


def _trend(points: Sequence[tuple[float, float]], lag_s: float) -> JobVerdict:
    (begin_s, first), (end_s, last) = points[0], points[-1]
    slope = (last - first) / max(end_s - begin_s, 1.0)
    if abs(slope) < STEADY:
        return JobVerdict(JobState.STEADY, f"it stays {span_text(lag_s)} behind")
    if slope > 0:
        return JobVerdict(JobState.FALLING_BEHIND, f"the lag grows by {slope:.2f} s each second")
    return JobVerdict(JobState.CATCHING_UP, f"at this pace it is at the tip in {span_text(lag_s / -slope)}")
