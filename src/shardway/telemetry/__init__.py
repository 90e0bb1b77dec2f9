"""Telemetry makes of `shardway.events` what people and other systems read: lines of a log, and exporters of numbers.

An exporter is an ``on_event``; `together` makes one of several. The names are in ``docs/reference/telemetry.md``.

Read ``metrics`` and ``metric_table`` first, then ``points``, which are made of the snapshots in
`shardway.events` (``consumer_meter`` counts a consumer's). ``exporting`` and ``pushing`` are below the ways out:
``prometheus``, ``otlp``, ``cloudwatch`` (with ``emf``) and ``libraries``. ``log`` and ``tracing`` stand beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.public import loaded_from

if TYPE_CHECKING:
    from shardway.telemetry.cloudwatch import CloudWatchExporter, EmfExporter
    from shardway.telemetry.cloudwatch_datums import CloudWatchChoice
    from shardway.telemetry.exporting import together
    from shardway.telemetry.libraries import OpenTelemetryExporter, PrometheusCollector
    from shardway.telemetry.otlp import OtlpExporter
    from shardway.telemetry.prometheus import PrometheusExporter
    from shardway.telemetry.tracing import OpenTelemetryTracing

__all__ = [
    "CloudWatchChoice",
    "CloudWatchExporter",
    "EmfExporter",
    "OpenTelemetryExporter",
    "OpenTelemetryTracing",
    "OtlpExporter",
    "PrometheusCollector",
    "PrometheusExporter",
    "together",
]

_HOMES = {
    "CloudWatchChoice": "shardway.telemetry.cloudwatch_datums",
    "CloudWatchExporter": "shardway.telemetry.cloudwatch",
    "EmfExporter": "shardway.telemetry.cloudwatch",
    "OpenTelemetryExporter": "shardway.telemetry.libraries",
    "OpenTelemetryTracing": "shardway.telemetry.tracing",
    "OtlpExporter": "shardway.telemetry.otlp",
    "PrometheusCollector": "shardway.telemetry.libraries",
    "PrometheusExporter": "shardway.telemetry.prometheus",
    "together": "shardway.telemetry.exporting",
}
"""The module of each public name. A use of the name loads this module, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
