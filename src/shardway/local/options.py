"""The options of the local service, and the environment of its clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from shardway.core.options.base import Options
from shardway.core.options.hints import SECRET
from shardway.local.model.limits import PAGE_SPAN_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PORT_MAX = 65_535
LOOPBACK = ("127.0.0.1", "::1", "localhost")
DEFAULT_REGION = "us-east-1"
DEFAULT_ACCOUNT_ID = "123456789012"
"""The account of the streams and tables, and of moto, which answers for CloudWatch and STS."""


HTTP2_STREAMS_MAX = 128
"""The requests at a time on one HTTP/2 connection. AWS documents no number; RFC 9113 asks for 100 or more."""


def is_region(name: str) -> bool:
    """Return True for a name that a region may have."""
    return len(name) <= 63 and re.fullmatch(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*", name, re.ASCII) is not None


class LocalOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a local service. ``port`` 0 lets the system choose a port."""

    host: str = "127.0.0.1"
    """The address to listen on. From another one than loopback, programs of other machines reach the service and its
    controls.
    """
    port: Annotated[int, Meta(ge=0, le=PORT_MAX, description="0 takes a free one")] = 0
    region: str = DEFAULT_REGION
    """The home region: ``streams`` are made in it, and calls without a region are for it. Calls that are signed for
    another region find the streams of that region.
    """
    account_id: str = DEFAULT_ACCOUNT_ID
    limits: bool = False
    """True: AWS's limits per shard (reads, writes) and per operation are enforced. It can be switched later."""
    page_span_s: Annotated[float, Meta(gt=0)] = PAGE_SPAN_S
    """The seconds of a shard's log that one GetRecords crosses at most, in the time of the arrivals: silence is
    answered by empty pages that are behind, as AWS does. It can be switched later (``set_limits``).
    """
    shard_quota: Annotated[int, Meta(ge=0)] = 1000
    stream_settle_s: Annotated[float, Meta(ge=0)] = 0.0
    """How long a stream stays CREATING, UPDATING or DELETING, in the service's time."""
    table_settle_s: Annotated[float, Meta(ge=0)] = 0.0
    """The same for tables of DynamoDB and their indexes."""
    streams: dict[str, int] = msgspec.field(default_factory=dict)
    """Streams to create at the start unless they exist: name to number of shards."""
    data: str | None = None
    """The folder that keeps the streams across restarts; None: they are in memory only. Tables of DynamoDB, and what
    moto has, are never kept.
    """
    fsync: bool = False
    """True: every change is on the disk before its call is answered. False: a machine that fails may lose changes."""
    tls: bool = False
    certificate: str | None = None
    """The PEM file of the certificate, as ``key`` is that of its key; None: TLS uses a certificate made for this run.
    """
    key: str | None = None
    http2: bool = True
    """True: the service speaks HTTP/2, too (with h2 installed): over TLS to clients that ask for it (ALPN), without TLS
    to clients that begin with its preface.
    """
    http2_streams_max: Annotated[int, Meta(ge=0)] = HTTP2_STREAMS_MAX
    """The streams that each HTTP/2 connection may have (SETTINGS_MAX_CONCURRENT_STREAMS); further streams are refused
    (REFUSED_STREAM).
    """
    clock_start_s: Annotated[float, Meta(ge=0)] | None = None
    """The time at which the service's clock begins, in epoch seconds; None: now."""
    clock_running: bool = True
    """False: the clock moves only when it is advanced."""
    seed: Annotated[int, Meta(ge=0)] | None = None
    """The seed of the service's random choices (stream ids); faults have seeds of their own."""
    neighbour_endpoint_url: str | None = None
    """The endpoint that answers for DynamoDB, CloudWatch and STS; None: the service does for DynamoDB, and moto for the
    other two, started at the first use.
    """
    dynamodb_endpoint_url: str | None = None
    """The endpoint that answers for DynamoDB alone; None: the service does, for what lease tables need of it."""
    origins: tuple[str, ...] = ()
    """The origins of web pages that may call the service (``http://localhost:3000``); ``*``: any. Without an origin no
    page may: else a page of any site that is open in a browser on this machine could read and write all of the service.
    """
    credentials: Annotated[dict[str, str], SECRET] = msgspec.field(default_factory=dict)
    """Access keys and their secrets. With any, only these are accepted, and signature, region and date of each Kinesis
    call are verified. Without, any credentials will do.
    """

    def _rules(self) -> Iterator[str]:
        if not re.fullmatch(r"[0-9]{12}", self.account_id, re.ASCII):
            yield "account_id: an account is twelve digits"
        if not is_region(self.region):
            yield f"region {self.region!r}: no AWS region is written so (they look like eu-west-1)"
        if self.key is not None and self.certificate is None:
            yield "key is given without certificate"

    @property
    def on_loopback(self) -> bool:
        """True when only programs of this machine reach the service."""
        return self.host in LOOPBACK

    @property
    def secure(self) -> bool:
        """True when the service serves HTTPS."""
        return self.tls or self.certificate is not None


def environment(endpoint_url: str, region: str, ca_file: str | None = None) -> dict[str, str]:
    """Return environment variables for a client of the service at this address. The credentials are made up."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    if ca_file is None:
        return variables
    # The SDK for JavaScript has no variable of AWS's for it: it takes what Node takes.
    return variables | {"AWS_CA_BUNDLE": ca_file, "NODE_EXTRA_CA_CERTS": ca_file}
