"""The pages of the console, by subject. Each module has its routes at its end.

`overview` is the first page. `applications` (with `seeks`), `streams`, `jobs`, `letters` and `local` are the pages of
what there is. `records` shows records: `record_query` reads what is asked for, `record_search` finds it, `record_views`
notes the view, and `tails` follow the stream. `puts` has the form that writes a record, and `sessions` signing in.
"""
