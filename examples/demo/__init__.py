"""The demo: orders through a stream that is split and merged, and a query that is killed, counted at the end.

``python -m examples.demo`` (``make demo``) runs it. ``orders`` decides what is written and ``producer`` writes it,
``run`` starts, kills and stops the job file ``examples/jobs/orders.toml``, and ``count`` compares what arrived with
what was written.
"""
