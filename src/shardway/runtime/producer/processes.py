"""The producers of a process: what becomes of them after a fork, and at the end of the process."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardway.runtime.producer.session import ProducerSession

_sessions: weakref.WeakSet[ProducerSession[Any]] = weakref.WeakSet()


def watch(session: ProducerSession[Any]) -> None:
    """Have a session know of a fork, and of the end of the process."""
    _sessions.add(session)


def _after_fork() -> None:
    for session in list(_sessions):
        session.after_fork()


def _at_exit() -> None:
    for session in list(_sessions):
        session.warn_of_loss()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
