"""Calls that are done as a whole or not at all."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from shardway.local.dynamodb.attribute_values import Item
from shardway.local.dynamodb.capacity import Cost, read_units, shown_costs, wants_capacity
from shardway.local.dynamodb.errors import DynamoError, constraint, validation
from shardway.local.dynamodb.reads import reader_of
from shardway.local.dynamodb.requests import TransactGet, TransactWrite, WriteInTransaction
from shardway.local.dynamodb.state import State
from shardway.local.dynamodb.writes import (
    Action,
    cost_of,
    prepared_check,
    prepared_delete,
    prepared_put,
    prepared_update,
)

ITEMS_MAX = 100
BYTES_MAX = 4 * 1024 * 1024
TOKENS_MAX = 10_000
TOKEN_CHARS_MAX = 36
TOKEN_S = 600.0
"""How many seconds a token stands for its request."""
_KINDS: dict[str, Callable[[State, Any], Action]] = {
    "condition_check": prepared_check,
    "put": prepared_put,
    "delete": prepared_delete,
    "update": prepared_update,
}
_NONE = {"Code": "None"}
_ONLY_ONE = "TransactItems can only contain one of Check, Put, Update or Delete"


class Tokens:
    """The tokens of the last transactions: one that is repeated is not done again."""

    def __init__(self) -> None:
        self._seen_tokens: dict[str, tuple[int, float]] = {}

    def is_repeated(self, token: str, request: TransactWrite, now_s: float) -> bool:
        """Return whether a transaction was done. Raises DynamoError when the token was another transaction's."""
        if not 1 <= len(token) <= TOKEN_CHARS_MAX:
            rule = f"have length less than or equal to {TOKEN_CHARS_MAX}"
            raise constraint(
                token[:100], "clientRequestToken", rule if token else "have length greater than or equal to 1"
            )
        found = self._seen_tokens.get(token)
        if found is None or now_s - found[1] > TOKEN_S:
            return False
        if found[0] != _mark(request):
            raise DynamoError("IdempotentParameterMismatchException", "the token was used with other parameters")
        return True

    def remember(self, token: str, request: TransactWrite, now_s: float) -> None:
        """Keep the token of a transaction that is done."""
        self._seen_tokens.pop(token, None)
        if len(self._seen_tokens) >= TOKENS_MAX:
            del self._seen_tokens[next(iter(self._seen_tokens))]
        self._seen_tokens[token] = _mark(request), now_s


def _mark(request: TransactWrite) -> int:
    return zlib.crc32(msgspec.json.encode(request.transact_items))


def transact_write_items(state: State, tokens: Tokens, request: TransactWrite) -> dict[str, Any]:
    """Do a TransactWriteItems."""
    wants_cost = wants_capacity(request.return_consumed_capacity)
    items = request.transact_items
    _check_count(items)
    assert items is not None
    actions = [_action(state, one) for one in items]
    if len({(action.table.name, action.position) for action in actions}) < len(actions):
        raise validation("Transaction request cannot include multiple operations on one item")
    token = request.client_request_token
    if token is not None and tokens.is_repeated(token, request, state.clock()):
        return {}
    made = _make_items(actions)
    if sum(size for _, _, _, size in made) > BYTES_MAX:
        raise validation("Collection size of items in the transaction exceeded limit of 4 MB")
    costs: dict[str, Cost] = {}
    for action, _, item, size in made:
        if not action.is_check and (item is not None or action.row() is not None):
            action.table.store(action.position, item, size)
    if token is not None:
        tokens.remember(token, request, state.clock())
    if not wants_cost:
        return {}
    for action, old, _, _ in made:
        costs[action.table.name] = cost_of(action, old, costs.get(action.table.name), times=2.0)
    return {"ConsumedCapacity": shown_costs(costs.values(), request.return_consumed_capacity, kind="Write")}


def _check_count(items: list[Any] | None) -> None:
    if items is None:
        raise constraint(None, "transactItems", "not be null")
    if not items:
        raise constraint("[]", "transactItems", "have length greater than or equal to 1")
    if len(items) > ITEMS_MAX:
        raise constraint("[...]", "transactItems", f"have length less than or equal to {ITEMS_MAX}")


def _action(state: State, one: WriteInTransaction) -> Action:
    given = [(name, request) for name in _KINDS if (request := getattr(one, name)) is not None]
    if not given:
        raise validation("Invalid Request: TransactWriteRequest should contain Delete or Put or Update request")
    if len(given) > 1:
        raise validation(_ONLY_ONE)
    name, request = given[0]
    if name == "update" and request.update_expression is None:
        raise constraint(None, "update.updateExpression", "not be null")
    return _KINDS[name](state, request)


def _make_items(actions: list[Action]) -> list[tuple[Action, Any, Item | None, int]]:
    """Return what each write will leave. Raises DynamoError, with the reason of each write that may not be done."""
    made, reasons = [], []
    for action in actions:
        row = action.row()
        reason: dict[str, Any] = _NONE
        if not action.is_allowed(row):
            reason = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
            if action.shows_old and row is not None:
                reason["Item"] = row.item
        else:
            try:
                item, size = (None, 0) if action.is_check else action.made(row)
                made.append((action, row, item, size))
            except DynamoError as fault:
                reason = {"Code": "ValidationError", "Message": fault.message}
        reasons.append(reason)
    if any(reason is not _NONE for reason in reasons):
        codes = ", ".join(reason["Code"] for reason in reasons)
        raise DynamoError(
            "TransactionCanceledException",
            f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
            {"CancellationReasons": reasons},
        )
    return made


def transact_get_items(state: State, request: TransactGet) -> dict[str, Any]:
    """Do a TransactGetItems."""
    wants_cost = wants_capacity(request.return_consumed_capacity)
    items = request.transact_items
    _check_count(items)
    assert items is not None
    responses: list[dict[str, Any]] = []
    costs: dict[str, Cost] = {}
    for one in items:
        if one.get is None:
            raise constraint(None, "transactItems.member.get", "not be null")
        reader = reader_of(state, one.get)
        if one.get.key is None:
            raise constraint(None, "transactItems.member.get.key", "not be null")
        row = reader.table.rows.get(reader.position(one.get.key))
        responses.append({} if row is None else {"Item": reader.shown(row.item)})
        cost = costs.setdefault(reader.table.name, Cost(reader.table))
        cost.add(read_units(0 if row is None else row.size, consistent=True), times=2.0)
    answer: dict[str, Any] = {"Responses": responses}
    if wants_cost:
        answer["ConsumedCapacity"] = shown_costs(costs.values(), request.return_consumed_capacity, kind="Read")
    return answer
