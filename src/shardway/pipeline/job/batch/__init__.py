"""One batch of a job: ``steps`` has what becomes of its rows, ``batches`` writes it to all sinks in turn, and
``observations`` watches the write that needs no second pass. ``payloads`` plans the opening of compressed data.
``windows`` has the steps of a job with windows, and ``window_batches`` writes what they close.
``expectations`` holds decoded rows against the job's expectations, and ``conditions`` has their SQL.
"""
