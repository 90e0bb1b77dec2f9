"""Applications and their leases: ``stores`` names where the tables are, ``tables`` opens them (with
``dynamodb_tables`` and ``sql_tables``), and ``views`` makes values of their rows.
"""
