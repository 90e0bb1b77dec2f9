"""A tenure is one worker's hold on one lease from the take to the end.

Three rules keep two workers from reading one shard, whatever is slow, lost, repeated or asleep:

1. **Fence.** Records are delivered only until the earlier of (send time of the last confirmed write to the lease, or
   to the worker's own row) + F - margin, on the owner's own clock. No other worker takes the lease before F has passed
   since it *saw* that write. A fallen fence is lifted only by a write to the lease that was sent after it fell, and, if
   a write to the worker's row was missing, after such a write was confirmed.
2. **One write at a time.** A write without an answer is repeated as it was until its outcome is known: the answer to
   a repetition shows it, since a row that shows the write's own changes proves that it was applied. Then it counts from
   the first time it was sent. So an applied write that was answered with an error costs nothing.
3. **Token.** The token is the counter that the take (or the former owner's give) wrote. It grows with every owner.

While the fence stands, an owner whose row was deleted writes the row again (`writes.restore`). Once the fence has
fallen, or a write that gives the lease away may have been applied, another worker may have had the lease. That worker
may still deliver, or may have read the shard to its end, and then the row was deleted rightly. So the tenure is over,
and what its owner knew goes into a new row only where the list of shards says that one is missing (`LeaseLost.known`).

Read the modules in this order:

- `times`: the times of a lease, all multiples of the failover time F.
- `state`: a tenure as a value.
- `events`, `commands`: what the machine learns, and what is to be done.
- `machine`: `claim` and `receive` begin a tenure, and `step` takes it from event to event.

Others import the two namespaces under the names `tenure_events` and `tenure_commands`, since the shard and the worker
have events and commands of their own.
"""
