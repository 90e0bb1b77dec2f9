"""Spark, started for a job.

Read ``session`` first; it asks ``java`` to start the JVM. ``packages`` and ``repositories`` say what Spark is given for
a format, and ``state_store`` where the state of a job is kept.
"""
