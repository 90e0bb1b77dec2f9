"""The error of a call into Spark's JVM, also where there is no JVM: a Spark Connect client has no py4j, and the check
of a job file needs no PySpark.
"""

try:
    from py4j.protocol import Py4JError as Py4JError  # type: ignore[import-untyped]
except ModuleNotFoundError:

    class Py4JError(Exception):  # type: ignore[no-redef]
        """A stand-in that is never raised: nothing calls into a JVM here."""
