"""Credentials are loaded once for all, in time, and never while a caller could go on with those it has."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from shardway.aws.credentials import RENEW_BEFORE_S, RENEW_INTERVAL_S, WAIT_BEFORE_S, WAIT_INTERVAL_S, CredentialCache
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.errors import CredentialsError, OptionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOUR_S = 3600.0


class Provider:
    """Delivers numbered credentials that live for ``life_s``; each load waits until the test lets it go on."""

    def __init__(self, life_s: float | None = HOUR_S) -> None:
        self.now_s = 1_000_000.0
        self.life_s = life_s
        self.loads: list[bool] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.frozen: Credentials | None = None

    def now(self) -> float:
        return self.now_s

    async def load(self, refresh: bool) -> Credentials:
        self.loads.append(refresh)
        number = len(self.loads)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.frozen is not None:
            return self.frozen
        expires_at_s = None if self.life_s is None else self.now_s + self.life_s
        return Credentials(f"key-{number}", "secret", None, expires_at_s)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
async def cache(provider: Provider) -> AsyncIterator[CredentialCache]:
    made = CredentialCache(provider.load, now=provider.now)
    yield made
    await made.close()


async def settle() -> None:
    """Let tasks that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_hundred_callers_cause_one_load(provider: Provider, cache: CredentialCache) -> None:
    provider.gate.clear()
    calls = [asyncio.create_task(cache.current()) for _ in range(100)]
    await settle()
    provider.gate.set()
    found = await asyncio.gather(*calls)
    assert {one.access_key_id for one in found} == {"key-1"}
    assert provider.loads == [False]


async def test_credentials_that_do_not_expire_are_loaded_once(provider: Provider, cache: CredentialCache) -> None:
    provider.life_s = None
    await cache.current()
    provider.now_s += 10 * 365 * 24 * HOUR_S
    assert (await cache.current()).access_key_id == "key-1"
    assert provider.loads == [False]


async def test_they_are_renewed_before_they_end_and_no_call_waits(provider: Provider, cache: CredentialCache) -> None:
    await cache.current()
    provider.now_s += HOUR_S - RENEW_BEFORE_S - 1
    await cache.current()
    assert provider.loads == [False]
    provider.gate.clear()
    provider.now_s += 2
    for _ in range(50):
        assert (await cache.current()).access_key_id == "key-1"
    await settle()
    assert provider.loads == [False, False]
    provider.gate.set()
    await settle()
    assert (await cache.current()).access_key_id == "key-2"


async def test_nothing_is_signed_with_the_last_minute(provider: Provider, cache: CredentialCache) -> None:
    await cache.current()
    provider.now_s += HOUR_S - WAIT_BEFORE_S + 1
    provider.gate.clear()
    calls = [asyncio.create_task(cache.current()) for _ in range(10)]
    await settle()
    assert not any(one.done() for one in calls)
    provider.gate.set()
    assert {one.access_key_id for one in await asyncio.gather(*calls)} == {"key-2"}


async def test_short_lived_ones_are_not_renewed_all_the_time(provider: Provider, cache: CredentialCache) -> None:
    """Of 15 minutes, the last quarter is for renewing."""
    provider.life_s = 900.0
    await cache.current()
    provider.now_s += 600
    await cache.current()
    await settle()
    assert provider.loads == [False]
    provider.now_s += 100
    await cache.current()
    await settle()
    assert provider.loads == [False, False]


async def test_a_source_that_repeats_itself_is_not_asked_all_the_time(
    provider: Provider, cache: CredentialCache
) -> None:
    """A metadata service delivers the old ones until shortly before their end."""
    provider.frozen = Credentials("same", "secret", None, provider.now_s + HOUR_S)
    await cache.current()
    provider.now_s += HOUR_S - RENEW_BEFORE_S + 1
    for _ in range(20):
        await cache.current()
        await settle()
    assert len(provider.loads) == 2
    provider.now_s += RENEW_INTERVAL_S
    await cache.current()
    await settle()
    assert len(provider.loads) == 3


async def test_in_the_last_minute_such_a_source_is_asked_every_few_seconds(
    provider: Provider, cache: CredentialCache
) -> None:
    provider.frozen = Credentials("same", "secret", None, provider.now_s + HOUR_S)
    await cache.current()
    provider.now_s += HOUR_S - WAIT_BEFORE_S + 1
    for _ in range(20):
        await cache.current()
    assert len(provider.loads) == 2
    provider.now_s += WAIT_INTERVAL_S
    await cache.current()
    assert len(provider.loads) == 3
    provider.now_s += WAIT_BEFORE_S
    with pytest.raises(CredentialsError, match="expired already"):
        await cache.current()


async def test_a_failed_renewal_is_tried_again_while_the_old_ones_serve(
    provider: Provider, cache: CredentialCache, caplog: pytest.LogCaptureFixture
) -> None:
    await cache.current()
    provider.now_s += HOUR_S - RENEW_BEFORE_S + 1
    provider.failure = CredentialsError("the metadata service is away")
    with caplog.at_level(logging.WARNING, "shardway.aws"):
        for _ in range(10):
            assert (await cache.current()).access_key_id == "key-1"
            await settle()
    assert len(provider.loads) == 2
    assert "the metadata service is away" in caplog.text
    provider.failure = None
    provider.now_s += RENEW_INTERVAL_S
    await cache.current()
    await settle()
    assert (await cache.current()).access_key_id == "key-3"


async def test_a_failed_load_is_everybodys_error_and_the_next_call_tries_again(
    provider: Provider, cache: CredentialCache, caplog: pytest.LogCaptureFixture
) -> None:
    provider.failure = CredentialsError("nothing found")
    with caplog.at_level(logging.WARNING, "shardway.aws"):
        results = await asyncio.gather(*[cache.current() for _ in range(5)], return_exceptions=True)
        await settle()
    assert caplog.text == "", "what the callers' errors say is not said a second time by the log"
    assert all(isinstance(result, CredentialsError) for result in results)
    assert len(provider.loads) == 1
    provider.failure = None
    assert (await cache.current()).access_key_id == "key-2"


async def test_credentials_that_have_ended_already_are_of_no_use(provider: Provider, cache: CredentialCache) -> None:
    provider.life_s = -5.0
    with pytest.raises(CredentialsError, match="expired already"):
        await cache.current()


async def test_a_cancelled_caller_does_not_cancel_the_load(provider: Provider, cache: CredentialCache) -> None:
    provider.gate.clear()
    first, second = asyncio.create_task(cache.current()), asyncio.create_task(cache.current())
    await settle()
    first.cancel()
    await settle()
    provider.gate.set()
    assert (await second).access_key_id == "key-1"
    assert provider.loads == [False]


async def test_refused_credentials_are_replaced_once_for_all(provider: Provider, cache: CredentialCache) -> None:
    used = await cache.current()
    replaced = await asyncio.gather(*[cache.replace(used) for _ in range(20)])
    assert {one.access_key_id for one in replaced} == {"key-2"}
    assert provider.loads == [False, True]
    assert await cache.replace(used) == replaced[0]
    assert provider.loads == [False, True]


async def test_replacing_does_not_trust_a_renewal_that_brings_the_same(
    provider: Provider, cache: CredentialCache
) -> None:
    used = await cache.current()
    provider.frozen = used
    provider.gate.clear()
    provider.now_s += HOUR_S - RENEW_BEFORE_S + 1
    await cache.current()
    await settle()
    replacing = asyncio.create_task(cache.replace(used))
    await settle()
    provider.gate.set()
    assert await replacing == used
    assert provider.loads == [False, False, True]


async def test_closing_stops_a_load(provider: Provider, cache: CredentialCache) -> None:
    provider.gate.clear()
    waiting = asyncio.create_task(cache.current())
    await settle()
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_secrets_are_not_shown() -> None:
    secret = Credentials("AKID", "very-secret", "hidden-token")
    settings = ConnectionOptions(
        credentials=secret, role_arn="arn:aws:iam::123456789012:role/r", role_external_id="shared"
    )
    for shown in (repr(secret), repr(settings), f"{settings}"):
        assert "AKID" in shown
        assert not any(text in shown for text in ("very-secret", "hidden-token", "shared"))


def test_all_faults_of_settings_are_listed() -> None:
    with pytest.raises(OptionError) as caught:
        ConnectionOptions(
            endpoint_url="localhost:4567", connections_max=0, read_timeout_s=-1, role_external_id="x", use_fips=True
        )
    assert len(caught.value.faults) == 5


async def test_a_load_that_fails_once_calls_have_worked_may_be_repeated_but_not_for_each_call(
    provider: Provider, cache: CredentialCache
) -> None:
    await cache.current()
    cache.have_worked = True
    provider.failure = CredentialsError("the file has gone")
    provider.now_s += 2 * HOUR_S
    for _ in range(3):
        with pytest.raises(CredentialsError, match="the file has gone") as failed:
            await cache.current()
        assert failed.value.retryable
    assert provider.loads == [False, False]
    provider.now_s += WAIT_INTERVAL_S
    provider.failure = None
    assert (await cache.current()).access_key_id == "key-3"
    assert provider.loads == [False, False, True], "what was cached beneath is passed over"


async def test_a_load_that_fails_before_a_call_has_worked_is_final_and_tried_at_once(
    provider: Provider, cache: CredentialCache
) -> None:
    provider.failure = CredentialsError("none")
    for _ in range(2):
        with pytest.raises(CredentialsError) as failed:
            await cache.current()
        assert not failed.value.retryable
    assert len(provider.loads) == 2
