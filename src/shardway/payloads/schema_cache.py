"""Keep the schemas that records name, each fetched once from a registry: it may be away, and it may lie.

A registry's answer comes late or never, and an event loop has more to do meanwhile. So on a thread whose event loop
runs, the fetch goes on beside it, on a thread of its own, and the caller hears that the schema is on its way.
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
"""The schemas that are fetched at the same time beside event loops."""
FETCH_MAX_S = 30.0
"""The time that one call of Glue may take, with all its repetitions."""


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
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Schema] = OrderedDict()
        self._away: tuple[float, str] | None = None
        """When the registry is asked again that has failed, and why it has."""
        self._fetching: set[str] = set()

    def of(self, identity: str) -> Schema:
        """Return the schema of an id, or why there is none. Raises RegistryError where the registry gives none now,
        and where it is on its way (``pending``): ask again.
        """
        with self._lock:
            known = self._known.get(identity)
            if known is not None and known.again_s > self._now():
                self._known.move_to_end(identity)
                return known
            if self._away is not None and self._away[0] > self._now():
                raise RegistryError(self._away[1])
            if _on_event_loop():
                if identity not in self._fetching and len(self._fetching) < FETCHES_MAX:
                    self._fetching.add(identity)
                    tasks.thread(
                        partial(self._fetch_beside, identity), "shardway-schema", partial(self._heard, identity)
                    )
                raise RegistryError(f"{self._registry}: a schema is being fetched: ask again", pending=True)
        return self._fetched(identity)

    def _fetch_beside(self, identity: str) -> None:
        try:
            self._fetched(identity)
        except RegistryError:
            pass  # It is kept, and raised where the schema is asked for the next time.
        finally:
            with self._lock:
                self._fetching.discard(identity)

    def _heard(self, identity: str, error: BaseException) -> None:
        with self._lock:
            self._failed(f"the fetch ended with {type(error).__name__}")
            self._fetching.discard(identity)

    def _fetched(self, identity: str) -> Schema:
        """Ask the registry, and keep its answer. Raises RegistryError."""
        try:
            found = schema_of(identity, self._ask(identity))
        except UnknownSchemaError:
            why = f"the registry {self._registry} has no schema {identity}"
            found = Schema(why=why, again_s=self._now() + UNKNOWN_AGAIN_S)
        except (ShardwayError, TimeoutError) as fault:
            with self._lock:
                raise self._failed(one_line(str(fault)) or "it gives no answer") from None
        with self._lock:
            self._away = None
            self._known[identity] = found
            self._known.move_to_end(identity)
            while len(self._known) > self._schemas_max:
                self._known.popitem(last=False)
        return found

    def _failed(self, why: str) -> RegistryError:
        told = (
            f"the schema registry {self._registry} gives no schema: {why}. Records wait until it does: see that it "
            "answers, and that it may be read"
        )
        if self._away is None:
            log.warning("%s", told)
        self._away = self._now() + AWAY_AGAIN_S, told
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
