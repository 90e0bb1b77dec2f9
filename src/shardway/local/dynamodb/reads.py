"""Get, query and scan items."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from shardway.local.dynamodb import legacy
from shardway.local.dynamodb.attribute_values import Item, checked_item, comparable, kind_of
from shardway.local.dynamodb.capacity import Cost, index_bytes, read_units, wants_capacity
from shardway.local.dynamodb.errors import DynamoError, constraint, invalid_values, validation
from shardway.local.dynamodb.expressions.bound import Bound, bound
from shardway.local.dynamodb.expressions.conditions import Attribute, Every, Node
from shardway.local.dynamodb.expressions.key_conditions import KeyRange, key_range
from shardway.local.dynamodb.expressions.paths import Path, Step
from shardway.local.dynamodb.expressions.placeholders import NOTHING, Scope
from shardway.local.dynamodb.expressions.projections import projected
from shardway.local.dynamodb.keys import HASHES, KeySchema, Position, partition_of
from shardway.local.dynamodb.requests import Get, Query, Read, Scan
from shardway.local.dynamodb.state import State
from shardway.local.dynamodb.table import Index, Row, Rows, Table

PAGE_BYTES_MAX = 1024 * 1024
SEGMENTS_MAX = 1_000_000
_SELECTS = ("ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "SPECIFIC_ATTRIBUTES", "COUNT")


class Reader:
    """A table with the parts of its items that a call wants."""

    __slots__ = ("paths", "table")

    def __init__(self, table: Table, paths: Sequence[tuple[Step, ...]] | None) -> None:
        self.table = table
        self.paths = paths

    def position(self, key: dict[str, Any]) -> Position:
        """Return where the item with this key lies. Raises DynamoError."""
        return self.table.keys.position_of_key(checked_item(key))

    def shown(self, item: Item) -> Item:
        """Return the parts of an item that are wanted."""
        return item if self.paths is None else projected(item, self.paths)


def reader_of(state: State, request: Get) -> Reader:
    """Return what reads single items for a call. Raises DynamoError."""
    table = state.table(request.table_name)
    found = bound(
        request.expression_attribute_names,
        request.expression_attribute_values,
        {"ProjectionExpression": request.projection_expression},
        {"AttributesToGet": request.attributes_to_get},
    )
    paths = _paths(found, request.projection_expression, request.attributes_to_get)
    found.finish()
    return Reader(table, paths)


def _paths(found: Bound, text: str | None, names: list[str] | None) -> list[tuple[Step, ...]] | None:
    if text is not None:
        return found.projection(text)
    return None if names is None else legacy.attribute_paths(names)


def get_item(state: State, request: Get) -> dict[str, Any]:
    """Do a GetItem."""
    wants_cost = wants_capacity(request.return_consumed_capacity)
    reader = reader_of(state, request)
    if request.key is None:
        raise constraint(None, "key", "not be null")
    row = reader.table.rows.get(reader.position(request.key))
    answer: dict[str, Any] = {} if row is None else {"Item": reader.shown(row.item)}
    if wants_cost:
        cost = Cost(reader.table)
        cost.add(read_units(0 if row is None else row.size, consistent=request.consistent_read))
        answer["ConsumedCapacity"] = cost.shown(request.return_consumed_capacity)
    return answer


class Page:
    """What a Query or a Scan reads: rows in their order, a filter, and the parts that are wanted."""

    def __init__(self, state: State, request: Read) -> None:
        """Raises DynamoError."""
        self.request = request
        self.table = state.table(request.table_name)
        self.index = self._index(request.index_name, state.clock())
        self.keys: KeySchema = self.table.keys if self.index is None else self.index.keys
        self.rows: Rows = self.table.rows if self.index is None else self.index.rows
        self.filter: Node | None = None
        self.scope: Scope = NOTHING
        self.paths: Sequence[tuple[Step, ...]] | None = None
        if request.limit is not None and request.limit < 1:
            raise constraint(request.limit, "limit", "have value greater than or equal to 1")
        if request.select is not None and request.select not in _SELECTS:
            raise constraint(request.select, "select", f"satisfy enum value set: [{', '.join(_SELECTS)}]")

    def _index(self, name: str | None, now_s: float) -> Index | None:
        if name is None:
            return None
        index = self.table.indexes.get(name)
        if index is None:
            raise validation(f"The table does not have the specified index: {name[:300]}")
        if index.is_global and self.request.consistent_read:
            raise validation("Consistent reads are not supported on global secondary indexes")
        if now_s < index.ready_at_s:
            raise validation(f"Cannot read from backfilling global secondary index: {name}")
        return index

    def select(self, found: Bound, older: dict[str, Any] | None, member: str) -> None:
        """Read the filter and the projection. Raises DynamoError."""
        request = self.request
        self.scope = found.scope
        if request.filter_expression is not None:
            self.filter = found.condition("FilterExpression", request.filter_expression)
        elif older is not None or request.conditional_operator is not None:
            self.filter = legacy.joined(older, request.conditional_operator, member)
        self.paths = _paths(found, request.projection_expression, request.attributes_to_get)
        found.finish()
        if self.paths is not None and request.select not in (None, "SPECIFIC_ATTRIBUTES"):
            word = "ProjectionExpression" if request.projection_expression is not None else "AttributesToGet"
            raise validation(f"Cannot specify the {word} when choosing to get {request.select}")
        if self.paths is None and request.select == "SPECIFIC_ATTRIBUTES":
            raise validation(
                "Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES"
            )
        self._check_projected()

    def _check_projected(self) -> None:
        """A global index has only what it projects; a local one lets the rest be fetched from the table."""
        if self.index is None or not self.index.is_global:
            return
        wanted = self.index.attributes(self.table.keys)
        if wanted is None:
            return
        missing = sorted({str(steps[0]) for steps in self.paths or ()} - wanted)
        if missing or self.request.select == "ALL_ATTRIBUTES":
            raise invalid_values(
                f"Global secondary index {self.index.name} does not project {missing}"
                if missing
                else "Select type ALL_ATTRIBUTES is not supported for global secondary index "
                f"{self.index.name} because its projection type is not ALL"
            )

    def start(self) -> Position | None:
        """Return the position after which the page begins. Raises DynamoError."""
        key = self.request.exclusive_start_key
        if not key:
            return None
        checked = checked_item(key)
        names = set(self.table.keys.names) | set(self.keys.names)
        if checked.keys() != names:
            raise validation("The provided starting key is invalid")
        try:
            base = self.table.keys.position_of_key(self.table.keys.key_of(checked))
            if self.index is None:
                return base
            own = self.keys.position_of_key(self.keys.key_of(checked))
        except DynamoError as fault:
            raise validation(f"The provided starting key is invalid: {fault.message}") from None
        return (*own, base)

    def answer(self, begin: int, end: int, *, forward: bool = True) -> dict[str, Any]:
        """Read from one place in the order to another, as far as a page goes."""
        request = self.request
        wants_cost = wants_capacity(request.return_consumed_capacity)
        limit = request.limit if request.limit is not None else len(self.rows) + 1
        counted = request.select == "COUNT"
        items: list[Item] = []
        last: Row | None = None
        count = seen = size = 0
        order = range(begin, end) if forward else range(end - 1, begin - 1, -1)
        for at in order:
            if seen >= limit or size >= PAGE_BYTES_MAX:
                break
            last = self.rows.at(at)
            seen += 1
            size += last.size if self.index is None else index_bytes(self.index, self.table, last)
            item = self._visible(last)
            if self.filter is None or self.filter.holds(item, self.scope):
                count += 1
                if not counted:
                    items.append(item if self.paths is None else projected(item, self.paths))
        answer: dict[str, Any] = {"Count": count, "ScannedCount": seen}
        if not counted:
            answer["Items"] = items
        if last is not None and (seen < len(order) or seen >= limit or size >= PAGE_BYTES_MAX):
            names = dict.fromkeys((*self.table.keys.names, *self.keys.names))
            answer["LastEvaluatedKey"] = {name: last.item[name] for name in names}
        if wants_cost:
            cost = Cost(self.table)
            units = read_units(size, consistent=request.consistent_read)
            cost.add(units if self.index is None else 0.0, None if self.index is None else {self.index.name: units})
            answer["ConsumedCapacity"] = cost.shown(request.return_consumed_capacity)
        return answer

    def _visible(self, row: Row) -> Item:
        """Return what the index has of a row; a local index leads to the whole item where that is wanted."""
        index = self.index
        if index is None:
            return row.item
        wanted = index.attributes(self.table.keys)
        whole = not index.is_global and (self.paths is not None or self.request.select == "ALL_ATTRIBUTES")
        if wanted is None or whole:
            return row.item
        return {name: value for name, value in row.item.items() if name in wanted}


def scan(state: State, request: Scan) -> dict[str, Any]:
    """Do a Scan."""
    page = Page(state, request)
    found = bound(
        request.expression_attribute_names,
        request.expression_attribute_values,
        {"FilterExpression": request.filter_expression, "ProjectionExpression": request.projection_expression},
        {
            "ScanFilter": request.scan_filter,
            "AttributesToGet": request.attributes_to_get,
            "ConditionalOperator": request.conditional_operator,
        },
    )
    page.select(found, request.scan_filter, "ScanFilter")
    positions = page.rows.positions
    low, high = _segment(request)
    begin, end = bisect_left(positions, (low,)), bisect_left(positions, (high,))
    start = page.start()
    if start is not None:
        if not low <= start[0] < high:
            raise validation("The provided Exclusive start key does not map to the provided segment")
        begin = bisect_right(positions, start)
    return page.answer(begin, end)


def _segment(request: Scan) -> tuple[int, int]:
    """Return the hashes from which and up to which a Scan reads. Raises DynamoError."""
    segment, total = request.segment, request.total_segments
    if segment is None and total is None:
        return 0, HASHES
    if total is None:
        raise validation(
            "The TotalSegments parameter is required but was not present in the request "
            "when Segment parameter is present"
        )
    if segment is None:
        raise validation(
            "The Segment parameter is required but was not present in the request "
            "when parameter TotalSegments is present"
        )
    if not 1 <= total <= SEGMENTS_MAX:
        rule = "greater than or equal to 1" if total < 1 else f"less than or equal to {SEGMENTS_MAX}"
        raise constraint(total, "totalSegments", f"have value {rule}")
    if not 0 <= segment < total:
        raise validation(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: "
            f"Segment: {segment} is not less than TotalSegments: {total}"
        )
    # The smallest hash whose share of all hashes is at least `segment / total`.
    return -(-segment * HASHES // total), -(-(segment + 1) * HASHES // total)


def query(state: State, request: Query) -> dict[str, Any]:
    """Do a Query."""
    page = Page(state, request)
    found = bound(
        request.expression_attribute_names,
        request.expression_attribute_values,
        {
            "KeyConditionExpression": request.key_condition_expression,
            "FilterExpression": request.filter_expression,
            "ProjectionExpression": request.projection_expression,
        },
        {
            "KeyConditions": request.key_conditions,
            "QueryFilter": request.query_filter,
            "AttributesToGet": request.attributes_to_get,
            "ConditionalOperator": request.conditional_operator,
        },
    )
    if request.key_condition_expression is not None:
        node = found.condition("KeyConditionExpression", request.key_condition_expression)
    elif request.key_conditions:
        node = Every([_older(name, given) for name, given in request.key_conditions.items()])
    else:
        raise validation(
            "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request."
        )
    wanted = key_range(node, page.keys, found.scope)
    page.select(found, request.query_filter, "QueryFilter")
    _check_filter(page)
    begin, end = _row_range(page, wanted)
    forward = request.scan_index_forward is not False
    start = page.start()
    if start is not None:
        if start[:2] != partition_of(wanted.partition):
            raise validation("The provided starting key is outside query boundaries based on provided conditions")
        if forward:
            begin = min(max(begin, bisect_right(page.rows.positions, start)), end)
        else:
            end = max(min(end, bisect_left(page.rows.positions, start)), begin)
    return page.answer(begin, end, forward=forward)


def _older(name: str, given: dict[str, Any]) -> Node:
    values = given.get("AttributeValueList") or []
    operator = given.get("ComparisonOperator")
    if operator in ("NE", "NULL", "NOT_NULL", "CONTAINS", "NOT_CONTAINS", "IN"):
        raise invalid_values(f"ComparisonOperator {operator} is not valid for a key condition")
    operand = Attribute(Path((name,), literal=True))
    return legacy.compared(operand, operator, list(checked_item(dict(enumerate(values))).values()))  # type: ignore[arg-type] # the names are not looked at


def _check_filter(page: Page) -> None:
    text = page.request.filter_expression
    if text is None and not (isinstance(page.request, Query) and page.request.query_filter):
        return
    for name in _filter_attributes(page):
        if name in page.keys.names:
            raise validation(
                f"Filter Expression can only contain non-primary key attributes: Primary key attribute: {name}"
            )


def _filter_attributes(page: Page) -> list[str]:
    """Return the names of the attributes that a filter looks at."""
    found: list[str] = []
    waiting: list[Any] = [page.filter]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Attribute):
            found.append(one.path.root(page.scope.names))
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif one is not None and not isinstance(one, str | bool | dict):
            waiting.extend(getattr(one, name) for name in getattr(type(one), "__slots__", ()))
    return found


def _row_range(page: Page, wanted: KeyRange) -> tuple[int, int]:
    """Return the first and the last number, in the order, of the rows that a key condition means."""
    positions = page.rows.positions
    partition = partition_of(wanted.partition)
    begin = bisect_left(positions, partition)
    end = bisect_right(positions, partition, key=lambda position: position[:2])
    if wanted.low is not None:
        place = (*partition, comparable(wanted.low))
        find = bisect_left if wanted.with_low else bisect_right
        begin = find(positions, place, begin, end, key=lambda position: position[:3])
    if wanted.high is not None:
        place = (*partition, comparable(wanted.high))
        find = bisect_right if wanted.with_high else bisect_left
        end = find(positions, place, begin, end, key=lambda position: position[:3])
    if wanted.prefix is not None:
        if kind_of(wanted.prefix) == "N":
            raise validation("Invalid operand type for the operator begins_with: N")
        prefix = comparable(wanted.prefix)
        end = bisect_left(positions, True, begin, end, key=lambda position: not position[2].startswith(prefix))
    return begin, end
