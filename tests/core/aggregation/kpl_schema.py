"""The KPL's messages for Google's protobuf library, as an independent reader and writer of the format."""

from __future__ import annotations

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_FILE = descriptor_pb2.FileDescriptorProto(name="shardway_tests_kpl.proto", package="kpl", syntax="proto2")
_FIELD = descriptor_pb2.FieldDescriptorProto


def _message(name: str, *fields: tuple[str, int, int, int]) -> None:
    message = _FILE.message_type.add(name=name)
    for field_name, number, label, kind in fields:
        type_name = {"records": ".kpl.Record", "tags": ".kpl.Tag"}.get(field_name)
        message.field.add(name=field_name, number=number, label=label, type=kind, type_name=type_name)


_message(
    "AggregatedRecord",
    ("partition_key_table", 1, _FIELD.LABEL_REPEATED, _FIELD.TYPE_STRING),
    ("explicit_hash_key_table", 2, _FIELD.LABEL_REPEATED, _FIELD.TYPE_STRING),
    ("records", 3, _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE),
)
_message(
    "Tag",
    ("key", 1, _FIELD.LABEL_REQUIRED, _FIELD.TYPE_STRING),
    ("value", 2, _FIELD.LABEL_OPTIONAL, _FIELD.TYPE_STRING),
)
_message(
    "Record",
    ("partition_key_index", 1, _FIELD.LABEL_REQUIRED, _FIELD.TYPE_UINT64),
    ("explicit_hash_key_index", 2, _FIELD.LABEL_OPTIONAL, _FIELD.TYPE_UINT64),
    ("data", 3, _FIELD.LABEL_REQUIRED, _FIELD.TYPE_BYTES),
    ("tags", 4, _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE),
)
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_FILE)

AggregatedRecord = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("kpl.AggregatedRecord"))
