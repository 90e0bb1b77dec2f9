"""The URL of a PostgreSQL server: what it names is shown, and its password stands in no message and no repr."""

from __future__ import annotations

import contextlib
import logging
import traceback
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from shardway.aws.options import ConnectionOptions
from shardway.errors import OptionError
from shardway.inspect import Inspector
from shardway.inspect.applications.stores import Store
from shardway.inspect.applications.tables import applications_in
from shardway.stores.dsn import server_address
from shardway.stores.postgres import PostgresLeaseTable

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "hunter2"
SHAPES = [
    "postgresql://ada:{}@127.0.0.1:1/shop",
    "postgres://ada:{}@db.example.org/shop?sslmode=disable",
    "postgresql://ada:{}@[::1]:1/shop",
    "postgresql://127.0.0.1:1/shop?user=ada&password={}",
    "postgresql:///shop?password={}&host=/nowhere&user=ada",
    "postgresql:ada:{}@127.0.0.1:1/shop",
    "postgresql:{}",
    "{}://ada@db/shop",
    "host=127.0.0.1 user=ada password={}",
    "postgresql+asyncpg://ada:{}@127.0.0.1:1/shop",
    "postgresql://ada:{}@db:1@x/shop",
]
passwords = st.builds("{}{}{}".format, st.text(max_size=6), st.just(SECRET), st.text(max_size=6)) | st.builds(
    "{}{}{}".format,
    st.text("/#?@&%:=+ '\"[]\\,;0123456789", max_size=5),
    st.just(SECRET),
    st.text("/#?@&%:=+ '\"[]\\,;0123456789", max_size=5),
)


def shown_of(dsn: str) -> Iterator[str]:
    """Everything that is said of a URL by what takes one."""
    for take in (server_address, PostgresLeaseTable, Store.parse):
        try:
            taken = take(dsn)
        except OptionError as refused:
            yield "".join(traceback.format_exception(refused))
            yield repr(refused)
        else:
            yield f"{taken} {taken!r}"
            console = Console(record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - closed below
            with contextlib.closing(console.file):
                console.print(taken)
                yield console.export_text()


@settings(max_examples=300, deadline=None)
@given(shape=st.sampled_from(SHAPES), password=passwords)
@example(shape=SHAPES[0], password=f"{SECRET}/x")
@example(shape=SHAPES[0], password=f"12/{SECRET}")
@example(shape=SHAPES[0], password=f"12#{SECRET}")
@example(shape=SHAPES[0], password=f"12?{SECRET}")
@example(shape=SHAPES[0], password=f"12?a={SECRET}")
@example(shape=SHAPES[0], password=f"a@{SECRET}")
@example(shape=SHAPES[0], password=f"a@b/{SECRET}")
@example(shape=SHAPES[0], password=f"{SECRET} x")
@example(shape=SHAPES[0], password=f"{SECRET}'x")
@example(shape=SHAPES[0], password=f"{SECRET}\n")
@example(shape=SHAPES[0], password=f"[{SECRET}")
@example(shape=SHAPES[0], password=f"\u2100{SECRET}")
@example(shape=SHAPES[3], password=f"a&{SECRET}")
@example(shape=SHAPES[3], password=f"a&{SECRET}=1")
def test_a_password_is_in_nothing_that_is_said(shape: str, password: str) -> None:
    for text in shown_of(shape.format(password)):
        # A traceback shows the lines of this file, and none of the value.
        assert SECRET not in text.replace('SECRET = "hunter2"', "")


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://ada:pw@db:5433/shop", "postgresql://db:5433/shop"),
        ("postgresql://ada:p w'%2F:\"@db/shop", "postgresql://db/shop"),
        ("postgres://ada@a:1,b:2/shop?sslmode=require", "postgres://a:1,b:2/shop"),
        ("postgresql://[::1]:5433/shop", "postgresql://[::1]:5433/shop"),
        ("postgresql:///shop?host=/var/run/postgresql", "postgresql:///var/run/postgresql/shop"),
        ("postgresql://db?dbname=shop&user=ada&password=x", "postgresql://db/shop"),
        ("postgresql://db/a%0Ab", r"postgresql://db/a\nb"),
        ("postgresql://", "postgresql://"),
    ],
)
def test_scheme_host_port_and_database_are_shown(dsn: str, shown: str) -> None:
    assert str(server_address(dsn)) == shown
    assert repr(PostgresLeaseTable(dsn)) == f"PostgresLeaseTable({shown!r}, 'leases')"


@pytest.mark.parametrize(
    ("dsn", "fault"),
    [
        ("postgresql://ada:pw/x@db/shop", "an @ that is not the one behind its user and password"),
        ("postgresql://ada:pw#x@db/shop", "has a #"),
        ("postgresql://db:0/shop", "a port that is no number up to 65535"),
        ("postgresql://db:65536/shop", "a port that is no number up to 65535"),
        ("postgresql://db,/shop", "a port without a host"),
        ("postgresql://db/shop?port=x", "a port that is no number up to 65535"),
        ("postgresql://db/shop?x", "cannot be taken apart"),
        ("postgresql://" + ",".join("a" * 101), "more than 100 hosts"),
        ("postgresql://db/shop?" + "&".join(f"a{n}=1" for n in range(101)), "cannot be taken apart"),
        ("postgresql:ada:pw@db", "does not begin with postgresql://"),
    ],
)
def test_a_url_that_cannot_be_read_says_how_one_is_written(dsn: str, fault: str) -> None:
    with pytest.raises(OptionError, match=fault) as told:
        PostgresLeaseTable(dsn)
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in str(told.value)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(password=passwords)
async def test_a_server_that_is_not_there_is_told_without_the_password(
    password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dsn = f"postgresql://127.0.0.1:1/shop?user=ada&password={password}"
    try:
        store = Store.parse(dsn)
    except OptionError:
        return
    inspector = Inspector(ConnectionOptions(region="us-east-1"))
    with pytest.raises(OptionError, match=r"postgresql://127\.0\.0\.1:1/shop cannot be read") as told:
        await applications_in(store, inspector)
    await inspector.close()
    assert SECRET not in "".join(traceback.format_exception(told.value)).replace('SECRET = "hunter2"', "")
    assert SECRET not in caplog.text


def test_an_argument_that_asyncpg_does_not_know_is_told_at_once() -> None:
    with pytest.raises(OptionError, match="nor asyncpg's create_pool knows statement_cache"):
        PostgresLeaseTable(statement_cache=0)
