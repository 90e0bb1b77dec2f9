"""Credentials from the program, which is asked each time: a function, or a session of boto3 or botocore."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from shardway.aws.options import Credentials
from shardway.aws.sdk import credentials_of_session
from shardway.core.ledger.ledger_events import raised_at
from shardway.core.options.hints import shown
from shardway.errors import CredentialsError, ShardwayError
from shardway.tasks import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.aws.options import ConnectionOptions, SdkSession


class ProgramCredentials:
    """Asks the program for credentials. A `CredentialCache` takes its `load`.

    The function is called in a thread of its own, because it may block; what it returns is awaited on the loop, where
    that can be. One call runs at a time: a function that hangs has one thread, however often it is asked.
    """

    def __init__(self, source: Callable[[], Any] | SdkSession, wait_s: float) -> None:
        """``wait_s``: how long a load waits for the program."""
        self._source = source
        self._wait_s = wait_s
        self._answer: asyncio.Future[tuple[Any, BaseException | None]] | None = None

    @property
    def _is_session(self) -> bool:
        return hasattr(self._source, "get_credentials")

    @property
    def _name(self) -> str:
        if self._is_session:
            return "the session that gives the AWS credentials"
        name = getattr(self._source, "__qualname__", type(self._source).__name__)
        return f"the function that gives the AWS credentials ({name})"

    async def load(self, refresh: bool) -> Credentials:  # noqa: ARG002 - each call asks again
        """Ask the program. Each call asks again, whatever ``refresh`` is. Raises CredentialsError."""
        if self._answer is None:
            self._answer = self._ask()
        await asyncio.wait((self._answer,), timeout=self._wait_s)
        if not self._answer.done():
            raise self._timeout_error()
        answer, self._answer = self._answer, None
        given, error = answer.result()
        if error is not None:
            raise self._failure(error) from error
        return self._check(await self._wait(given) if inspect.isawaitable(given) else given)

    def _ask(self) -> asyncio.Future[tuple[Any, BaseException | None]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def ask() -> None:
            try:
                told: tuple[Any, BaseException | None] = (self._call_source(), None)
            except BaseException as error:  # An exit of the function is no exit of the program: it is told as well.
                told = (None, error)
            with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile.
                loop.call_soon_threadsafe(_set_answer, answer, told)

        thread(ask, "shardway-credentials", _ignore)
        return answer

    def _call_source(self) -> Any:
        source: Any = self._source
        return credentials_of_session(source) if self._is_session else source()

    async def _wait(self, given: Any) -> Any:
        try:
            async with asyncio.timeout(self._wait_s) as limit:
                return await given
        except Exception as error:
            raise (self._timeout_error() if limit.expired() else self._failure(error)) from error

    def _timeout_error(self) -> CredentialsError:
        return CredentialsError(
            f"{self._name} returned nothing for {self._wait_s:g} s: see what it waits for, or give it more time by "
            "request_timeout_s"
        )

    def _failure(self, error: BaseException) -> CredentialsError:
        if isinstance(error, ShardwayError):  # Its text is ours, and holds no secret.
            return CredentialsError(str(error) if self._is_session else f"{self._name} failed: {error}")
        # The message of any other error is left out: it may hold the secret.
        return CredentialsError(f"{self._name} raised {type(error).__name__}, at {raised_at(error)}")

    def _check(self, given: object) -> Credentials:
        if isinstance(given, Credentials):
            return given
        raise CredentialsError(
            f"{self._name} returned {shown(given)}: let it return Credentials(access_key_id, secret_access_key, "
            "session_token, expires_at_s)"
        )


def _ignore(error: BaseException) -> None:
    """Ignore what the thread hears: an error of the program is its answer."""


def _set_answer(
    answer: asyncio.Future[tuple[Any, BaseException | None]], told: tuple[Any, BaseException | None]
) -> None:
    if not answer.done():
        answer.set_result(told)


def asked_of_the_program(options: ConnectionOptions) -> ProgramCredentials | None:
    """Return what asks the program for credentials; None where it gave fixed ones, or none."""
    source = options.credentials
    if source is None or isinstance(source, Credentials):
        return None
    return ProgramCredentials(source, options.request_timeout_s)
