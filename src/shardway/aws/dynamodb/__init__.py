"""Leases in DynamoDB.

`lease_table` is the table as `shardway.ports` asks for it; `client` makes its calls, and `values` carries plain values
into DynamoDB's typed ones and back.
"""
