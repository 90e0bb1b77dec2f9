"""The embedded service's life: also where a signal handler raises, as Python's own does for Ctrl-C."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from shardway.local.embedded import LocalKinesis
from tests.interrupting import ROOT, TASKS, THREADS, InterruptedAt

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN = (f"{ROOT}/local/embedded.py", *TASKS, *THREADS)


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        pass
    except RuntimeError as error:  # Python's own Condition, broken off with its lock released
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise


def test_a_call_that_is_interrupted_at_any_moment_leaves_the_service_as_it_was() -> None:
    at, reached = 0, "-"
    with LocalKinesis(streams={"orders": 1}) as local:
        while reached:
            interruption = InterruptedAt(at, KeyboardInterrupt, within=WITHIN)
            with interrupted():
                interruption.run(local.stats)
            reached = interruption.reached
            assert local.stats().operations == {}
            at += 1
    assert at > 10


def test_a_start_that_is_interrupted_at_any_moment_leaves_nothing_behind() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    at, reached = 0, "-"
    while reached:
        local = LocalKinesis(streams={"orders": 1}, port=port)
        interruption = InterruptedAt(at, KeyboardInterrupt, within=WITHIN)
        with interrupted():
            interruption.run(local.start)
        reached = interruption.reached
        local.stop()
        with local:  # the port is free
            assert local.stats().operations == {}
        at += 1
    assert at > 20


def test_a_stop_that_is_interrupted_at_any_moment_can_be_done_again() -> None:
    at, reached = 0, "-"
    while reached:
        local = LocalKinesis(streams={"orders": 1}).start()
        interruption = InterruptedAt(at, KeyboardInterrupt, within=WITHIN)
        with interrupted():
            interruption.run(local.stop)
        reached = interruption.reached
        local.stop()
        with pytest.raises(RuntimeError, match="not running"):
            local.stats()
        at += 1
    assert at > 10
