"""An order comes back from the stream, and the service's clock can be moved."""

import json
from urllib.request import Request, urlopen

import boto3
from local_kinesis import local_kinesis


def main() -> None:
    """Write an order, read it, and let its iterator expire."""
    with local_kinesis() as address:
        client = boto3.client(
            "kinesis",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        written = client.put_record(StreamName="orders", PartitionKey="customer-3", Data=b"an order")
        iterator = client.get_shard_iterator(
            StreamName="orders",
            ShardId=written["ShardId"],
            ShardIteratorType="AT_SEQUENCE_NUMBER",
            StartingSequenceNumber=written["SequenceNumber"],
        )["ShardIterator"]
        (read,) = client.get_records(ShardIterator=iterator)["Records"]
        assert read["Data"] == b"an order"
        with urlopen(Request(f"{address}/_shardway/clock", json.dumps({"advance_s": 301}).encode())):
            pass
        try:
            client.get_records(ShardIterator=iterator)
        except client.exceptions.ExpiredIteratorException:
            print(f"ok, against {address}")
        else:
            raise AssertionError("the iterator has not expired")


if __name__ == "__main__":
    main()
