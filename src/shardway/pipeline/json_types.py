"""Make JSON types as strict as a schema says them, from Spark's own expressions.

``from_json`` turns any JSON value into text where a string is wanted, and forgets which fields are required. So
required fields are checked after parsing. A text that could also be a number, ``true``, ``false``, an object or an
array is parsed a second time, as a variant, because a variant knows its type. A variant costs about twice as much as a
string, so a record is parsed once if none of its texts could be another value.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column


_NO_NUMBER = "[^-+.0-9eE]"


def has_string(of: DataType) -> bool:
    """True when a string lies anywhere in this type."""
    if isinstance(of, StructType):
        return any(has_string(field.dataType) for field in of.fields)
    if isinstance(of, ArrayType):
        return has_string(of.elementType)
    if isinstance(of, MapType):
        return has_string(of.valueType)
    return isinstance(of, StringType)


def parsed_as(of: DataType, *, variants: bool) -> DataType:
    """Return the type for ``from_json``, which may give null for all of it: nothing is required. ``variants``: every
    string is parsed as a variant, so that it can be told from other values.
    """
    if isinstance(of, StructType):
        fields = [StructField(field.name, parsed_as(field.dataType, variants=variants)) for field in of.fields]
        return StructType(fields)
    if isinstance(of, ArrayType):
        return ArrayType(parsed_as(of.elementType, variants=variants))
    if isinstance(of, MapType):
        return MapType(of.keyType, parsed_as(of.valueType, variants=variants))
    return VariantType() if variants and isinstance(of, StringType) else of


def restored(column: Column, of: DataType) -> Column:
    """Return a column that was parsed with variants in the type that was asked for: the variants are made strings."""
    if not has_string(of):
        return column
    if isinstance(of, StructType):
        fields = [restored(column.getField(f.name), f.dataType).alias(f.name) for f in of.fields]
        return fn.when(column.isNotNull(), fn.struct(*fields))
    if isinstance(of, ArrayType):
        element = of.elementType
        return fn.transform(column, lambda item: restored(item, element))
    if isinstance(of, MapType):
        value = of.valueType
        return fn.transform_values(column, lambda _, item: restored(item, value))
    return column.cast(of)


def may_be_no_strings(column: Column, of: DataType) -> Column:
    """True where a string of this type, as ``from_json`` gives it, could be the text of another JSON value. Never
    null.
    """
    if isinstance(of, StructType):
        return _any_of(
            may_be_no_strings(column.getField(f.name), f.dataType) for f in of.fields if has_string(f.dataType)
        )
    if isinstance(of, ArrayType):
        element = of.elementType
        found = fn.exists(column, lambda item: may_be_no_strings(item, element))
    elif isinstance(of, MapType):
        value = of.valueType
        found = fn.exists(fn.map_values(column), lambda item: may_be_no_strings(item, value))
    else:
        # Texts are compared as bytes: a collation may make a string equal to others. The first byte
        # rules out most of them, and costs least.
        text = column.cast("binary")
        number = _begins(text, b"-", b":") & ~column.cast("string").rlike(_NO_NUMBER)
        words = (text == fn.lit(b"true")) | (text == fn.lit(b"false"))
        found = number | _begins(text, b"[", b"\\") | _begins(text, b"{", b"|") | words
    return fn.coalesce(found, fn.lit(False))


def _begins(text: Column, first: bytes, behind: bytes) -> Column:
    """True where the first byte of a text is ``first``, or a later one that lies before ``behind``."""
    return (text >= fn.lit(first)) & (text < fn.lit(behind))


def strings_are_strings(column: Column, of: DataType) -> Column:
    """True where every string of this type was a JSON string (or null, or absent)."""
    if isinstance(of, StructType):
        return _all_of(
            strings_are_strings(column.getField(f.name), f.dataType) for f in of.fields if has_string(f.dataType)
        )
    if isinstance(of, ArrayType):
        element = of.elementType
        return column.isNull() | fn.forall(column, lambda item: strings_are_strings(item, element))
    if isinstance(of, MapType):
        value = of.valueType
        return column.isNull() | fn.forall(fn.map_values(column), lambda item: strings_are_strings(item, value))
    return column.isNull() | fn.schema_of_variant(column).isin("STRING", "VOID")


def has_required(of: DataType) -> bool:
    """True when something inside of this type may not be null."""
    if isinstance(of, StructType):
        return any(not field.nullable or has_required(field.dataType) for field in of.fields)
    if isinstance(of, ArrayType):
        return not of.containsNull or has_required(of.elementType)
    if isinstance(of, MapType):
        return not of.valueContainsNull or has_required(of.valueType)
    return False


def required_are_there(column: Column, of: DataType, *, required: bool = True) -> Column:
    """True where nothing that the type requires is null.

    ``required``: the column itself may not be null either. What lies inside of an optional value is required where that
    value is there.
    """
    inside = fn.lit(True)
    if isinstance(of, StructType):
        inside = _all_of(
            required_are_there(column.getField(f.name), f.dataType, required=not f.nullable)
            for f in of.fields
            if not f.nullable or has_required(f.dataType)
        )
    elif isinstance(of, ArrayType) and has_required(of):
        element, needed = of.elementType, not of.containsNull
        inside = fn.forall(column, lambda item: required_are_there(item, element, required=needed))
    elif isinstance(of, MapType) and has_required(of):
        value, needed = of.valueType, not of.valueContainsNull
        inside = fn.forall(fn.map_values(column), lambda item: required_are_there(item, value, required=needed))
    return column.isNotNull() & inside if required else column.isNull() | inside


def fields_of(of: StructType, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Yield every field with the path to it, also those of nested structs, parents first."""
    for field in of.fields:
        path = (*at, field.name)
        yield path, field
        if isinstance(field.dataType, StructType):
            yield from fields_of(field.dataType, path)


def _any_of(checks: Iterator[Column]) -> Column:
    return reduce(or_, checks)


def _all_of(checks: Iterator[Column]) -> Column:
    result = fn.lit(True)
    for check in checks:
        result = result & check
    return result
