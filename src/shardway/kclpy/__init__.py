"""Runs record processors that were written for ``amazon_kclpy``, without its JVM (``shardway kclpy``).

``properties`` makes options of a MultiLangDaemon's file (``properties_file``, ``known_properties``). ``daemon`` reads
the shards by a `Consumer`; ``session`` starts one process for each (``processor``), and tells that process what KCL's
MultiLangDaemon would tell it. ``child`` runs there, with the user's code, on ``amazon_kclpy``
or on its ``shim``: ``child`` and ``shim`` import the standard library alone.
"""
