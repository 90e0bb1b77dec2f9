"""The KPL's aggregates: many user records in one Kinesis record, as bytes that are written and read.

Read the modules in this order:

- `wire_format`: an aggregate consists of a magic, a message and a digest.
- `fields`: the encoding of the message's fields, one at a time and by columns.
- `writer`: the `Aggregator`, which collects user records until an aggregate is full.
- `aggregate`: an opened aggregate, and the limits within which one is opened.
- `reader`: `open_aggregate`, which tells an aggregate from a plain record and opens it.
"""
