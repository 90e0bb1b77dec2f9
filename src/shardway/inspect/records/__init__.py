"""Records of a stream, as a reader of the read model sees them.

Read ``seen_records`` first, then ``reader``, with ``fan_out`` for what is pushed. ``decoding`` takes a record's data
apart. ``registries`` fetches the schemas that records name, from Glue and from elsewhere.
`shardway.payloads` opens what is compressed, and reads Avro within bounds.
"""
