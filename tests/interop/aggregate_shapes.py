"""Aggregates of all shapes that a producer can make of what users give it, for readers that are not ours."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from shardway.core.aggregation.writer import Aggregator
from shardway.core.hashkeys import HASH_KEY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.aggregation.writer import Container

UserRecords = list[tuple[str, bytes, int | None]]
"""(partition key, data, explicit hash key)"""

MIB = 1024 * 1024
UNICODE_KEYS = ["ü", "\U0001f41f" * 256, "e\u0301", "\u202eright to left", "\x00", "中文" * 100, "a\nb\tc", "a" * 256]


def shapes() -> dict[str, UserRecords]:
    """By name. The same ones each time."""
    rng = random.Random(8)

    def data(bytes_max: int) -> bytes:
        return rng.randbytes(rng.randint(0, bytes_max))

    hash_keys = [0, 1, HASH_KEY_MAX, HASH_KEY_MAX // 2, *(rng.getrandbits(128) for _ in range(20))]
    return {
        "one": [("key", b"data", None)],
        "one with a hash key": [("key", b"data", 0)],
        "one without data": [("key", b"", None)],
        "no data at all": [(f"key-{number % 3}", b"", None) for number in range(100)],
        "unicode keys": [(key, key.encode(), None) for key in UNICODE_KEYS * 3],
        "one key, 10,000 records": [("key", data(20), None) for _ in range(10_000)],
        "1,000 keys": [(f"key-{rng.randrange(1000)}", data(30), None) for _ in range(5_000)],
        # Indexes of one, two and three bytes.
        "20,000 keys": [(f"key-{number}", b"%d" % number, None) for number in range(20_000)],
        "all with hash keys": [(f"key-{number}", data(30), rng.getrandbits(128)) for number in range(500)],
        "few hash keys": [(f"key-{number % 7}", data(30), rng.choice(hash_keys)) for number in range(500)],
        "some with hash keys": [
            (f"key-{number % 7}", data(30), rng.choice([None, *hash_keys])) for number in range(500)
        ],
        "sizes at the steps of the encoding": [
            ("k" * key_bytes, rng.randbytes(data_bytes), None)
            for key_bytes in (1, 126, 127, 128, 255)
            for data_bytes in (0, 1, 119, 120, 121, 122, 123, 124, 125, 127, 128, 16_377, 16_380, 16_383, 16_384)
        ],
        "1 MiB in 16": [(f"key-{number}", rng.randbytes(MIB // 16 - 100), None) for number in range(16)],
        "1 MiB in one": [("key", rng.randbytes(MIB - 100), None), ("other", b"small", 7)],
    }


def containers(records: Iterable[tuple[str, bytes, int | None]], bytes_max: int) -> list[Container]:
    """What our own aggregator makes of user records one after the other."""
    aggregator = Aggregator(bytes_max=bytes_max)
    made = []
    for record in records:
        if not aggregator.add(*record):
            made.append(aggregator.finish())
            assert aggregator.add(*record)
    made.append(aggregator.finish())
    return [container for container in made if container is not None]
