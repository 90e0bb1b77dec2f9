"""Telemetry makes of `penstock.events` what people and other systems read: lines of a log, and exporters of numbers.

An exporter is an ``on_event``; `together` makes one of several. The names are in ``docs/reference/telemetry.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.public import loaded_from

if TYPE_CHECKING:
    from penstock.telemetry.cloudwatch import CloudWatchChoice, CloudWatchExporter, EmfExporter
    from penstock.telemetry.exporting import together
    from penstock.telemetry.libraries import OpenTelemetryExporter, PrometheusCollector
    from penstock.telemetry.otlp import OtlpExporter
    from penstock.telemetry.prometheus import PrometheusExporter
    from penstock.telemetry.tracing import OpenTelemetryTracing

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
    "CloudWatchChoice": "penstock.telemetry.cloudwatch",
    "CloudWatchExporter": "penstock.telemetry.cloudwatch",
    "EmfExporter": "penstock.telemetry.cloudwatch",
    "OpenTelemetryExporter": "penstock.telemetry.libraries",
    "OpenTelemetryTracing": "penstock.telemetry.tracing",
    "OtlpExporter": "penstock.telemetry.otlp",
    "PrometheusCollector": "penstock.telemetry.libraries",
    "PrometheusExporter": "penstock.telemetry.prometheus",
    "together": "penstock.telemetry.exporting",
}
"""The module of each public name. A use of the name loads this module, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
