"""One shard in one tenure, as pure machines: values in, values out, and time is an argument."""
