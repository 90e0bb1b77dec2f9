"""The reads of the read model: ``wire`` sends them, ``paces`` says how often each shard may be asked, ``answers`` makes
values of what came. ``shard_log`` is for reading a shard on, and ``ports`` has what other parts ask of an inspector.
"""
