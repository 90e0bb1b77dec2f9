"""The options of ``format("shardway")``: each is declared once, as a field of a struct.

The declaration says the type, the bounds, the default, what a page says of it, and whether streaming or batch reads
take it. Parsing, checks, errors, the reference pages and the schema of a job file are made from it.

Read the modules in this order:

- `option`: what a declaration says.
- `stream_options`: which stream, where it is, and with which credentials it is reached: for reading and for writing.
- `read_options`, `caps`: the options for reading.
- `sink_options`, `sink_columns`: the options for writing, and the columns that a DataFrame must then have.
- `texts`: Spark passes options as texts, and these become values.
- `parsing`: names in any case, the nearest right name, and one error of all faults.
"""
