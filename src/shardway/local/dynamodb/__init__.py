"""A pure model of the part of DynamoDB that lease tables need: no network, no threads, no clock of its own.

Read `service` first, which has the operations, then `table`, which has the rows that they change, and `keys`, which
says where a row lies; `state` has all tables. `tables`, `table_changes`, `table_views` and `settings` make, change,
show and set up tables. `writes`, `batches` and `transactions` change rows, `reads` finds them, and `capacity` says
what a call costs. `schemas` are what a call asks of a table. `expressions` is a language of its own, with
`reserved_words`; `legacy` makes the same of the parameters that were there before it. `attribute_values` and `numbers`
say what a value may be, `requests` what a call may carry, and `errors` what is refused.
"""

from shardway.local.dynamodb.errors import DynamoError
from shardway.local.dynamodb.service import DynamoModel

__all__ = ["DynamoError", "DynamoModel"]
