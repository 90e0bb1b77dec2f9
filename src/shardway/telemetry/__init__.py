"""Telemetry makes of `shardway.events` what people and other systems read: lines of a log, and exporters of numbers.

An exporter is an ``on_event``; `together` makes one of several. The names are in ``docs/reference/telemetry.md``.

Read ``metrics`` and ``metric_table`` first, then ``points``, which are made of the snapshots in
`shardway.events` (``consumer_meter`` counts a consumer's). ``exporting`` and ``pushing`` are below the ways out:
``prometheus`` (``prometheus_page``, and ``health`` for the probes), ``otlp`` (``otlp_request``), ``cloudwatch``
(``cloudwatch_datums``, ``cloudwatch_requests``, ``emf``) and ``libraries``. ``log`` stands beside them, and ``tracing``
with ``trace_contexts``.
"""

from __future__ import annotations

from shardway.public import loaded_from

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

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
