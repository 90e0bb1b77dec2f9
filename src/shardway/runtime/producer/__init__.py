"""A producer: records into a stream, from an event loop or from threads."""
