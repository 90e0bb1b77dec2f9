"""The schemas of ``value`` for what services of AWS put into a stream, as DDL.

A part whose fields differ by table stays JSON, in a STRING: a schema has to be known before the first record is.
"""

from __future__ import annotations

CLOUDWATCH_LOGS, DMS, DYNAMODB_CHANGE = "cloudwatch-logs", "dms", "dynamodb-change"
"""The formats, by their names in a job file."""

SERVICE_SCHEMAS = {
    CLOUDWATCH_LOGS: (
        "message_type STRING, owner STRING, log_group STRING, log_stream STRING, subscription_filters ARRAY<STRING>,"
        " log_events ARRAY<STRUCT<id: STRING, timestamp: TIMESTAMP, message: STRING,"
        " extracted_fields: MAP<STRING, STRING>>>"
    ),
    DMS: (
        "record_type STRING, operation STRING, schema_name STRING, table_name STRING, timestamp TIMESTAMP,"
        " transaction_id STRING, data STRING, before_image STRING, metadata STRING"
    ),
    DYNAMODB_CHANGE: (
        "event_id STRING, event_name STRING, table_name STRING, region STRING, created TIMESTAMP, keys STRING,"
        " new_image STRING, old_image STRING, size_bytes BIGINT, is_expiry BOOLEAN"
    ),
}
"""The fields of each format. ``payload_rows`` makes them, in this order."""
