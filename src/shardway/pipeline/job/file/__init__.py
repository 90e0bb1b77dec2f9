"""A job file, from its text to a checked job.

Read ``model`` first, which has the job as the file declares it; then ``job_file``, which reads a file in this order:
``environment`` fills in values, ``conversion`` makes the structs, and ``rules`` looks at what lies between the fields,
with ``ddl`` for a schema, ``decode_rules`` for the data, ``expectation_rules`` and ``window_rules``. ``faults`` and
``lines`` say what is wrong on which line. ``schema`` is for editors. ``one_batch`` finds what a query computes over one
batch alone.
"""
