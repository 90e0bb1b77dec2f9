"""Feeds bring the records of one shard, in order, from a place on.

A feed holds nothing back: the shard's reader asks for the next page, and so decides how much is fetched ahead. Read
`polling` first: it has the part of the buffer that a feed waits for, and the feed that polls. `fan_out` reads a shard
by SubscribeToShard, and polls where that does not work. `opening` opens large aggregates beside the event loop. `pages`
gives the pages of either feed to one tenure, `admission` makes of each what goes into the ledger, and `deserializing`
makes the values of what is delivered.
"""
