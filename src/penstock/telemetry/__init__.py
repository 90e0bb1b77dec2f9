"""What is made of `penstock.events`, for people and for other systems: lines of a log, and exporters of numbers.

An exporter is an ``on_event``; `together` makes one of several. The names are in ``docs/reference/telemetry.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.telemetry.cloudwatch import CloudWatchChoice
    from penstock.telemetry.endpoint import PrometheusExporter
    from penstock.telemetry.exporting import together
    from penstock.telemetry.libraries import OpenTelemetryExporter, PrometheusCollector
    from penstock.telemetry.pushing import CloudWatchExporter, EmfExporter, OtlpExporter

__all__ = [
    "CloudWatchChoice",
    "CloudWatchExporter",
    "EmfExporter",
    "OpenTelemetryExporter",
    "OtlpExporter",
    "PrometheusCollector",
    "PrometheusExporter",
    "together",
]

_HOMES = {
    "CloudWatchChoice": "cloudwatch",
    "CloudWatchExporter": "pushing",
    "EmfExporter": "pushing",
    "OpenTelemetryExporter": "libraries",
    "OtlpExporter": "pushing",
    "PrometheusCollector": "libraries",
    "PrometheusExporter": "endpoint",
    "together": "exporting",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use (PEP 562)."""
    if name in _HOMES:
        module = importlib.import_module(f"penstock.telemetry.{_HOMES[name]}")
        return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'penstock.telemetry' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
