"""Producers that were not closed when their process ends, and those that a forked process inherits."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Inheritable(Protocol):
    """A part that runs in one process, and holds records that a fork or an exit would lose."""

    def after_fork(self) -> None:
        """Called in a process that was forked off: threads and loops did not come with it."""

    def warn_of_loss(self) -> None:
        """The process ends: say what is lost by that."""


_watched: weakref.WeakSet[Inheritable] = weakref.WeakSet()


def watch(one: Inheritable) -> None:
    """Tell it of the process's end, and of a fork."""
    _watched.add(one)


def _after_fork() -> None:
    for one in list(_watched):
        one.after_fork()


def _at_exit() -> None:
    for one in list(_watched):
        one.warn_of_loss()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
