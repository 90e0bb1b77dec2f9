# Written by scripts/stubs.py from the list in __init__.py.

from shardway.telemetry.cloudwatch import CloudWatchExporter as CloudWatchExporter
from shardway.telemetry.cloudwatch import EmfExporter as EmfExporter
from shardway.telemetry.cloudwatch_datums import CloudWatchChoice as CloudWatchChoice
from shardway.telemetry.exporting import together as together
from shardway.telemetry.libraries import OpenTelemetryExporter as OpenTelemetryExporter
from shardway.telemetry.libraries import PrometheusCollector as PrometheusCollector
from shardway.telemetry.otlp import OtlpExporter as OtlpExporter
from shardway.telemetry.prometheus import PrometheusExporter as PrometheusExporter
from shardway.telemetry.tracing import OpenTelemetryTracing as OpenTelemetryTracing

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
