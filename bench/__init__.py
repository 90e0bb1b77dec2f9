"""Holds the benchmarks. Each program prints a table and, with ``--json``, one JSON object (see ``_form``)."""
