"""A run of a job, from its start to its end.

Read ``check`` first, which needs no Spark, and ``program``; then ``query``, which runs a job: ``rehearsal``,
``places`` and ``unfinished_start`` come before its query (and ``window_rehearsal`` and ``window_note`` for a job with
windows), ``claim`` keeps a second run away, ``stopping`` ends it. ``stream_check`` asks the service beside Spark's
start. ``reports`` counts what was done, and ``output`` shows it.
"""
