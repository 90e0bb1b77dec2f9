"""What is in a record's data: compression, change records of AWS's services, Avro, and the framings of registries.

The tools, the consumer's deserializers and the jobs read data by these modules, so that a record is the same to all of
them. ``opening`` opens compressed data within a budget, and ``json_text`` reads JSON. ``cloudwatch_logs``, ``dms`` and
``dynamodb_change`` each read what one service puts into a stream. ``avro_schemas`` and ``avro_data`` read Avro within
bounds. ``frames`` takes the frame of a registry off, ``confluent`` and ``registry_schemas`` ask a registry and read its
answers, ``schema_cache`` keeps the schemas, and ``registry_values`` makes values by them. ``redirects`` refuses those
of a server that was given a password. Nothing here knows of Spark, and nothing runs what the data says.
"""
