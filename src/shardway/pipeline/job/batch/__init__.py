"""One batch of a job: ``steps`` has what becomes of its rows, ``batches`` writes it to all sinks in turn, and
``observations`` watches the write that needs no second pass.
"""
