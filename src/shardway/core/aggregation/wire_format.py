"""The wire format of the KPL's aggregates: the magic, the tags of the fields, and the digest.

An aggregate consists of a magic, one protobuf message, and the MD5 of that message::

    F3 89 9A C2 | AggregatedRecord | MD5 of the AggregatedRecord (16 bytes)

    message AggregatedRecord {
      repeated string partition_key_table     = 1;
      repeated string explicit_hash_key_table = 2;
      repeated Record records                 = 3;
    }
    message Record {
      required uint64 partition_key_index     = 1;  // into the table, from 0
      optional uint64 explicit_hash_key_index = 2;  // only where the user gave a hash key
      required bytes  data                    = 3;
      repeated Tag    tags                    = 4;  // never written by the KPL
    }
    message Tag {
      required string key   = 1;
      optional string value = 2;
    }

Source: aggregation-format.md of the Kinesis Producer Library ("KPL Aggregated Record Format").
"""

from __future__ import annotations

from shardway.core.protobuf import DELIMITED, VARINT

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
FRAME_BYTES = len(MAGIC) + DIGEST_BYTES

# The tags of the fields above are: field number << 3 | wire type, one byte each.
PARTITION_KEY_TABLE = 1 << 3 | DELIMITED
EXPLICIT_HASH_KEY_TABLE = 2 << 3 | DELIMITED
RECORDS = 3 << 3 | DELIMITED
PARTITION_KEY_INDEX = 1 << 3 | VARINT
EXPLICIT_HASH_KEY_INDEX = 2 << 3 | VARINT
DATA = 3 << 3 | DELIMITED
TAGS = 4 << 3 | DELIMITED
TAG_KEY = 1 << 3 | DELIMITED
TAG_VALUE = 2 << 3 | DELIMITED
