"""What every sink of Spark's metrics system is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def gauges(spark: SparkSession, before: str) -> dict[str, int]:
    """The gauges of accumulators whose names begin so: the rest of each name, and its value."""
    found = {}
    sources = _metrics_system(spark).getSourcesByName("AccumulatorSource")
    for place in range(sources.size()):
        for entry in sources.apply(place).metricRegistry().getGauges().entrySet():
            name = str(entry.getKey())
            if name.startswith(before):
                found[name.removeprefix(before)] = int(entry.getValue().getValue())
    return found


def told_all(spark: SparkSession) -> None:
    """Wait until listeners have heard all that happened."""
    jsc: Any = spark.sparkContext._jsc
    jsc.sc().listenerBus().waitUntilEmpty()


def _metrics_system(spark: SparkSession) -> Any:
    """By a handle of one method: to look at all of its class, Java would need a package that is not there."""
    jvm: Any = spark.sparkContext._jvm
    jsc: Any = spark.sparkContext._jsc
    of = jvm.java.lang.Class.forName
    kind = jvm.java.lang.invoke.MethodType.methodType(of("org.apache.spark.metrics.MetricsSystem"))
    lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
    handle = lookup.findVirtual(of("org.apache.spark.SparkEnv"), "metricsSystem", kind)
    return handle.bindTo(jsc.sc().env()).invokeWithArguments(jvm.java.util.ArrayList())
