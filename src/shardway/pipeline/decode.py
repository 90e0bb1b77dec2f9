"""Decode raw records to values, and set apart what could not be decoded.

Every ``decode_...`` function keeps the columns of the source and adds two: ``value``, and ``reason``, which is null
where the value is good and says why there is none where it is not. ``split`` parts the two.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.sql.types import (
    BooleanType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from shardway.errors import OptionError
from shardway.pipeline.dataframes import schema_of, with_column, without
from shardway.pipeline.json_types import (
    fields_of,
    has_required,
    has_string,
    may_be_no_strings,
    parsed_as,
    required_are_there,
    restored,
    strings_are_strings,
)
from shardway.pipeline.jvm import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame


VALUE = "value"
"""The column that holds what was decoded."""
REASON = "reason"
"""The column that says why there is no value; null where there is one."""
NOT_UTF8 = "not valid UTF-8"
NOT_ONE_OBJECT = "not exactly one JSON object"
WRONG_TYPE = "a field is not of its type"
MISSING = "a required field is missing"
_DATA = "data"
_TEXT, _PARSED, _STRICT = "_shardway_text", "_shardway_parsed", "_shardway_strict"
_END, _BROKEN = "end", "_shardway_broken"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BROKEN,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def decode_bytes(records: DataFrame) -> DataFrame:
    """``value`` is the data as it is, BINARY. Nothing is undecodable."""
    return _with_columns(records, value=fn.col(_DATA), reason=fn.lit(None).cast("string"))


def decode_text(records: DataFrame) -> DataFrame:
    """``value`` is the data as text, STRING. What is not valid UTF-8 is undecodable."""
    text = fn.try_validate_utf8(fn.col(_DATA).cast("string"))
    return _with_columns(records, value=text, reason=fn.when(text.isNull(), fn.lit(NOT_UTF8)))


def decode_json(records: DataFrame, schema: StructType | str) -> DataFrame:
    """``value`` is the data as one JSON object of this schema, a STRUCT.

    ``schema`` is a StructType or its DDL (``"order_id STRING NOT NULL, amount DECIMAL(10,2)"``). A record cannot be
    decoded in four cases:

    - It is not valid UTF-8.
    - It is not exactly one JSON object, but one that is cut off, two, or an array.
    - A field has another type than the schema says.
    - A field that the schema calls NOT NULL is missing or null.

    Fields that the schema does not name are ignored. A number is not taken from a string, nor a string from a number.
    But a DECIMAL may stand in a string and is rounded to its scale, and dates and timestamps are strings as Spark's
    JSON reader takes them.

    Raises OptionError for a schema that is no struct or has no field.
    """
    wanted = _struct(schema)
    parsed = _parse(records, parsed_as(wanted, variants=False))
    strict, extra = parsed, [_TEXT, _PARSED]
    if has_string(wanted):
        # This is a column of its own: else Spark would parse the record again for each of its strings.
        doubtful = may_be_no_strings(fn.col(f"{_PARSED}.{VALUE}"), wanted)
        strict = with_column(parsed, _STRICT, fn.when(doubtful, _parse_json(parsed_as(wanted, variants=True))))
        extra.append(_STRICT)
    checked = with_column(strict, REASON, _reason(wanted))
    good = fn.when(fn.col(REASON).isNull(), fn.col(f"{_PARSED}.{VALUE}"))
    return without(with_column(checked, VALUE, good), *extra)


def explain_json(dead_letters: DataFrame, schema: StructType | str) -> DataFrame:
    """Return dead letters of ``decode_json`` with reasons that name the fields: ``amount is not decimal(10,2)``.

    Give the same schema. Data is looked at a second time, which is why ``decode_json`` does not do this for all.
    What was in a field is never shown.
    """
    wanted = _struct(schema)
    parsed = _parse(dead_letters, parsed_as(wanted, variants=True))
    return without(with_column(parsed, REASON, _explanation(wanted), new=False), _TEXT, _PARSED)


class JsonFaults:
    """Does what ``explain_json`` does for dead letters of the same columns, batch by batch: the questions to Spark are
    made once.
    """

    def __init__(self, schema: StructType | str, columns: Sequence[str]) -> None:
        self._schema = schema
        self._columns = list(columns)
        self._steps = [
            Selection(lambda: [fn.col("*"), _text().alias(_TEXT)]),
            Selection(lambda: [fn.col("*"), _parse_json(parsed_as(self._wanted_type, variants=True)).alias(_PARSED)]),
            Selection(self._explained_columns),
        ]

    def of(self, dead_letters: DataFrame) -> DataFrame:
        """Return the dead letters with reasons that name the fields."""
        return reduce(lambda rows, step: step.of(rows), self._steps, dead_letters)

    @property
    def _wanted_type(self) -> StructType:
        return _struct(self._schema)

    def _explained_columns(self) -> list[Column]:
        reason = _explanation(self._wanted_type).alias(REASON)
        return [reason if name == REASON else fn.col(name) for name in self._columns]


def split(decoded: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return (what was decoded, what was not) of a DataFrame that a ``decode_...`` function made.

    The first has no ``reason``, and keeps ``data`` beside the ``value``. The second, the dead letters, has no
    ``value``: it keeps the position, the raw ``data`` and the ``reason``.
    Both read the DataFrame: inside of ``foreachBatch``, put ``read_once`` around them.
    """
    good = without(decoded.where(fn.col(REASON).isNull()), REASON)
    dead = without(decoded.where(fn.col(REASON).isNotNull()), VALUE)
    return good, dead


def _with_columns(records: DataFrame, *, value: Column, reason: Column) -> DataFrame:
    return with_column(with_column(records, VALUE, value), REASON, reason)


def _struct(schema: StructType | str) -> StructType:
    wanted = schema_of(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType) or not wanted.fields:
        raise OptionError("the schema of a JSON object is a StructType, or its DDL, with at least one field")
    return wanted


def _parse(records: DataFrame, of: DataType) -> DataFrame:
    """Add the data as text (null where it is not UTF-8) and as Spark's JSON reader sees it."""
    return with_column(with_column(records, _TEXT, _text()), _PARSED, _parse_json(of))


def _text() -> Column:
    return fn.try_validate_utf8(fn.col(_DATA).cast("string"))


def _parse_json(wanted: DataType) -> Column:
    """Return the text as Spark's JSON reader sees it."""
    # The object is parsed inside of another one: what follows it in the record, which from_json by itself would
    # not look at, then breaks the outer object, or hides its second field.
    outer = StructType(
        [
            StructField(VALUE, wanted),
            StructField(_END, BooleanType()),
            StructField(_BROKEN, StringType()),
        ]
    )
    wrapped = fn.concat(fn.lit(f'{{"{VALUE}":'), fn.col(_TEXT), fn.lit(f',"{_END}":true}}'))
    return fn.from_json(wrapped, outer, _JSON_OPTIONS)


def _explanation(wanted: StructType) -> Column:
    """Return the reason of a dead letter that was parsed again, with the names of fields."""
    value = restored(fn.col(f"{_PARSED}.{VALUE}"), wanted)
    return (
        fn.when(fn.col(REASON) == WRONG_TYPE, fn.coalesce(_wrong_types(wanted), fn.col(REASON)))
        .when(fn.col(REASON) == MISSING, fn.coalesce(_missing_fields(value, wanted), fn.col(REASON)))
        .otherwise(fn.col(REASON))
    )


def _reason(wanted: StructType) -> Column:
    """Return the first fault of a parsed record; null where there is none."""
    parsed = fn.col(f"{_PARSED}.{VALUE}")
    wrong_type = fn.col(f"{_PARSED}.{_BROKEN}").isNotNull()
    if has_string(wanted):
        strict = fn.col(f"{_STRICT}.{VALUE}")
        wrong_type = wrong_type | (fn.col(_STRICT).isNotNull() & ~strings_are_strings(strict, wanted))
    faults = (
        fn.when(fn.col(_TEXT).isNull(), fn.lit(NOT_UTF8))
        .when(fn.col(f"{_PARSED}.{_END}").isNull() | parsed.isNull(), fn.lit(NOT_ONE_OBJECT))
        .when(wrong_type, fn.lit(WRONG_TYPE))
    )
    if has_required(wanted):
        faults = faults.when(~required_are_there(parsed, wanted), fn.lit(MISSING))
    return faults


def _wrong_types(wanted: StructType) -> Column:
    """Name the fields that are in the text, but not of their type; null where none is found."""
    wrong = []
    for path, field in fields_of(wanted):
        parsed = _field_at(fn.col(f"{_PARSED}.{VALUE}"), path)
        json_path = "$" + "".join(f"['{name}']" for name in path)
        is_wrong = parsed.isNull() & fn.get_json_object(fn.col(_TEXT), json_path).isNotNull()
        is_object = isinstance(field.dataType, StructType)
        if has_string(field.dataType) and not is_object:
            is_wrong = is_wrong | ~strings_are_strings(parsed, field.dataType)
        kind = "an object" if is_object else field.dataType.simpleString()
        wrong.append(fn.when(is_wrong, fn.lit(f"{'.'.join(path)} is not {kind}")))
    return _join(wrong)


def _missing_fields(value: Column, wanted: StructType) -> Column:
    """Name the required fields that are not there; null where none is found."""
    missing = []
    for path, field in fields_of(wanted):
        if not field.nullable:
            # A field of an optional object that is not there is not missing.
            is_missing = _field_at(value, path[:-1]).isNotNull() & _field_at(value, path).isNull()
            missing.append(fn.when(is_missing, fn.lit(f"{'.'.join(path)} is missing")))
    return _join(missing)


def _field_at(column: Column, path: tuple[str, ...]) -> Column:
    return reduce(lambda parent, name: parent.getField(name), path, column)


def _join(faults: list[Column]) -> Column:
    """Join the texts that are not null by commas; null when there is none."""
    return fn.nullif(fn.concat_ws(", ", *faults), fn.lit(""))
