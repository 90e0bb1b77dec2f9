"""The sink: tasks write their rows through a producer into a stream.

Read the modules in this order:

- `task`: what a task gets, what it answers, and what the driver logs of the answers.
- `writer`: a task, from its first row to the commit.
- `portions`: rows as columns of keys, data and stamps.
- `window`: the rows that are not written yet, bounded in bytes.
- `label_set`: rows that share a stamp are found here.
- `producers`: the producers that a worker process keeps from task to task.

`shardway.spark.stamps` is the envelope of a stamped row.
"""
