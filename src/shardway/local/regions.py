"""Each region has streams and tables of its own, as at AWS. A call is for the region that it is signed for."""

from __future__ import annotations

import logging
import random
import re
import zlib
from typing import TYPE_CHECKING

from shardway.errors import OptionError
from shardway.local.answers import Answers
from shardway.local.clock import VirtualClock
from shardway.local.counters import Counters
from shardway.local.dynamodb import DynamoModel
from shardway.local.event_pumps import Subscriptions
from shardway.local.faults import FaultPlan
from shardway.local.faulty_kinesis import FaultyKinesis
from shardway.local.http_messages import Request
from shardway.local.kinesis import KinesisFace
from shardway.local.model import KinesisModel, Limits
from shardway.local.options import is_region
from shardway.local.signatures import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.local.event_pumps import EventFault
    from shardway.local.journal import Journal
    from shardway.local.operations import Call
    from shardway.local.options import LocalOptions


log = logging.getLogger("shardway.local")
REGIONS_MAX = 64
"""The regions that a service may have. AWS has fewer; each costs little, but any client may name one."""
_SCOPE = re.compile(rb"Credential(?:=|%3D)[^/,\s&]+?(?:/|%2F)[0-9]+(?:/|%2F)([A-Za-z0-9-]+)(?:/|%2F)", re.IGNORECASE)


class ServiceParts:
    """What all regions of a service have in common."""

    def __init__(
        self,
        options: LocalOptions,
        clock: VirtualClock,
        limits: Limits,
        answers: Answers,
        counters: Counters,
        faults: FaultPlan,
    ) -> None:
        self.options = options
        self.clock = clock
        self.limits = limits
        self.answers = answers
        self.counters = counters
        self.faults = faults


class Region:
    """Kinesis in one region: its model, and the faces before it; and the model of DynamoDB."""

    def __init__(self, name: str, shared: ServiceParts) -> None:
        self.name = name
        self._shared_parts = shared
        options, answers = shared.options, shared.answers
        self.subscriptions = Subscriptions(answers, self._spoil)
        verifier = Verifier(options.credentials, name, shared.clock.now) if options.credentials else None
        self.model = self._new_model()
        self.dynamodb = self._new_dynamodb()
        self.kinesis = KinesisFace(self.model, answers, shared.counters, self.subscriptions, verifier)
        self.faulty = FaultyKinesis(self.kinesis, shared.faults)
        self._journal: Callable[[tuple[object, ...]], None] | None = None

    def reset(self) -> None:
        """Make the region as new; the model that is forgotten has no journal any more."""
        self.subscriptions.end_all()
        self.model.keep_in(None)
        self.model = self.kinesis.model = self._new_model()
        self.model.keep_in(self._journal)
        self.dynamodb = self._new_dynamodb()

    def keep_in(self, journal: Callable[[tuple[object, ...]], None]) -> None:
        """Give ``journal`` each change of the region's model."""
        self._journal = journal
        self.model.keep_in(journal)

    def _spoil(self, call: Call) -> EventFault | None:
        return self.faulty.spoil_event(call)

    def _new_dynamodb(self) -> DynamoModel:
        options = self._shared_parts.options
        return DynamoModel(
            clock=self._shared_parts.clock,
            region=self.name,
            account_id=options.account_id,
            settle_s=options.table_settle_s,
        )

    def _new_model(self) -> KinesisModel:
        options = self._shared_parts.options
        model = KinesisModel(
            clock=self._shared_parts.clock,
            rng=random.Random(options.seed),
            region=self.name,
            account_id=options.account_id,
            limits=self._shared_parts.limits,
            shard_quota=options.shard_quota,
            stream_settle_s=options.stream_settle_s,
        )
        if self.name != options.region:
            # An iterator holds its stream's number. With numbers of its own for each region, no iterator of one region
            # passes for one of a stream in another.
            model.state.next_uid = (zlib.crc32(self.name.encode()) << 24) + 1
        return model


class Regions:
    """All regions that were called so far; the home region, which the options name, is always there."""

    def __init__(self, shared: ServiceParts) -> None:
        self._shared_parts = shared
        self.home = Region(shared.options.region, shared)
        self._by_name = {self.home.name: self.home}
        self._journal: Journal | None = None

    def __iter__(self) -> Iterator[Region]:
        return iter(list(self._by_name.values()))

    def of(self, request: Request) -> Region:
        """Return the region that a request is signed for. It is the home region for a request that names none, and
        where signatures are verified: there a call for another region is refused.
        """
        if self._shared_parts.options.credentials:
            return self.home
        found = _SCOPE.search(request.headers.get(b"authorization", b""))
        if found is None:
            found = _SCOPE.search(request.target)
            if found is None:
                return self.home
        name = found[1].decode("latin-1")
        return self._by_name.get(name) or self._open(name)

    def named(self, name: str) -> Region:
        """Return the region of this name, and open it if it is not open.

        Raises OptionError for what is no region's name, and where there are too many.
        """
        region = self._by_name.get(name)
        if region is not None:
            return region
        if not is_region(name) or len(self._by_name) >= REGIONS_MAX:
            raise OptionError(f"{name!r} is no region, or there are {REGIONS_MAX} of them already")
        region = self._by_name[name] = Region(name, self._shared_parts)
        if self._journal is not None:
            region.keep_in(self._journal.recording(name))
        return region

    def keep_in(self, journal: Journal) -> None:
        """Give the journal each change, even of a region that is opened later."""
        self._journal = journal
        for region in self:
            # The first journals knew of one region, and so a change in the home region still names none.
            region.keep_in(journal.record if region is self.home else journal.recording(region.name))

    def reset(self) -> None:
        """Make all regions as new."""
        for region in self:
            region.reset()

    def _open(self, name: str) -> Region:
        try:
            region = self.named(name)
        except OptionError:
            return self.home  # as a service that knows no region: there is none to ask
        if self.home.model.state.streams:
            log.warning(
                "a client calls the region %s, which has no streams yet: those that were made at the start are in %s",
                name,
                self.home.name,
            )
        return region
