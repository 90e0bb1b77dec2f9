"""One machine for a tenure decides how far the checkpoint of a shard goes, and when it is stored.

The shard's machine asks it by `step`: an event, how far the ledger is (`Progress`), and the time. Its answers are
events of the lease's machine (`shardway.core.leases.tenure`): `StoreCheckpoint`, which a renewal carries or a write of
its own, and `StorePending`; and `Answer` for the caller that waits. What the lease's machine says of its writes,
`CheckpointStored` and `PendingStored`, are events here. So a checkpoint is on its way from the ledger to the lease in
one step.

A checkpoint in two phases is first stored as pending, in the KCL's columns, and then committed. Each ordinary
checkpoint clears those columns. So none is stored while one is pending:

| state | what is settled | `Prepare` | `Commit` | `Abandon` | `PendingStored` | `CheckpointStored`, none pending |
|---|---|---|---|---|---|---|
| `FREE` | is stored | PREPARING | refused | refused | - | FREE |
| `CLEARING` | is stored, and clears | PREPARING | refused | refused | - | FREE |
| `PREPARING` | waits | refused | refused | refused | PREPARED, answer | PREPARING |
| `PREPARED` | waits | PREPARING | COMMITTING | ABANDONING | - | PREPARED |
| `COMMITTING` | waits | refused | refused | refused | - | FREE, answer |
| `ABANDONING` | is stored, and clears | refused | refused | refused | - | FREE, answer |

What is refused raises CheckpointError, and changes nothing. `Close` keeps the state: what was asked for before the end
is still stored with the tenure's last write, but callers are refused, and the caller that waits has its answer.

Read the modules in this order:

- `cadence`: when checkpoints are stored, as the program's options say.
- `state`: the checkpoints of one tenure as a value.
- `events`, `commands`: what the machine learns, and what is to be done.
- `machine`: `begin` makes the checkpoints of a new tenure, and `step` takes them from event to event.
"""
