"""The settings that a console is started with, which are checked as a whole."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from shardway.core.options.base import Options
from shardway.core.options.hints import SECRET
from shardway.errors import OptionError
from shardway.inspect.applications.stores import Store
from shardway.inspect.jobs.jobs import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PORT = 4568
"""The default port, one above the local Kinesis's."""
TOKEN_CHARACTERS_MIN = 32
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_HOST_NAME = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?", re.ASCII)
MASK = re.compile(r"key|(\.[A-Za-z_*][\w-]*|\[\*\])+", re.ASCII)
"""The form of a mask: ``key``, or a path into JSON: ``.customer.email``, ``.items[*].card``, ``.*.secret``."""


class ConsoleSettings(Options, frozen=True, kw_only=True):
    """The settings that a console is started with. Raises OptionError, which names each fault."""

    token: Annotated[str, SECRET]
    """The token that signs a browser or a program in as a writer. It is never shown, and reaches no log."""
    audit: str
    """The file of the audit log, which has a line of JSON for each write, and for each view of payloads."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="0 takes a free one")] = PORT
    host_names: tuple[str, ...] = ()
    """Names that browsers may know the console by, besides those of loopback."""
    base_path: str = ""
    """The path below which a proxy serves the console: ``/shardway``."""
    viewer_token: Annotated[str | None, SECRET] = None
    """The token that signs in as a viewer; None: there is none."""
    allow_writes: bool = False
    show_payloads: bool = True
    """False: neither data nor partition keys are shown, and none can be searched for."""
    masks: tuple[str, ...] = ()
    """The parts of records that are hidden: ``key``, and paths into JSON."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that may name the user."""
    user_header: str | None = None
    """The header in which these proxies name the user that they have signed in."""
    writers: tuple[str, ...] = ()
    """Users of that header that are writers; the others are viewers."""
    certificate: str | None = None
    key: str | None = None
    hsts: bool = False
    """True: tell browsers to use HTTPS alone for this host, for a year (Strict-Transport-Security). It holds for all
    that the host serves, on each port.
    """
    store: Store = Store()
    """The store in which applications keep their leases."""
    streams: dict[str, str] = msgspec.field(default_factory=dict)
    """Streams by applications, where leases do not name them."""
    letters: tuple[str, ...] = ()
    """Places of dead letters: files, or ``stream:NAME``."""
    jobs: tuple[str, ...] = ()
    """Places of Spark jobs: addresses of their numbers, checkpoint directories, or files of lines of JSON."""
    local_url: str | None = None
    """The URL of the local Kinesis that this console shows, with its clock and its faults; None: it shows none."""

    def _rules(self) -> Iterator[str]:
        yield from self._address_faults()
        yield from self._identity_faults()
        for one in self.masks:
            if not MASK.fullmatch(one):
                yield f"mask {one!r}: write key, or a path like .customer.email or .items[*].card"
        for one in self.jobs:
            try:
                place_of(one)
            except OptionError as fault:
                yield str(fault)
        if self.base_path and not _BASE_PATH.fullmatch(self.base_path):
            yield f"base_path {self.base_path!r}: a path begins with / and does not end with it, as in /shardway"

    def _address_faults(self) -> Iterator[str]:
        for one in self.host_names:
            if not _HOST_NAME.fullmatch(one):
                yield f"host name {one!r}: write NAME or NAME:PORT"
        if (self.certificate is None) != (self.key is None):
            yield "a certificate and its key go together"
        if self.hsts and (self.base_path or not (self.secure or self.proxies)):
            yield "hsts holds for a whole host: it needs HTTPS, and a host of the console's own, without a base path"
        if not self.on_loopback:
            if self.certificate is None:
                yield f"{self.host} may be reached from other machines: the console needs TLS there"
            if not self.host_names:
                yield f"{self.host} may be reached from other machines: name the host that browsers ask for"

    def _identity_faults(self) -> Iterator[str]:
        for name, one in (("token", self.token), ("viewer's token", self.viewer_token)):
            if one is not None and (len(one) < TOKEN_CHARACTERS_MIN or not one.isascii() or not one.isprintable()):
                yield f"the {name} is short: it needs {TOKEN_CHARACTERS_MIN} characters or more"
        if self.viewer_token == self.token:
            yield "the viewer's token is the writer's: take another"
        if self.user_header is not None and not self.proxies:
            yield "a user header counts only from proxies, and none is named"
        if self.user_header is not None and not _HEADER.fullmatch(self.user_header):
            yield f"user header {self.user_header!r}: no header is written so"
        if self.writers and self.user_header is None:
            yield "writers are users that a proxy names: name its header too"
        for one in self.proxies:
            try:
                if ipaddress.ip_network(one).prefixlen == 0:
                    yield f"proxy {one}: that is every address there is"
            except ValueError:
                yield f"proxy {one!r}: that is no address and no network"

    @property
    def on_loopback(self) -> bool:
        """True when only this machine can reach the console."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def secure(self) -> bool:
        """True when the console serves HTTPS itself."""
        return self.certificate is not None
