"""A Spark cluster on this machine, to try a job on and to kill parts of."""
