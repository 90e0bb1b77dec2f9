"""What to write in place of a name that a class or function does not take: the field of a group that it is, the name
that it has here in place of another library's, or the nearest name.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.options.hints import alternatives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Fields = Callable[[Any], Mapping[str, Any] | None]
    """Returns the hint of each field of a group of options; None for what is no group."""

OTHER_NAMES = {
    # boto3: of a session or client, and of the calls of Kinesis
    "region_name": "region",
    "aws_region": "region",
    "profile_name": "profile",
    "endpoint": "endpoint_url",
    "session": "credentials",
    "expiration": "expires_at_s",
    "expiry_time": "expires_at_s",
    "token": "session_token",
    "secret_key": "secret_access_key",
    "access_key": "access_key_id",
    "boto_session": "credentials",
    "boto3_session": "credentials",
    "botocore_session": "credentials",
    "aws_access_key_id": "credentials",
    "aws_secret_access_key": "credentials",
    "aws_session_token": "credentials",
    "stream_name": "stream",
    "stream_arn": "stream",
    "streams": "stream",
    "shard_iterator_type": "starting_position",
    "timestamp": "starting_position",
    "external_id": "role_external_id",
    "duration_seconds": "role_duration_s",
    "connect_timeout": "connect_timeout_s",
    "read_timeout": "read_timeout_s",
    "max_pool_connections": "connections_max",
    # the KCL, the KPL and Kafka's clients
    "application_name": "application",
    "app_name": "application",
    "group_id": "application",
    "initial_position_in_stream": "starting_position",
    "initial_position": "starting_position",
    "iterator_type": "starting_position",
    "auto_offset_reset": "starting_position",
    "worker_identifier": "worker_id",
    "failover_time_millis": "failover_s",
    "lease_table_name": "table",
    "table_name": "table",
    "lease_table": "table",
    "max_leases_for_worker": "leases_max",
    "aggregation_enabled": "aggregation",
    "aggregation_max_size": "aggregate_bytes_max",
    "record_max_buffered_time": "linger_s",
    "record_ttl": "record_ttl_s",
    "linger_ms": "linger_s",
    "value_deserializer": "deserializer",
    "value_serializer": "serializer",
    # what many write
    "url": "endpoint_url",
    "position": "starting_position",
    "start": "starting_position",
    "dlq": "dead_letters",
    "retries": "retry",
    "limit": "batch_records_max",
    "max_records": "batch_records_max",
    "max_poll_records": "batch_records_max",
    "batch_size": "batch_records_max",
    "max_attempts": "failures_max",
    "enhanced_fan_out": "fan_out",
    "efo": "fan_out",
}
"""The names that other libraries have for what is here, in snake case, and those that many programs try first."""
VALUES = {
    "session": "session",
    "boto_session": "session",
    "boto3_session": "session",
    "botocore_session": "session",
    "timestamp": "datetime(...)",
    "credentials": "Credentials(access_key_id, secret_access_key, session_token)",
    "endpoint_url": '"http://..."',
    "region": '"eu-west-1"',
    "starting_position": '"TRIM_HORIZON"',
    "stream": "the stream's name",
}
"""What an error shows as the value of a name, where "..." would say too little."""
DEPTH_MAX = 3
"""How deep a field may lie that an error names: an argument, its group, and a value in that."""
NAME_CHARACTERS_MAX = 60
"""The most characters of an unknown name that are looked at, and shown."""
LIKENESS_MIN = 0.7
"""How like a name has to be, at least, to be called the nearest: from 0 to 1, where 1 is the same."""
OWN_BONUS = 0.1
"""How much less like a name of the place itself may be than one of a group in it."""
PLACES_MAX = 2
"""The most places that an error names for one field."""


class Place(NamedTuple):
    """A place at which a name is right."""

    call: str
    """How the name is written there: ``leases=LeaseOptions(failover_s=...)``."""
    group: str | None
    """The class whose field it is. None: it is an argument itself."""


def unknown_names(
    place: str,
    odd: Iterable[str],
    hints: Mapping[str, Any],
    fields: Fields,
    *,
    elsewhere: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return what an error says of names that a place does not take. ``hints``: what it does take. ``elsewhere``: what
    others take, which are looked at where the place has nothing of that name.
    """
    told: dict[str, list[str]] = {}
    for name in odd:
        advice = _advice(name, hints, fields, elsewhere) or f": help({place}) shows what there is"
        told.setdefault(advice, []).append(repr(name[:NAME_CHARACTERS_MAX]))
    return "; ".join(
        f"{place} has no argument{'s' if len(names) > 1 else ''} {' and '.join(names)}{advice}"
        for advice, names in told.items()
    )


def _advice(name: str, hints: Mapping[str, Any], fields: Fields, elsewhere: Mapping[str, Mapping[str, Any]]) -> str:
    plain = snake_case(name[:NAME_CHARACTERS_MAX])
    ours = OTHER_NAMES.get(plain, plain)
    value = VALUES.get(plain) or VALUES.get(ours, "...")
    for wanted in dict.fromkeys((plain, ours)):
        if found := places_of(wanted, value, hints, fields):
            return _spelling(wanted, found)
    for other, theirs in elsewhere.items():
        for wanted in dict.fromkeys((plain, ours)):
            if wanted != "stream" and (found := places_of(wanted, value, theirs, fields)):
                return f": {_field_of(wanted, found[0], other)}"
    return _nearest(plain, hints, fields)


def _spelling(name: str, found: list[Place]) -> str:
    if found[0].group is None:
        return f": write {found[0].call}"
    groups = " and of ".join(str(one.group) for one in found[:PLACES_MAX])
    return f": {name} is a field of {groups}, write {' or '.join(one.call for one in found[:PLACES_MAX])}"


def _field_of(name: str, found: Place, other: str) -> str:
    if found.group is None:
        return f"{name} belongs to {other}"
    return f"{name} is a field of {found.group}, which {other} takes: {found.call}"


def _nearest(name: str, hints: Mapping[str, Any], fields: Fields) -> str:
    """Return the nearest name, of the place itself before those of its groups that are as near."""
    near, likeness = "", LIKENESS_MIN
    for one, group, _ in _walk(hints, fields):
        here = difflib.SequenceMatcher(None, name, one).ratio() + (OWN_BONUS if group is None else 0)
        if here > likeness:
            near, likeness = one, here
    if not near:
        return ""
    found = places_of(near, VALUES.get(near, "..."), hints, fields)[0]
    return f": is {near!r} meant" + (f", a field of {found.group}: {found.call}?" if found.group else "?")


def places_of(name: str, value: str, hints: Mapping[str, Any], fields: Fields) -> list[Place]:
    """Return the places of a name, with a value: those that lie nearest, and no others."""
    found: list[Place] = []
    depth = DEPTH_MAX
    for one, group, path in _walk(hints, fields):
        if one == name and len(path) <= depth:
            depth = len(path)
            call = f"{name}={value}"
            for argument, kind in reversed(path):
                call = f"{argument}={kind}({call})"
            found.append(Place(f"{value} as the first argument" if name == "stream" else call, group))
    return found


def _walk(hints: Mapping[str, Any], fields: Fields) -> Iterator[tuple[str, str | None, tuple[tuple[str, str], ...]]]:
    """Yield each name with its group and the way to it, level by level."""
    level: list[tuple[str | None, Mapping[str, Any], tuple[tuple[str, str], ...]]] = [(None, hints, ())]
    for _ in range(DEPTH_MAX):
        below: list[tuple[str | None, Mapping[str, Any], tuple[tuple[str, str], ...]]] = []
        for group, here, path in level:
            for name, hint in here.items():
                if name.startswith("_"):
                    continue
                yield name, group, path
                below += [
                    (kind.__name__, inner, (*path, (name, kind.__name__)))
                    for kind in alternatives(hint)
                    if (inner := fields(kind)) is not None
                ]
        level = below


def snake_case(name: str) -> str:
    """Return a name as Python writes it: ``StreamName`` and ``streamName`` are ``stream_name``."""
    return (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
        .replace("-", "_")
        .replace(".", "_")
        .lower()
    )
