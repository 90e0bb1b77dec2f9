"""Spark jobs, looked at from the outside: ``jobs`` chooses the way by the place, ``metrics_page``,
``checkpoint_directory`` and ``lines_file`` are the ways, ``views`` has the values (``offsets`` makes some of them), and
``verdicts`` judges them.
"""
