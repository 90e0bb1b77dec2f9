"""The demo: orders through a stream that is split and merged, and a query that is killed, counted at the end.

``python -m examples.demo`` (``make demo``) runs it. ``orders`` decides what is written and ``producer`` writes it,
``run`` starts and kills ``examples/orders_to_parquet.py``, and ``count`` compares what arrived with what was written.
"""
