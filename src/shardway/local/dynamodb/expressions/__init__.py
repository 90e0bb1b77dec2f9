"""DynamoDB's expressions: conditions, filters, key conditions, updates and projections.

`tokens` takes a text apart, and `paths` are places in an item. `conditions` has what holds or does not, and
`condition_parser` makes it of a text; `key_conditions` finds the key in it. `updates` and `update_parser` do the same
for changes, `projections` for what a reader wants. `placeholders` are the names and values beside the text, and
`bound` brings a request's expressions and its placeholders together.
"""
