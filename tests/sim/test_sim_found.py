"""Histories that once broke a rule, as plans: a seed means another plan once something else is drawn."""

from __future__ import annotations

import dataclasses

import pytest

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.row import LeaseRow
from shardway.core.shard.duplicates import Deduplicate
from shardway.events import CheckpointTrimmed
from shardway.model import Position
from shardway.options import ConsumerOptions
from shardway.testing import FaultPlan, Simulator
from shardway.testing.sim.history.history import History
from shardway.testing.sim.history.promises import Promises
from shardway.testing.sim.history.shard_story import Put
from shardway.testing.sim.plan import (
    Crash,
    Cut,
    Failing,
    Join,
    Jump,
    Leave,
    Merge,
    Noise,
    Outage,
    Pause,
    Seek,
    Service,
    SlowHandler,
    Split,
    Way,
)
from tests.sim.sim_mutants import AGAIN, drains_are_not_awaited

FOUND = {
    "a process came back under its id, and old copies of the tables": FaultPlan(
        seed=48121682,
        workers=3,
        shards=3,
        duration_s=48.647,
        records_per_s=2.0,
        aggregates=False,
        drift=0.0,
        limits=False,
        fan_out=False,
        page_span_s=5.0,
        handle_s=0.05,
        failing=0.0,
        streams=1,
        keys=0,
        bad=0.0,
        repeats=0.0,
        window_s=0.0,
        window_waits=True,
        parts=False,
        gives_up_after_s=None,
        cool_down_s=8.0,
        program="any_order",
        options={
            "failover_s": 10.0,
            "drain_deadline_s": 5.0,
            "warm_deadline_s": 3.0,
            "batch_records_max": 10000,
            "cadence": "prompt",
        },
        faults=(
            Noise(
                at_s=12.231135620950237,
                service=Service.TABLE,
                lasts_s=31.147575791614422,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=2.0,
                frozen=True,
            ),
            Noise(
                at_s=12.231135620950237,
                service=Service.WORKERS,
                lasts_s=31.147575791614422,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=2.0,
                frozen=True,
            ),
            Crash(at_s=28.153847101858595, worker=1, back_after_s=0.32691542258385164, same_id=True),
            Noise(
                at_s=42.283019818679314,
                service=Service.TABLE,
                lasts_s=19.9178440213954,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=2.0,
                frozen=True,
            ),
            Noise(
                at_s=42.283019818679314,
                service=Service.WORKERS,
                lasts_s=19.9178440213954,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=2.0,
                frozen=True,
            ),
            Split(at_s=48.383559850295086, choice=0.7998157548224276),
        ),
    ),
    "a record was put off in the last turn of a drain": FaultPlan(
        seed=48121266,
        workers=3,
        shards=5,
        duration_s=61.549,
        records_per_s=2.0,
        aggregates=False,
        drift=0.0,
        limits=False,
        fan_out=False,
        page_span_s=30.0,
        handle_s=0.5,
        failing=0.0,
        streams=1,
        keys=0,
        bad=0.0,
        repeats=0.0,
        window_s=0.0,
        window_waits=True,
        parts=False,
        gives_up_after_s=None,
        cool_down_s=8.0,
        program="two_phase",
        options={
            "failover_s": 5.0,
            "drain_deadline_s": 10.0,
            "warm_deadline_s": 0.0,
            "batch_records_max": 3,
            "cadence": "riding",
        },
        faults=(Split(at_s=25.87947891255869, choice=0.3203825089908051),),
    ),
    "letters waited for their retry when all left": FaultPlan(
        seed=48121286,
        workers=3,
        shards=3,
        duration_s=82.641,
        records_per_s=20.0,
        aggregates=False,
        drift=0.0,
        limits=False,
        fan_out=False,
        page_span_s=30.0,
        handle_s=0.05,
        failing=0.0,
        streams=1,
        keys=0,
        bad=0.2,
        repeats=0.0,
        window_s=0.0,
        window_waits=True,
        parts=False,
        gives_up_after_s=None,
        cool_down_s=8.0,
        program="shards",
        options={
            "failover_s": 10.0,
            "drain_deadline_s": 2.0,
            "warm_deadline_s": 0.0,
            "batch_records_max": 20,
            "cadence": "riding",
        },
        faults=(
            Noise(
                at_s=31.18436477172771,
                service=Service.TABLE,
                lasts_s=7.902857096943086,
                worker=None,
                request_lost=0.0,
                answer_lost=0.02,
                throttled=0.0,
                failed=0.02,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.0,
                frozen=False,
            ),
            Noise(
                at_s=35.83968362049033,
                service=Service.TABLE,
                lasts_s=52.43165112009256,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=8.0,
                frozen=False,
            ),
            Noise(
                at_s=35.83968362049033,
                service=Service.WORKERS,
                lasts_s=52.43165112009256,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=8.0,
                frozen=False,
            ),
            Pause(at_s=45.08372698459333, worker=2, lasts_s=8.682750232534897, suspended=True),
            Noise(
                at_s=45.633871200850635,
                service=Service.TABLE,
                lasts_s=3.6033809758193973,
                worker=None,
                request_lost=0.0,
                answer_lost=0.1,
                throttled=0.1,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.0,
                frozen=False,
            ),
            Noise(
                at_s=50.324855602845325,
                service=Service.LETTERS,
                lasts_s=29.460606366151996,
                worker=None,
                request_lost=0.5,
                answer_lost=0.5,
                throttled=0.0,
                failed=0.3,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.0,
                frozen=False,
            ),
            Noise(
                at_s=58.26221468635567,
                service=Service.WORKERS,
                lasts_s=6.833823063056822,
                worker=None,
                request_lost=0.4,
                answer_lost=0.0,
                throttled=0.02,
                failed=0.0,
                late=0.1,
                twice=0.1,
                slower=1.0,
                stale_s=0.0,
                frozen=False,
            ),
            Noise(
                at_s=59.992510458618334,
                service=Service.TABLE,
                lasts_s=23.18551502217432,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.5,
                frozen=False,
            ),
            Noise(
                at_s=59.992510458618334,
                service=Service.WORKERS,
                lasts_s=23.18551502217432,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.5,
                frozen=False,
            ),
        ),
    ),
    "letters waited for their retry when all left, and fan-out": FaultPlan(
        seed=48121443,
        workers=4,
        shards=6,
        duration_s=82.711,
        records_per_s=2.0,
        aggregates=False,
        drift=0.0,
        limits=False,
        fan_out=True,
        page_span_s=5.0,
        handle_s=0.05,
        failing=0.0,
        streams=3,
        keys=0,
        bad=0.2,
        repeats=0.1,
        window_s=60.0,
        window_waits=True,
        parts=False,
        gives_up_after_s=None,
        cool_down_s=8.0,
        program="any_order",
        options={
            "failover_s": 10.0,
            "drain_deadline_s": 2.0,
            "warm_deadline_s": 3.0,
            "batch_records_max": 20,
            "cadence": "every",
        },
        faults=(
            Noise(
                at_s=11.761217952425277,
                service=Service.TABLE,
                lasts_s=13.090947036837854,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.5,
                frozen=False,
            ),
            Noise(
                at_s=11.761217952425277,
                service=Service.WORKERS,
                lasts_s=13.090947036837854,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.5,
                frozen=False,
            ),
            Crash(at_s=37.799250440987294, worker=2, back_after_s=11.592402735918846, same_id=True),
            Jump(at_s=41.290246399995375, worker=0, by_s=5.0),
            Noise(
                at_s=41.409195791301705,
                service=Service.LETTERS,
                lasts_s=29.64765497393378,
                worker=None,
                request_lost=0.5,
                answer_lost=0.5,
                throttled=0.0,
                failed=0.3,
                late=0.0,
                twice=0.0,
                slower=50.0,
                stale_s=0.0,
                frozen=False,
            ),
            Cut(at_s=41.48094362446783, worker=3, service=Service.TABLE, way=Way.REFUSED, lasts_s=1.5867632751374268),
            Cut(at_s=41.48094362446783, worker=3, service=Service.WORKERS, way=Way.REFUSED, lasts_s=1.5867632751374268),
            Cut(at_s=42.666848557083156, worker=3, service=Service.STREAM, way=Way.ANSWERS, lasts_s=1.6601475770634089),
            Noise(
                at_s=48.19826872190821,
                service=Service.TABLE,
                lasts_s=38.963699938783925,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=2.0,
                frozen=True,
            ),
            Noise(
                at_s=48.19826872190821,
                service=Service.WORKERS,
                lasts_s=38.963699938783925,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=2.0,
                frozen=True,
            ),
            Crash(at_s=64.77713999598683, worker=0, back_after_s=None, same_id=True),
            Cut(at_s=68.61783830576744, worker=0, service=Service.TABLE, way=Way.REFUSED, lasts_s=4.367830811274207),
            Cut(at_s=68.61783830576744, worker=0, service=Service.WORKERS, way=Way.REFUSED, lasts_s=4.367830811274207),
            Jump(at_s=70.4775964378882, worker=3, by_s=5.0),
            Cut(at_s=75.87633877195546, worker=1, service=Service.TABLE, way=Way.ANSWERS, lasts_s=6.741235689705979),
            Cut(at_s=75.87633877195546, worker=1, service=Service.WORKERS, way=Way.ANSWERS, lasts_s=6.741235689705979),
        ),
    ),
    "a record that arrived between a seek to LATEST and the feed's first call": FaultPlan(
        seed=44,
        workers=2,
        shards=2,
        duration_s=46.671,
        start="LATEST",
        before_s=0.0,
        since_s=0.0,
        foreign_leases=False,
        records_per_s=20.0,
        aggregates=False,
        drift=0.015,
        limits=False,
        fan_out=False,
        page_span_s=5.0,
        handle_s=0.5,
        failing=0.0,
        streams=1,
        keys=0,
        bad=0.0,
        repeats=0.0,
        window_s=0.0,
        window_waits=True,
        parts=False,
        gives_up_after_s=None,
        cool_down_s=8.0,
        stall_s=0.0,
        program="any_order",
        options={
            "failover_s": 10.0,
            "drain_deadline_s": 5.0,
            "warm_deadline_s": 3.0,
            "batch_records_max": 10000,
            "cadence": "prompt",
        },
        faults=(
            Seek(
                at_s=16.53128005686674,
                worker=1,
                choice=0.2754895055351684,
                to="AT_TIMESTAMP",
                where=0.09118129502417616,
            ),
            Seek(at_s=20.502744063844187, worker=0, choice=0.13363854707670386, to="POSITION", where=0.209691853787772),
            Seek(
                at_s=21.429891595584518,
                worker=0,
                choice=0.5883082605591778,
                to="AT_TIMESTAMP",
                where=0.46925258566889494,
            ),
            Seek(at_s=26.62221368116668, worker=1, choice=0.8048436453521884, to="POSITION", where=0.896846048328347),
            Seek(
                at_s=27.393104317450728,
                worker=1,
                choice=0.7343788041583186,
                to="AT_TIMESTAMP",
                where=0.7267948822574691,
            ),
            Seek(
                at_s=30.638720004583895,
                worker=0,
                choice=0.7535978575870855,
                to="TRIM_HORIZON",
                where=0.6072121827971757,
            ),
            Leave(at_s=32.71467585219278, worker=0),
            Seek(at_s=36.07139998972798, worker=1, choice=0.20896434907506034, to="LATEST", where=0.9277472946134353),
            Seek(
                at_s=45.433330459320096,
                worker=0,
                choice=0.9978952574638484,
                to="AT_TIMESTAMP",
                where=0.7568063232092218,
            ),
        ),
    ),
    "a lease that stood at LATEST by a seek": FaultPlan(
        seed=323,
        workers=2,
        shards=2,
        duration_s=48.672,
        start="TRIM_HORIZON",
        before_s=0.0,
        since_s=0.0,
        foreign_leases=False,
        records_per_s=2.0,
        aggregates=False,
        drift=0.005,
        limits=True,
        fan_out=False,
        page_span_s=2.0,
        handle_s=0.05,
        failing=0.1,
        streams=3,
        keys=12,
        bad=0.01,
        repeats=0.0,
        window_s=0.0,
        window_waits=True,
        parts=False,
        gives_up_after_s=None,
        cool_down_s=8.0,
        stall_s=0.0,
        program="pauses",
        options={
            "failover_s": 5.0,
            "drain_deadline_s": 5.0,
            "warm_deadline_s": 3.0,
            "batch_records_max": 10000,
            "cadence": "prompt",
        },
        faults=(
            Seek(
                at_s=2.1430493474916834,
                worker=0,
                choice=0.04095320533255509,
                to="AT_TIMESTAMP",
                where=0.19785721989714433,
            ),
            Split(at_s=2.194496639220726, choice=0.1833233266230101),
            Seek(
                at_s=3.3970621663015894,
                worker=1,
                choice=0.6159706913265167,
                to="AT_TIMESTAMP",
                where=0.6159964118197617,
            ),
            Join(at_s=4.166376320328761),
            Pause(at_s=8.46856351343963, worker=1, lasts_s=26.673533266953843, suspended=False),
            Seek(at_s=11.486830577112016, worker=1, choice=0.510862496441494, to="LATEST", where=0.4651373689813325),
            Noise(
                at_s=19.76702928101752,
                service=Service.LETTERS,
                lasts_s=28.461786114535453,
                worker=None,
                request_lost=0.1,
                answer_lost=0.1,
                throttled=0.0,
                failed=0.3,
                late=0.0,
                twice=0.0,
                slower=50.0,
                stale_s=0.0,
                frozen=False,
            ),
            Seek(
                at_s=21.549579682882957,
                worker=1,
                choice=0.1960659112409051,
                to="TRIM_HORIZON",
                where=0.18224797103331258,
            ),
            Seek(
                at_s=27.73790743473775, worker=1, choice=0.9514746266976887, to="AT_TIMESTAMP", where=0.4565579591210618
            ),
            Pause(at_s=28.386858748558677, worker=1, lasts_s=7.0957981991476915, suspended=False),
            Seek(at_s=31.673127274727467, worker=1, choice=0.6984692450795581, to="LATEST", where=0.594601114755843),
            SlowHandler(at_s=33.31611403778555, worker=0, lasts_s=11.346429504683748, handle_s=20.49986884346768),
            Seek(at_s=35.74671404350487, worker=1, choice=0.8805234253622197, to="LATEST", where=0.28581952207908),
            Leave(at_s=37.11965782342581, worker=0),
            Merge(at_s=40.191103722449704, choice=0.9416728647508676),
            Merge(at_s=43.97274393798152, choice=0.8703884127852284),
            Seek(
                at_s=45.98417371044068,
                worker=0,
                choice=0.37916054017070755,
                to="TRIM_HORIZON",
                where=0.13535089436125725,
            ),
            Split(at_s=46.19173186608151, choice=0.6414995362675846),
        ),
    ),
    "a row of a dead worker arrived late, over a newer one": FaultPlan(
        seed=76001561,
        workers=3,
        shards=6,
        duration_s=43.622,
        start="AT_TIMESTAMP",
        before_s=0.0,
        since_s=0.0,
        foreign_leases=True,
        records_per_s=8.0,
        aggregates=True,
        drift=0.015,
        limits=False,
        fan_out=False,
        page_span_s=5.0,
        handle_s=0.5,
        failing=0.0,
        streams=1,
        keys=0,
        bad=0.0,
        repeats=0.0,
        window_s=0.0,
        window_waits=True,
        parts=False,
        gives_up_after_s=None,
        cool_down_s=8.0,
        stall_s=0.0,
        program="any_order",
        options={
            "failover_s": 5.0,
            "drain_deadline_s": 2.0,
            "warm_deadline_s": 3.0,
            "batch_records_max": 10000,
            "cadence": "prompt",
            "shard_records_max": 20,
        },
        faults=(
            Pause(at_s=5.748043124899263, worker=2, lasts_s=4.649815206852496, suspended=True),
            Noise(
                at_s=7.652623817055511,
                service=Service.WORKERS,
                lasts_s=28.679161860651476,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.1,
                failed=0.0,
                late=0.4,
                twice=0.0,
                slower=1.0,
                stale_s=0.0,
                frozen=False,
            ),
            Leave(at_s=11.59066970503483, worker=0),
            Cut(at_s=11.79356990235713, worker=2, service=Service.WORKERS, way=Way.ANSWERS, lasts_s=8.830907502476713),
            Noise(
                at_s=20.24715539499552,
                service=Service.TABLE,
                lasts_s=4.200372703779708,
                worker=None,
                request_lost=0.0,
                answer_lost=0.1,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=0.0,
                frozen=False,
            ),
            Cut(at_s=26.69702015570724, worker=1, service=Service.TABLE, way=Way.REFUSED, lasts_s=8.987693690047141),
            Cut(at_s=26.69702015570724, worker=1, service=Service.WORKERS, way=Way.REFUSED, lasts_s=8.987693690047141),
            Noise(
                at_s=32.18817495544104,
                service=Service.TABLE,
                lasts_s=14.335503187235112,
                worker=None,
                request_lost=0.0,
                answer_lost=0.4,
                throttled=0.4,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=10.0,
                stale_s=0.0,
                frozen=False,
            ),
            Join(at_s=37.61544563833885),
            Noise(
                at_s=37.74063686366714,
                service=Service.TABLE,
                lasts_s=52.05927257575778,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=8.0,
                frozen=False,
            ),
            Noise(
                at_s=37.74063686366714,
                service=Service.WORKERS,
                lasts_s=52.05927257575778,
                worker=None,
                request_lost=0.0,
                answer_lost=0.0,
                throttled=0.0,
                failed=0.0,
                late=0.0,
                twice=0.0,
                slower=1.0,
                stale_s=8.0,
                frozen=False,
            ),
            Crash(at_s=41.06401893759825, worker=1, back_after_s=None, same_id=True),
            Crash(at_s=42.05120312643562, worker=1, back_after_s=None, same_id=True),
            Crash(at_s=42.58807196624527, worker=2, back_after_s=None, same_id=True),
        ),
    ),
    "the last row of a worker that crashed arrived in the quiet time": FaultPlan(
        seed=11,
        workers=2,
        shards=6,
        duration_s=20.0,
        records_per_s=20.0,
        handle_s=0.05,
        options={"failover_s": 5.0, "drain_deadline_s": 30.0},
        faults=(
            SlowHandler(at_s=14.0, worker=0, lasts_s=5.9, handle_s=20.0),
            SlowHandler(at_s=14.0, worker=1, lasts_s=5.9, handle_s=20.0),
            Join(at_s=16.0),
            Noise(at_s=16.5, service=Service.WORKERS, lasts_s=3.3, worker=2, late=1.0),
            Crash(at_s=19.6, worker=2),
        ),
    ),
    "records arrived in the millisecond before the start, and in its second half": FaultPlan(
        seed=78014090,
        workers=5,
        shards=4,
        duration_s=70.074,
        start="LATEST",
        before_s=3.723,
        records_per_s=8.0,
        aggregates=True,
        drift=0.015,
        limits=False,
        fan_out=True,
        page_span_s=3600.0,
        handle_s=0.0,
        failing=0.1,
        keys=40,
        program="pauses",
        options={
            "failover_s": 10.0,
            "drain_deadline_s": 10.0,
            "warm_deadline_s": 0.0,
            "batch_records_max": 3,
            "cadence": "every",
        },
    ),
    "a program sought in a shard that its worker had given up, and that was not handed over yet": FaultPlan(
        seed=0,
        workers=2,
        shards=1,
        duration_s=25.0,
        records_per_s=20.0,
        gives_up_after_s=1.0,
        cool_down_s=8.0,
        faults=(
            Noise(at_s=3.0, service=Service.TABLE, lasts_s=20.0, stale_s=2.0, frozen=True),
            Noise(at_s=3.0, service=Service.WORKERS, lasts_s=20.0, stale_s=2.0, frozen=True),
            Failing(at_s=4.0, worker=0, lasts_s=9.0),
            Seek(at_s=8.0, worker=0, choice=0.0, to="TRIM_HORIZON"),
        ),
    ),
    "a write of a worker's row arrived when the worker had left": FaultPlan(
        seed=8,
        workers=3,
        shards=6,
        duration_s=3.0,
        records_per_s=2.0,
        options={"failover_s": 10.0, "warm_deadline_s": 3.0, "drain_deadline_s": 5.0},
    ),
}

FOUND["a program sought another place before its worker could say that the former one was trimmed"] = FaultPlan(
    seed=0,
    workers=1,
    shards=1,
    duration_s=25.0,
    records_per_s=20.0,
    faults=(
        Outage(at_s=10.0, hours=60.0),
        Noise(at_s=13.5, service=Service.STREAM, lasts_s=11.0, slower=200.0),
        *(Seek(at_s=13.5 + 0.1 * one, worker=0, choice=0.0, to="TRIM_HORIZON") for one in range(110)),
    ),
)

FOUND["a program left its run in a drain, while what it put off lay before what it had settled"] = FaultPlan(
    seed=78012652,
    workers=5,
    shards=5,
    duration_s=16.0,
    records_per_s=20.0,
    fan_out=True,
    handle_s=0.5,
    streams=3,
    keys=40,
    program="late_orders",
    options={"failover_s": 10.0},
    faults=(
        Join(at_s=8.345623883586116),
        Leave(at_s=9.868846122217096, worker=0),
        Join(at_s=12.811624089386372),
        Leave(at_s=12.868342610033988, worker=1),
    ),
)

SHORT_DRAIN = FaultPlan(
    seed=0,
    workers=1,
    shards=1,
    duration_s=20.0,
    records_per_s=20.0,
    handle_s=0.5,
    keys=40,
    program="collects",
    options={"drain_deadline_s": 2.0, "batch_records_max": 20},
    faults=(Join(at_s=9.0), Leave(at_s=12.0, worker=0)),
)
"""The program has more collections when its worker leaves than it can handle until the drain's deadline."""
FOUND["a program sought in a shard whose lease its worker had lost while its machine slept"] = FaultPlan(
    workers=2,
    shards=1,
    duration_s=40.0,
    records_per_s=20.0,
    repeats=0.1,
    window_s=10.0,
    faults=(
        Pause(at_s=5.0, worker=0, lasts_s=25.0, suspended=True),
        Seek(at_s=10.0, worker=0, choice=0.0, to="LATEST"),
    ),
)
FOUND["a drain came to its deadline while the program was at work"] = SHORT_DRAIN
FOUND["a program prepared a checkpoint before the one that was found pending and done was stored"] = FaultPlan(
    seed=86000275,
    shards=2,
    handle_s=0.5,
    program="two_phase",
    options={"drain_deadline_s": 2.0, "batch_records_max": 3},
    faults=(
        SlowHandler(at_s=14.17, worker=2, lasts_s=13.97, handle_s=12.65),
        SlowHandler(at_s=15.33, worker=0, lasts_s=19.58, handle_s=3.32),
        Leave(at_s=17.458, worker=0),
        Leave(at_s=29.66, worker=2),
    ),
)
FOUND["a machine's clock was set an hour ahead while a page was asked for"] = FaultPlan(
    seed=78013380,
    workers=3,
    shards=6,
    duration_s=50.0,
    start="LATEST",
    before_s=3.022,
    foreign_leases=True,
    records_per_s=2.0,
    drift=0.005,
    page_span_s=5.0,
    handle_s=0.5,
    keys=4,
    repeats=0.1,
    window_s=60.0,
    window_waits=False,
    program="late_orders",
    options={
        "failover_s": 10.0,
        "drain_deadline_s": 10.0,
        "warm_deadline_s": 3.0,
        "batch_records_max": 20,
        "cadence": "prompt",
        "shard_records_max": 100,
    },
    faults=(
        Jump(at_s=28.007979099738986, worker=2, by_s=3600.0),
        Join(at_s=34.65273106791031),
        Join(at_s=34.75273106791031),
        Join(at_s=34.85273106791031),
        Leave(at_s=36.355027457478414, worker=0),
        Leave(at_s=36.455027457478415, worker=1),
        Leave(at_s=36.55502745747842, worker=2),
    ),
)


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_what_once_broke_a_rule_does_so_no_more(plan: FaultPlan) -> None:
    report = Simulator(plan).run()
    assert report.ok, report


def test_only_a_seek_brings_records_of_a_shard_that_was_given_up_and_only_in_that_tenure() -> None:
    now = [10.0]
    history = History(lambda: now[0], Promises(ConsumerOptions()))
    history.shard("s", "orders", (), taking=True)
    history.put("s", 1, [Put("k", b"1")], 1.0)
    position = Position(1)
    story = history.shards["s"]
    story.stored.update(dict.fromkeys((1, 2), Checkpoint.TRIM_HORIZON))

    def rules(token: int) -> set[str]:
        history.broken.clear()
        history.delivered("w0", "s", token, [position], None, by_key=False)
        history.given_back("s", [position], None)
        return {broken.rule for broken in history.broken}

    assert not rules(1)
    history.gave_up("w0", "s", 5.0)
    assert rules(1) == {"a shard comes back in its cool-down"}
    history.sought("w0", "s", 1, "TRIM_HORIZON", 10.0)
    assert not rules(1)
    history.gave_up("w0", "s", 5.0)
    assert rules(1) == rules(2) == {"a shard comes back in its cool-down"}
    now[0] = 15.0
    assert not rules(2)


def test_a_seek_of_a_worker_that_has_lost_the_lease_passes_over_nothing_that_the_present_owner_has_to_deliver() -> None:
    history = History(lambda: 50.0, Promises(ConsumerOptions()))
    history.shard("s", "orders", (), taking=True)
    for number in (1, 2):
        history.put("s", number, [Put("k", b"1")], 1700000000.0)
    story = history.shards["s"]
    first = LeaseRow(key="s", checkpoint=Checkpoint.TRIM_HORIZON, owner="w0", counter=1)
    history.row_written(None, first, "take")
    history.row_written(first, dataclasses.replace(first, owner="w1", counter=2), "take")

    history.sought("w0", "s", 1, "LATEST", 1700000046.0)
    assert not story.settled
    history.delivered("w1", "s", 2, [Position(1), Position(2)], None, by_key=False)
    assert not history.broken

    history.sought("w1", "s", 2, "LATEST", 1700000046.0)
    assert len(story.settled) == 2, "the owner's own seek passes over them"


def test_what_a_seek_passed_over_and_a_handler_settled_comes_again_where_the_seek_was_not_stored() -> None:
    repeats = Deduplicate(key=lambda record: record.data, window_s=10.0, wait=True)
    history = History(lambda: 50.0, Promises(ConsumerOptions(deduplicate=repeats)))
    history.shard("s", "orders", (), taking=True)
    for number in (1, 2):
        history.put("s", number, [Put("k", b"%d" % number)], 1700000045.0)
    first = LeaseRow(key="s", checkpoint=Checkpoint.TRIM_HORIZON, owner="w0", counter=1)
    history.row_written(None, first, "take")
    history.sought("w0", "s", 1, "LATEST", 1700000046.0)
    history.delivered("w0", "s", 1, [Position(1), Position(2)], None, by_key=False)
    history.settled("w0", "s", 1, [Position(2)], counts=True)
    history.row_written(first, dataclasses.replace(first, owner="w1", counter=2), "take")
    assert history.shards["s"].settled == {Position(2)}
    history.delivered("w1", "s", 2, [Position(1), Position(2)], None, by_key=False)
    assert not history.broken


def test_a_seek_to_latest_may_bring_what_arrived_in_the_millisecond_of_its_time_and_nothing_before_that() -> None:
    history = History(lambda: 50.0, Promises(ConsumerOptions()))
    history.shard("s", "orders", (), taking=True)
    for number, arrived_s in enumerate((1700000044.352, 1700000044.353, 1700000046.0), start=1):
        history.put("s", number, [Put("k", b"1")], arrived_s)
    history.shards["s"].stored.update(dict.fromkeys((1, 2), Checkpoint.TRIM_HORIZON))

    def rules(token: int, *numbers: int) -> set[str]:
        history.broken.clear()
        history.sought("w0", "s", token, "LATEST", 1700000046.3537621)
        history.delivered("w0", "s", token, [Position(number) for number in numbers], None, by_key=False)
        return {broken.rule for broken in history.broken}

    assert not rules(1, 2, 3), "two seconds before the seek, in the whole milliseconds of arrival times, is 44.353"
    assert rules(2, 1) == {"a record of the former place"}


def test_a_loss_is_told_unless_the_program_seeks_a_place_that_says_nothing_of_it() -> None:
    history = History(lambda: 10.0, Promises(ConsumerOptions()))
    history.shard("s", "orders", (), taking=True)
    for number in range(1, 5):
        history.put("s", number, [Put("k", b"1")], float(number))
    history.settled("w0", "s", 1, [Position(1)], counts=True)
    row = LeaseRow(key="s", owner="w0", counter=1, checkpoint=Checkpoint.at(Position(1)))
    history.row_written(None, row, "take")
    history.trimmed(3.5, {"s"})
    assert history.untold == ["s"]
    history.sought("w0", "s", 1, Position(2), 10.0)
    assert history.untold == ["s"], "the record at 3 lies behind it"
    for place in ("LATEST", "TRIM_HORIZON", 2.0, Position(3)):
        history.sought("w0", "s", 1, place, 10.0)
        assert not history.untold
    taken = dataclasses.replace(row, owner="w1", counter=2)
    history.row_written(row, taken, "take")
    assert history.untold == ["s"], "the seek held for that tenure"
    history.settled("w1", "s", 2, [Position(4)], counts=True)
    stored = dataclasses.replace(taken, counter=3, checkpoint=Checkpoint.at(Position(4)))
    history.row_written(taken, stored, "checkpoint")
    assert history.untold == ["s"], "no worker has said why it went on there"
    history.event(CheckpointTrimmed("orders", "s", Position(1), Position(4), surely_nothing_lost=True), "s")
    assert history.untold == ["s"]
    history.event(CheckpointTrimmed("orders", "s", Position(1), Position(4), surely_nothing_lost=False), "s")
    assert not history.untold


def test_a_seek_hides_no_loss_that_the_tenure_has_read_over() -> None:
    history = History(lambda: 10.0, Promises(ConsumerOptions()))
    history.shard("s", "orders", (), taking=True)
    for number in range(1, 4):
        history.put("s", number, [Put("k", b"1")], float(number))
    history.settled("w0", "s", 1, [Position(1)], counts=True)
    row = LeaseRow(key="s", owner="w0", counter=1, checkpoint=Checkpoint.at(Position(1)))
    history.row_written(None, row, "take")
    history.trimmed(2.5, {"s"})
    history.delivered("w0", "s", 1, [Position(3)], None, by_key=False)
    history.sought("w0", "s", 1, "LATEST", 10.0)
    assert history.untold == ["s"]
    assert not history.broken


def test_a_checkpoint_behind_a_place_that_was_sought_ends_the_matter_of_a_loss() -> None:
    history = History(lambda: 10.0, Promises(ConsumerOptions()))
    history.shard("s", "orders", (), taking=True)
    for number in range(1, 4):
        history.put("s", number, [Put("k", b"1")], float(number))
    history.settled("w0", "s", 1, [Position(1), Position(3)], counts=True)
    row = LeaseRow(key="s", owner="w0", counter=1, checkpoint=Checkpoint.at(Position(1)))
    history.row_written(None, row, "take")
    history.trimmed(2.5, {"s"})
    history.sought("w0", "s", 1, "TRIM_HORIZON", 10.0)
    stored = dataclasses.replace(row, counter=2, checkpoint=Checkpoint.at(Position(3)))
    history.row_written(row, stored, "checkpoint")
    history.row_written(stored, dataclasses.replace(stored, owner="w1", counter=3), "take")
    assert not history.untold
    assert not history.broken


@pytest.mark.parametrize(
    ("left_s", "taken_again", "faults"),
    [(None, False, 1), (9.9, False, 0), (8.0, False, 1), (9.9, True, 2)],
    ids=["it stays", "it leaves", "it left long before", "it comes back and takes it"],
)
def test_what_comes_again_is_no_fault_where_the_program_left_its_run_in_the_drain(
    left_s: float | None, taken_again: bool, faults: int
) -> None:
    now = [1.0]
    history = History(lambda: now[0], Promises(ConsumerOptions()))
    history.shard("s", "orders", (), taking=True)
    history.put("s", 1, [Put("a", b"1")], 1.0)
    history.put("s", 2, [Put("b", b"2")], 1.0)
    row = LeaseRow(key="s", owner="w0", counter=1, checkpoint=Checkpoint.TRIM_HORIZON)
    history.row_written(None, row, "take")
    history.delivered("w0", "s", 1, [Position(1), Position(2)], None, by_key=False)
    history.settled("w0", "s", 1, [Position(2)], counts=True)
    history.put_off("w0", "s", 1, [Position(1)], None)
    if left_s is not None:
        now[0] = left_s
        history.left("w0")
    if taken_again:
        history.delivered("w0", "s", 1, [Position(1)], None, by_key=False)
    now[0] = 10.0
    history.row_written(row, dataclasses.replace(row, owner="w1", counter=2), "give")
    history.delivered("w1", "s", 2, [Position(1), Position(2)], None, by_key=False)
    assert history.counts.done_again == (faults > 0)
    assert history.counts.handed_twice == faults
    assert not history.broken


def test_what_comes_again_is_no_fault_only_where_the_drain_lasted_until_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SHORT_DRAIN.calm
    simulator = Simulator(SHORT_DRAIN)
    assert simulator.run().ok
    assert simulator.history.counts.duplicates > 0
    drains_are_not_awaited(monkeypatch)
    assert {broken.rule for broken in Simulator(SHORT_DRAIN).run().broken} >= AGAIN
