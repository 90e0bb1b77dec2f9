"""Tables of formats with transactions: ``table_sink`` has what they share, which is to be read first, ``delta`` and
``iceberg`` how each names a batch in its commits, by the keys in ``commit_keys``.
"""
