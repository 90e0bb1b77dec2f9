class RecordProcessorBase:
    version = "theirs"
