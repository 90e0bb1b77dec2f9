"""Runs record processors that were written for ``amazon_kclpy``, without its JVM (``penstock kclpy``).

``daemon`` reads the shards by a `Consumer`; ``session`` starts one process for each, and tells
that process what KCL's MultiLangDaemon would tell it. ``child`` is what runs there, with the user's code, on
``amazon_kclpy`` or on its ``shim``: those two import the standard library alone.
"""
