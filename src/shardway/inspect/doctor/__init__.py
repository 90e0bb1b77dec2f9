"""What is wrong with an application and its stream.

Each symptom has a pure function that finds its evidence in a snapshot: it yields a sentence for each thing that was
seen, and nothing where the symptom is not there, or where the snapshot does not show it.

Read ``snapshots`` first, which ``snapshot_reader`` takes (with ``metric_figures``), then ``examination`` and
``findings``. ``symptoms`` is the table. What shows each symptom is found by ``reading_evidence``,
``lease_evidence``, ``stream_evidence`` and ``account_evidence``, which share ``facts``; ``blind_spots`` finds for
which symptoms the looks were too short.
"""
