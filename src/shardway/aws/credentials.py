"""Keep credentials fresh enough to sign with: they are loaded once for all callers, and never on the loop."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from shardway.errors import CredentialsError
from shardway.tasks import give_up, spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.aws.options import Credentials

    Load = Callable[[bool], Awaitable[Credentials]]

log = logging.getLogger("shardway.aws")

RENEW_BEFORE_S = 900.0
"""Seconds before their end at which credentials are renewed in the background (botocore's advisory time). For
short-lived ones `RENEW_SHARE` counts.
"""
RENEW_SHARE = 0.25
"""The last part of the time that credentials had when they were loaded, in which short-lived ones are renewed."""
WAIT_BEFORE_S = 60.0
"""Seconds before their end from which on nothing is signed with credentials: callers wait for the new ones."""
RENEW_INTERVAL_S = 60.0
"""The least time between two renewals in the background (a metadata service may repeat the old ones for a while)."""
WAIT_INTERVAL_S = 5.0
"""The least time between two renewals that callers wait for: while the old credentials are still good, and once calls
have worked and no others are to be had.
"""

TOLD_EVERY_S = 60.0
"""Seconds between two lines of the log that no credentials can be loaded."""


class CredentialCache:
    """Keeps what ``load`` returns and renews it in time.

    ``load(refresh)`` is a coroutine function; ``refresh`` asks it to pass over caches of its own. However many
    callers wait, it runs once at a time. Belongs to one event loop.

    Credentials that worked, and do no more, may be renewed where they come from: in a file, by a sign-on, by a service
    that was away. Errors of such credentials are ``retryable``. Errors of the first call are not: a program that starts
    without any credentials learns it at once.
    """

    def __init__(self, load: Load, *, renews: bool = True, now: Callable[[], float] = time.time) -> None:
        """``renews``: False where ``load`` never has others, as with credentials that the program itself has given."""
        self._load = load
        self._renews = renews
        self._now = now
        self.have_worked = False
        """True once a call that was signed with what was loaded was answered. Those that make the calls set it."""
        self._last_error: CredentialsError | None = None
        """The error of the last load; None where it went well."""
        self._replaced_s = self._told_s = -math.inf
        self._current: Credentials | None = None
        self._life_s = 0.0
        """Seconds that the current credentials had to live when they were loaded first."""
        self._tried_at_s = 0.0
        self._load_task: asyncio.Task[Credentials] | None = None

    async def current(self) -> Credentials:
        """Return the credentials to sign with now. Raises `CredentialsError` if there are none."""
        current = self._current
        if current is None:
            return await self._wait_for_load(refresh=False)
        if current.expires_at_s is None:
            return current
        now_s = self._now()
        left_s = current.expires_at_s - now_s
        last_share_s = self._life_s * RENEW_SHARE
        since_try_s = now_s - self._tried_at_s
        if left_s <= min(WAIT_BEFORE_S, last_share_s) and (left_s <= 0 or since_try_s >= WAIT_INTERVAL_S):
            return await self._wait_for_load(refresh=False)
        if left_s <= min(RENEW_BEFORE_S, last_share_s) and since_try_s >= RENEW_INTERVAL_S:
            self._begin_load(refresh=False)
        return current

    @property
    def may_renew(self) -> bool:
        """True where other credentials may come that work, as those before did."""
        return self.have_worked and self._renews

    async def replace(self, used: Credentials) -> Credentials:
        """Return credentials other than ``used``, which a service has refused; ``used`` if there are no others."""
        if self._current is not None and self._current != used:
            return self._current
        if self.may_renew and self._now() - self._replaced_s < WAIT_INTERVAL_S:
            return used
        if self._load_task is not None:
            loaded = await self._outcome(self._load_task)
            if loaded != used:
                return loaded
        self._replaced_s = self._now()
        return await self._wait_for_load(refresh=True)

    async def close(self) -> None:
        """Stop a renewal that is under way."""
        loading, self._load_task = self._load_task, None
        if loading is not None:
            await give_up(loading)

    async def _wait_for_load(self, *, refresh: bool) -> Credentials:
        failed = self._last_error
        if failed is None:
            return await self._outcome(self._begin_load(refresh=refresh))
        if self.have_worked and self._load_task is None and self._now() - self._tried_at_s < WAIT_INTERVAL_S:
            again = CredentialsError(*failed.args)  # else each reader of a shard would ask a thousand times a second
            again.retryable = failed.retryable
            raise again
        return await self._outcome(self._begin_load(refresh=True))

    async def _outcome(self, loading: asyncio.Task[Credentials]) -> Credentials:
        """Wait for a load. A caller that is cancelled does not cancel the load that others wait for."""
        await asyncio.wait((loading,))
        return loading.result()

    def _begin_load(self, *, refresh: bool) -> asyncio.Task[Credentials]:
        if self._load_task is None:
            self._load_task = spawn(self._store(refresh), self._not_loaded)
            self._load_task.add_done_callback(self._end_load)
        return self._load_task

    async def _store(self, refresh: bool) -> Credentials:
        self._tried_at_s = self._now()
        try:
            loaded = await self._load(refresh)
            life_s = math.inf if loaded.expires_at_s is None else loaded.expires_at_s - self._now()
            if life_s <= 0:
                raise CredentialsError(
                    "the AWS credentials that were loaded have expired already: renew them at their source"
                )
        except CredentialsError as error:
            error.retryable = self.have_worked and (self._renews or error.retryable)
            self._last_error = error
            raise
        self._last_error = None
        if loaded != self._current:
            self._current, self._life_s = loaded, life_s
        return loaded

    def _end_load(self, task: asyncio.Task[Credentials]) -> None:
        if self._load_task is task:
            self._load_task = None

    def _not_loaded(self, error: BaseException) -> None:
        """Log that a renewal failed; the next call begins a load in the background again. The first load is not logged:
        a caller waits for it, and says what the error says, which would stand twice in what a program writes.
        """
        if self._current is not None and self._now() - self._told_s >= TOLD_EVERY_S:
            self._told_s = self._now()
            log.warning("AWS credentials could not be loaded: %s", error)
