"""The only package that speaks AWS: signed calls to its services, over an HTTP client of its own.

Read the modules in this order:

- `options`: what a program says of its connection.
- `wire`: the client that all calls go through. `sdk` and `endpoints` say where a call goes; `credentials`,
  `program_credentials` and `assumed_role` what signs it; `calls` makes a signed call; `transport` and `http` carry it.
- `kinesis`: the typed calls to Kinesis; `cbor` encodes large records for them.
- `record_sink` and `record_source`: a stream as a producer writes it, and as a consumer reads it (`event_stream`).
- `dynamodb`: leases in DynamoDB.
- `posters`: bodies that are posted as they are, to CloudWatch and to collectors of metrics.
"""
