package orders

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	kinesisapi "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// An order comes back from the stream, and the service's clock can be moved.
func TestOrders(t *testing.T) {
	ctx, stream := context.Background(), aws.String("orders")
	address := kinesis(t, ctx)
	client := kinesisapi.New(kinesisapi.Options{
		BaseEndpoint: &address,
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	written, err := client.PutRecord(ctx, &kinesisapi.PutRecordInput{
		StreamName: stream, PartitionKey: aws.String("customer-3"), Data: []byte("an order"),
	})
	if err != nil {
		t.Fatal(err)
	}
	start, err := client.GetShardIterator(ctx, &kinesisapi.GetShardIteratorInput{
		StreamName: stream, ShardId: written.ShardId, ShardIteratorType: types.ShardIteratorTypeAtSequenceNumber,
		StartingSequenceNumber: written.SequenceNumber,
	})
	if err != nil {
		t.Fatal(err)
	}
	read, err := client.GetRecords(ctx, &kinesisapi.GetRecordsInput{ShardIterator: start.ShardIterator})
	if err != nil {
		t.Fatal(err)
	}
	if len(read.Records) != 1 || string(read.Records[0].Data) != "an order" {
		t.Fatalf("read: %v", read.Records)
	}
	moved, err := http.Post(address+"/_shardway/clock", "application/json", strings.NewReader(`{"advance_s": 301}`))
	if err != nil || moved.StatusCode != http.StatusOK {
		t.Fatal("the clock does not move: ", moved, err)
	}
	moved.Body.Close()
	var expired *types.ExpiredIteratorException
	_, err = client.GetRecords(ctx, &kinesisapi.GetRecordsInput{ShardIterator: start.ShardIterator})
	if !errors.As(err, &expired) {
		t.Fatal("the iterator has not expired: ", err)
	}
	t.Log("ok, against", address)
}
