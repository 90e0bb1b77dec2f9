"""The log of one shard, without any I/O: where to ask, which records are new to the reader, how often to call.

Read `cursor` first, which all that reads a log has, with its table in `transitions` and the meaning of empty pages in
`silence`. `pages` is what a source answers, `user_records` opens its aggregates, and `feed_cursor` judges a page for a
consumer. `pace` says when the next call may be sent, and `buffer` how much it may fetch.
"""
