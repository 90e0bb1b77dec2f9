"""A Spark task, in a Python worker of an executor: it reads the ranges of its partition, and makes Arrow batches.

Read the modules in this order:

- `partition_reader`: `read_partition`, which deals out turns to the chains of a partition.
- `chain_reader`: one chain, whose ranges are read one after the other.
- `range_cursor`: one range, which judges what each page of the log means.
- `fetcher`: the calls for pages, with their repetitions.
- `rows`: the records of a page as Arrow columns.
- `batcher`: rows as record batches.
- `arrow_columns`: which columns a query asks for, and their Arrow types.
- `connections`: the clients that a worker process keeps from task to task.
"""
