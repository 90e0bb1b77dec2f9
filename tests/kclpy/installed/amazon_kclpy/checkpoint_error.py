class CheckpointError(Exception):
    pass
