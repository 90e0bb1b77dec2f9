"""Options of the local service, and of what is to use it."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from penstock.errors import OptionError
from penstock.local.model.limits import PAGE_SPAN_S

PORT_MAX = 65_535
DEFAULT_REGION = "us-east-1"
DEFAULT_ACCOUNT_ID = "123456789012"
"""Also the account of the emulator that answers for DynamoDB, CloudWatch and STS."""


HTTP2_STREAMS_MAX = 128
"""Requests at a time on one HTTP/2 connection. AWS documents no number; RFC 9113 asks for 100 or more."""


def is_region(name: str) -> bool:
    """True for a name that a region may have."""
    return len(name) <= 63 and re.fullmatch(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*", name, re.ASCII) is not None


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a local service is started with. ``port`` 0 lets the system choose one."""

    host: str = "127.0.0.1"
    port: int = 0
    region: str = DEFAULT_REGION
    """Where ``streams`` are made, and what a call without a region is for. Calls that are signed for another region
    find that one's streams.
    """
    account_id: str = DEFAULT_ACCOUNT_ID
    limits: bool = False
    """Enforce AWS's limits per shard (reads, writes) and per operation. Switchable later."""
    page_span_s: Annotated[float, msgspec.Meta(gt=0)] = PAGE_SPAN_S
    """One GetRecords crosses at most so much of a shard's log, in the time of its arrivals: silence is answered by
    empty pages that are behind, as AWS does. Switchable later (``set_limits``)."""
    shard_quota: int = 1000
    stream_settle_s: float = 0.0
    """How long a stream stays CREATING, UPDATING or DELETING, in the service's time."""
    streams: dict[str, int] = {}
    """Streams to create at the start unless they exist: name to number of shards."""
    data: str | None = None
    """Folder that keeps the streams across restarts; None: in memory only. What moto answers for is never kept."""
    fsync: bool = False
    """Have every change on the disk before it is answered. Without, only a machine that fails loses any."""
    tls: bool = False
    certificate: str | None = None
    """PEM, with ``key``; without, TLS uses a certificate made for this run."""
    key: str | None = None
    http2: bool = True
    """Speak HTTP/2 too (with h2 installed): over TLS to clients that ask for it (ALPN), without TLS to clients that
    begin with its preface."""
    http2_streams_max: int = HTTP2_STREAMS_MAX
    """Announced on each HTTP/2 connection (SETTINGS_MAX_CONCURRENT_STREAMS); more are refused (REFUSED_STREAM)."""
    clock_start_s: float | None = None
    """Where the service's clock begins, in epoch seconds; None: now."""
    clock_running: bool = True
    """False: the clock moves only when it is advanced."""
    seed: int | None = None
    """Seed of the service's random choices (stream ids); faults have their own."""
    neighbour_endpoint_url: str | None = None
    """Where DynamoDB, CloudWatch and STS are answered; None: by moto, started at the first use."""
    dynamodb_endpoint_url: str | None = None
    """Where DynamoDB alone is answered (moto makes some 460 conditional writes/s)."""
    origins: tuple[str, ...] = ()
    """Web pages that may call it, by origin (``http://localhost:3000``); ``*``: any. Without, none may: a page of any
    site that is open in a browser on this machine could else read and write all of it."""
    credentials: dict[str, str] = {}
    """Access keys and their secrets: with any, only they are accepted, and signature, region and date of each Kinesis
    call are verified. Without, any credentials will do."""

    def __post_init__(self) -> None:
        faults = []
        if not 0 <= self.port <= PORT_MAX:
            faults.append(f"port {self.port}: a port is 1 to {PORT_MAX}, or 0 for a free one")
        if not re.fullmatch(r"[0-9]{12}", self.account_id, re.ASCII):
            faults.append("account_id: an account is twelve digits")
        if not is_region(self.region):
            faults.append(f"region {self.region!r}: no AWS region is written so (they look like eu-west-1)")
        if not 0 <= self.stream_settle_s < float("inf"):
            faults.append(f"stream_settle_s {self.stream_settle_s}: a time is wanted, from 0 on")
        if self.key is not None and self.certificate is None:
            faults.append("key is given without certificate")
        if faults:
            raise OptionError(faults)

    @property
    def secure(self) -> bool:
        """True when it serves HTTPS."""
        return self.tls or self.certificate is not None


# --- the environment of a client ------------------------------------------------------------------
# What tells an AWS SDK to use the local service.


def environment(endpoint_url: str, region: str, ca_file: str | None = None) -> dict[str, str]:
    """Environment variables for a client of the service at this address. The credentials are made up."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return variables if ca_file is None else variables | {"AWS_CA_BUNDLE": ca_file}
