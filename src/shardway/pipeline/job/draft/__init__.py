"""A job file that is made of a stream's own records.

``inferred_schema`` finds the fields, ``draft`` writes the file, and ``toml`` its texts.
"""
