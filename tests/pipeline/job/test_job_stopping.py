"""Signals that ask a job to end."""

from __future__ import annotations

import signal
import threading

from shardway.pipeline.job.run.stopping import Stopping
from tests.interrupting import ROOT, THREADS, InterruptedAt

WAIT_S = 20.0


def test_the_first_asks_for_a_stop_and_the_second_for_one_at_once() -> None:
    stopping = Stopping()
    assert (stopping.asked, stopping.at_once) == (False, False)
    stopping.ask()
    assert (stopping.asked, stopping.at_once) == (True, False)
    stopping.ask()
    assert (stopping.asked, stopping.at_once) == (True, True)


def test_a_signal_that_comes_while_another_one_is_heard() -> None:
    """Python runs its handler in the middle of the first one's, which goes on afterwards."""
    at = 0
    while True:
        stopping = Stopping()
        moment = InterruptedAt(at, within=(f"{ROOT}/pipeline/job/run/stopping.py", *THREADS))
        moment.calls = lambda heard=stopping: heard._on_signal(signal.SIGINT, None)

        def hear(heard: Stopping = stopping, moment: InterruptedAt = moment) -> None:
            moment.run(lambda: heard._on_signal(signal.SIGTERM, None))

        thread = threading.Thread(target=hear, daemon=True)
        thread.start()
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"it waits for itself, from {moment.reached}"
        if not moment.reached:
            break
        assert stopping.asked
        assert stopping.at_once, f"one of two was forgotten, at {moment.reached}"
        at += 1
    assert at > 3
