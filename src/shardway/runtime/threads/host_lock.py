"""The lock of a host: threads share it, and a process that was forked off cannot take it."""

from __future__ import annotations

import os
from _thread import RLock
from weakref import WeakSet


class HostLock(RLock):  # type: ignore[misc]
    """The lock of a host. In a process that was forked off it is never to be had: the loop that held it at the fork,
    and would let go of it, is not there. So each call that takes it raises RuntimeError there.

    (It may be derived from, though its types say that it is final. Methods in Python would double what it costs.)
    """


class _InheritedLock(HostLock):  # type: ignore[misc]
    """The lock of a host in a process that was forked off."""

    def _refuse(self, *_: object) -> bool:
        raise RuntimeError(
            f"this consumer, and what it delivered, belong to the process that made it, from which process "
            f"{os.getpid()} was forked: what is settled here does not count. Return the results to the first process "
            "and settle there, or make a consumer in this process"
        )

    __enter__ = acquire = _refuse  # type: ignore[assignment]


_locks: WeakSet[HostLock] = WeakSet()


def _after_fork() -> None:
    for lock in list(_locks):
        lock.__class__ = _InheritedLock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def new_lock() -> HostLock:
    """Return a lock that threads share, and forked processes do not."""
    lock = HostLock()
    _locks.add(lock)
    return lock
