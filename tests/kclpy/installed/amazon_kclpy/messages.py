import base64


class Record:
    """Only what the programs here use."""

    def __init__(self, fields):
        self.binary_data = base64.b64decode(fields["data"])
        self.sequence_number = fields["sequenceNumber"]
