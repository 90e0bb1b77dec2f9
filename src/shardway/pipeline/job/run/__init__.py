"""A run of a job, from its start to its end.

Read ``program`` first, then ``query``, which runs a job: ``rehearsal``, ``places`` and ``unfinished_start`` come before
its query, ``claim`` keeps a second run away, ``stopping`` ends it. ``stream_check`` asks the service beside Spark's
start. ``reports`` counts what was done, and ``output`` shows it.
"""
