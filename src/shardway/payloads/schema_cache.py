"""Keep the schemas that records name, each fetched once from a registry: it may be away, and it may lie.

A registry's answer comes late or never, so each fetch has a thread of its own. An event loop has more to do meanwhile:
on a thread whose event loop runs, the caller hears that the schema is on its way. Another caller waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from shardway import tasks
from shardway.errors import RegistryError, ServiceError, ShardwayError
from shardway.payloads.confluent import UnknownSchemaError, checked_url, text_at
from shardway.payloads.registry_schemas import Answer, Schema, confluent_answer, glue_answer, schema_of
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.aws.options import ConnectionOptions

log = logging.getLogger("shardway.payloads")

SCHEMAS_MAX = 500
"""The schemas that are kept at a time; the least recently used one is dropped first."""
UNKNOWN_AGAIN_S = 30.0
"""A schema that the registry did not have is asked for again after this time."""
AWAY_AGAIN_S = 1.0
"""A registry that gave no schema is asked again after this time."""
FETCHES_MAX = 4
"""The schemas that are fetched at the same time."""
FETCH_MAX_S = 30.0
"""The time that one fetch may take, with all its repetitions."""


class SchemaCache:
    """The schemas of one registry, for any number of threads. ``ask`` fetches one, and blocks meanwhile."""

    def __init__(
        self,
        registry: str,
        ask: Callable[[str], Answer],
        *,
        now: Callable[[], float] = time.monotonic,
        schemas_max: int = SCHEMAS_MAX,
    ) -> None:
        self._registry = registry
        self._ask = ask
        self._now = now
        self._schemas_max = schemas_max
        self._turn = threading.Condition()
        """It is notified when a fetch has ended."""
        self._schemas: OrderedDict[str, Schema] = OrderedDict()
        self._absence: tuple[float, str] | None = None
        """When the registry is asked again that has failed, and why it has."""
        self._fetches: dict[str, float] = {}
        """When the fetch of an id began, in seconds of the clock that nothing sets."""

    def of(self, identity: str) -> Schema:
        """Return the schema of an id, or why there is none. Raises RegistryError where the registry gives none now,
        and where it is on its way (``pending``): ask again.
        """
        with self._turn:
            found = self._find(identity)
            if found is None:
                self._begin(identity)
                if _on_event_loop():
                    raise self._waiting_error(identity)
                # It is fetched on another thread here, too: no timeout of a socket ends an answer that trickles.
                self._turn.wait_for(lambda: identity not in self._fetches, FETCH_MAX_S)
                found = self._find(identity)
            if found is None:
                raise self._note_failure(f"it gives no answer within {FETCH_MAX_S:g} s")
            return found

    def _find(self, identity: str) -> Schema | None:
        """Return what is known of an id; None: it is to be fetched. Raises RegistryError while the registry is left
        alone.
        """
        known = self._schemas.get(identity)
        if known is not None and known.again_s > self._now():
            self._schemas.move_to_end(identity)
            return known
        if self._absence is not None and self._absence[0] > self._now():
            raise RegistryError(self._absence[1])
        return None

    def _begin(self, identity: str) -> None:
        if identity not in self._fetches and len(self._fetches) < FETCHES_MAX:
            # Where no thread can be started, nothing is under way. One that ends at once waits for this turn to end.
            tasks.thread(partial(self._fetch, identity), "shardway-schema", partial(self._end_failed_fetch, identity))
            self._fetches[identity] = time.monotonic()

    def _waiting_error(self, identity: str) -> RegistryError:
        """Return the error for a caller that does not wait: the fetch is under way, or takes too long."""
        began_s = self._fetches.get(identity, min(self._fetches.values()))
        if time.monotonic() - began_s > FETCH_MAX_S:
            return self._note_failure(f"it gives no answer within {FETCH_MAX_S:g} s")
        return RegistryError(f"{self._registry}: a schema is being fetched: ask again", pending=True)

    def _fetch(self, identity: str) -> None:
        try:
            self._fetch_once(identity)
        finally:
            self._end_fetch(identity)

    def _end_failed_fetch(self, identity: str, error: BaseException) -> None:
        with self._turn:
            self._note_failure(f"the fetch ended with {type(error).__name__}")
        self._end_fetch(identity)

    def _end_fetch(self, identity: str) -> None:
        with self._turn:
            self._fetches.pop(identity, None)
            self._turn.notify_all()

    def _fetch_once(self, identity: str) -> None:
        """Ask the registry, and keep its answer, or that it has failed."""
        try:
            found = schema_of(identity, self._ask(identity))
        except UnknownSchemaError:
            why = f"the registry {self._registry} has no schema {identity}"
            found = Schema(why=why, again_s=self._now() + UNKNOWN_AGAIN_S)
        except (ShardwayError, TimeoutError) as fault:
            with self._turn:
                self._note_failure(one_line(str(fault)) or "it gives no answer")
            return
        with self._turn:
            self._absence = None
            self._schemas[identity] = found
            self._schemas.move_to_end(identity)
            while len(self._schemas) > self._schemas_max:
                self._schemas.popitem(last=False)

    def _note_failure(self, why: str) -> RegistryError:
        told = (
            f"the schema registry {self._registry} gives no schema: {why}. Records wait until it does: see that it "
            "answers, and that it may be read"
        )
        if self._absence is None:
            log.warning("%s", told)
        self._absence = self._now() + AWAY_AGAIN_S, told
        return RegistryError(told)


def confluent_schemas(url: str, *, option: str) -> SchemaCache:
    """Return the schemas of a registry of Confluent's protocol. Raises OptionError; ``option`` is what gave the URL."""
    address = checked_url(url, option=option)

    def ask(identity: str) -> Answer:
        return confluent_answer(text_at(f"{address}/schemas/ids/{identity}"))

    return SchemaCache(address, ask)


def glue_schemas(connection: ConnectionOptions | None) -> SchemaCache:
    """Return the schemas of the Glue registries of a region."""

    def ask(identity: str) -> Answer:
        return asyncio.run(_asked_of_glue(connection, identity))

    return SchemaCache("of Glue", ask)


async def _asked_of_glue(connection: ConnectionOptions | None, identity: str) -> Answer:
    import msgspec

    from shardway.aws.wire import Wire

    try:
        async with asyncio.timeout(FETCH_MAX_S), Wire(connection) as wire:
            body = await wire.call("glue", "GetSchemaVersion", msgspec.json.encode({"SchemaVersionId": identity}))
    except ServiceError as fault:
        if fault.code == "EntityNotFoundException":
            raise UnknownSchemaError(str(fault)) from None
        raise
    return glue_answer(body)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
