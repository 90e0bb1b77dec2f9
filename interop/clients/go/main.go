// What a user's tests do with a local Kinesis, by the AWS SDK for Go. AWS's own variables of the environment say where it
// is; the argument is the stream's name. The line that is printed is JSON: what each step found.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"reflect"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	transport "github.com/aws/smithy-go/transport/http"
)

const (
	numbered = 60
	wait     = time.Minute
)

var (
	stream  = aws.String(os.Args[1])
	ctx     = context.Background()
	streams *kinesis.Client
	tables  *dynamodb.Client
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func control(method, path, body string) {
	url := os.Getenv("AWS_ENDPOINT_URL") + "/_shardway/" + path
	answer := must(http.DefaultClient.Do(must(http.NewRequest(method, url, strings.NewReader(body)))))
	defer answer.Body.Close()
	text := must(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("%s: %s %s", path, answer.Status, text))
	}
}

// kind returns the type of the SDK's that the error has, without its package.
func kind(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		of := reflect.TypeOf(err)
		if of.Kind() == reflect.Pointer && strings.HasSuffix(of.Elem().PkgPath(), "/types") {
			return of.Elem().Name()
		}
	}
	return "none, or unknown to the SDK"
}

// --- records --------------------------------------------------------------------------------------

type row struct {
	key  string
	data []byte
}

func (one row) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{one.key, len(one.data), sum(one.data)})
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

func sorted(rows []row) []row {
	sort.Slice(rows, func(a, b int) bool { return rows[a].key < rows[b].key })
	return rows
}

func rows() []row {
	every := make([]byte, 256)
	for at := range every {
		every[at] = byte(at)
	}
	made := []row{
		{"plain", []byte("text")},
		{"ключ-鍵-🔑", every},
		{"empty", []byte{}},
		{strings.Repeat("é", 128), []byte{0xe9, 0, 0x3d, 0xd8, 0x11, 0xdd}},
		{"large", bytes.Repeat([]byte{0xfe}, 1024*1024-5)},
	}
	for number := range numbered {
		made = append(made, row{fmt.Sprintf("key-%d", number), fmt.Appendf(nil, "%d", number)})
	}
	return made
}

func put(one row) (*kinesis.PutRecordOutput, error) {
	return streams.PutRecord(ctx, &kinesis.PutRecordInput{StreamName: stream, PartitionKey: &one.key, Data: one.data})
}

func taken(rows []row, records []types.Record) []row {
	for _, one := range records {
		rows = append(rows, row{*one.PartitionKey, one.Data})
	}
	return rows
}

// --- the steps ------------------------------------------------------------------------------------

func shards() []types.Shard {
	return must(streams.ListShards(ctx, &kinesis.ListShardsInput{StreamName: stream})).Shards
}

func ended(shard types.Shard) bool { return shard.SequenceNumberRange.EndingSequenceNumber != nil }

func waitUntilActive() {
	quickly := func(options *kinesis.StreamExistsWaiterOptions) { options.MinDelay = time.Second }
	check(kinesis.NewStreamExistsWaiter(streams, quickly).Wait(ctx, &kinesis.DescribeStreamInput{StreamName: stream}, wait))
}

func describe() (*types.StreamDescriptionSummary, error) {
	found, err := streams.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: stream})
	if err != nil {
		return nil, err
	}
	return found.StreamDescriptionSummary, nil
}

func create() map[string]any {
	_, missing := describe()
	must(streams.CreateStream(ctx, &kinesis.CreateStreamInput{StreamName: stream, ShardCount: aws.Int32(2)}))
	status := must(describe()).StreamStatus
	waitUntilActive()
	listed := must(streams.ListShards(ctx, &kinesis.ListShardsInput{StreamName: stream}))
	protocol := middleware.GetRawResponse(listed.ResultMetadata).(*transport.Response).Proto
	return map[string]any{
		"missing": kind(missing), "status": status, "shards": len(listed.Shards), "protocol": protocol,
	}
}

func write() map[string]any {
	made := rows()
	must(put(made[0]))
	must(put(made[1]))
	var entries []types.PutRecordsRequestEntry
	for _, one := range made[2:5] {
		entries = append(entries, types.PutRecordsRequestEntry{PartitionKey: aws.String(one.key), Data: one.data})
	}
	answer := must(streams.PutRecords(ctx, &kinesis.PutRecordsInput{StreamName: stream, Records: entries}))
	var all sync.WaitGroup
	var numbers sync.Map
	for _, one := range made[5:] {
		all.Go(func() { numbers.Store(*must(put(one)).SequenceNumber, true) })
	}
	all.Wait()
	count := 0
	numbers.Range(func(any, any) bool { count++; return true })
	return map[string]any{"written": sorted(made), "refused": answer.FailedRecordCount, "numbers": count}
}

// readAll returns the records of all shards, until the end of each that has ended, else until nothing is behind.
func readAll() []row {
	var found []row
	for _, shard := range shards() {
		start := kinesis.GetShardIteratorInput{
			StreamName: stream, ShardId: shard.ShardId, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
		}
		iterator := must(streams.GetShardIterator(ctx, &start)).ShardIterator
		for iterator != nil {
			answer := must(streams.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: iterator}))
			found = taken(found, answer.Records)
			iterator = answer.NextShardIterator
			if *answer.MillisBehindLatest == 0 && !ended(shard) {
				iterator = nil
			}
		}
	}
	return sorted(found)
}

func split() map[string]any {
	first := shards()[0]
	low, _ := new(big.Int).SetString(*first.HashKeyRange.StartingHashKey, 10)
	high, _ := new(big.Int).SetString(*first.HashKeyRange.EndingHashKey, 10)
	middle := new(big.Int).Add(new(big.Int).Rsh(new(big.Int).Add(low, high), 1), big.NewInt(1)).String()
	must(streams.SplitShard(ctx, &kinesis.SplitShardInput{
		StreamName: stream, ShardToSplit: first.ShardId, NewStartingHashKey: &middle,
	}))
	waitUntilActive()
	endedCount, children := 0, 0
	for _, shard := range shards() {
		if ended(shard) {
			endedCount++
		}
		if aws.ToString(shard.ParentShardId) == *first.ShardId {
			children++
		}
	}
	must(put(row{"after", []byte("the split")}))
	return map[string]any{"ended": endedCount, "children": children}
}

func subscribe(consumer string, shard types.Shard, position types.ShardIteratorType) (*kinesis.SubscribeToShardOutput, error) {
	return streams.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN: &consumer, ShardId: shard.ShardId, StartingPosition: &types.StartingPosition{Type: position},
	})
}

// subscription returns the records of a shard: until its children are named, if it has ended, else until nothing is behind.
func subscription(consumer string, shard types.Shard) (found []row, children int) {
	events := must(subscribe(consumer, shard, types.ShardIteratorTypeTrimHorizon)).GetStream()
	defer events.Close()
	for one := range events.Events() {
		event := one.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
		found = taken(found, event.Records)
		if len(event.ChildShards) > 0 || (*event.MillisBehindLatest == 0 && !ended(shard)) {
			return found, len(event.ChildShards)
		}
	}
	panic(fmt.Sprintf("the subscription to %s ended before the shard's records: %v", *shard.ShardId, events.Err()))
}

func fanOut() map[string]any {
	arn, name := must(describe()).StreamARN, aws.String("tests")
	made := must(streams.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: arn, ConsumerName: name}))
	consumer, status := *made.Consumer.ConsumerARN, made.Consumer.ConsumerStatus
	for status != types.ConsumerStatusActive {
		time.Sleep(100 * time.Millisecond)
		asked := kinesis.DescribeStreamConsumerInput{StreamARN: arn, ConsumerName: name}
		status = must(streams.DescribeStreamConsumer(ctx, &asked)).ConsumerDescription.ConsumerStatus
	}
	var found []row
	children := 0
	for _, shard := range shards() {
		more, named := subscription(consumer, shard)
		found, children = append(found, more...), children+named
	}
	must(streams.DeregisterStreamConsumer(ctx, &kinesis.DeregisterStreamConsumerInput{StreamARN: arn, ConsumerName: name}))
	_, missing := subscribe(consumer+"0", shards()[0], types.ShardIteratorTypeLatest)
	return map[string]any{"read": sorted(found), "children": children, "missing": kind(missing)}
}

func throttle(count string) {
	control("POST", "faults", `{"how": "throttle", "operation": "PutRecord", "stream": "`+*stream+`"`+count+`}`)
}

func limits() map[string]any {
	throttle(`, "count": 2`)
	results, _ := retry.GetAttemptResults(must(put(row{"throttled", []byte("1")})).ResultMetadata)
	throttle("")
	_, throttled := put(row{"throttled", []byte("1")})
	var exhausted *retry.MaxAttemptsError
	if !errors.As(throttled, &exhausted) {
		panic(throttled)
	}
	control("DELETE", "faults", "")
	control("POST", "limits", `{"per_shard": true}`)
	hash, key := aws.String("0"), aws.String("big")
	big := types.PutRecordsRequestEntry{ExplicitHashKey: hash, PartitionKey: key, Data: make([]byte, 900_000)}
	entries := []types.PutRecordsRequestEntry{big, big, big}
	codes := map[string]bool{}
	for {
		var refused []types.PutRecordsRequestEntry
		answer := must(streams.PutRecords(ctx, &kinesis.PutRecordsInput{StreamName: stream, Records: entries}))
		for at, entry := range answer.Records {
			if entry.ErrorCode != nil {
				codes[*entry.ErrorCode] = true
				refused = append(refused, entries[at])
			}
		}
		if entries = refused; len(entries) == 0 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	control("POST", "limits", `{"per_shard": false}`)
	var names []string
	for name := range codes {
		names = append(names, name)
	}
	return map[string]any{
		"retried":   len(results.Results),
		"throttled": map[string]any{"type": kind(throttled), "attempts": exhausted.Attempt},
		"codes":     names,
	}
}

func expire() string {
	start := kinesis.GetShardIteratorInput{
		StreamName: stream, ShardId: shards()[0].ShardId, ShardIteratorType: types.ShardIteratorTypeLatest,
	}
	iterator := must(streams.GetShardIterator(ctx, &start)).ShardIterator
	control("POST", "clock", `{"advance_s": 301}`)
	_, expired := streams.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: iterator})
	return kind(expired)
}

func versions() []string {
	info, _ := debug.ReadBuildInfo()
	var found []string
	for _, one := range info.Deps {
		if strings.HasSuffix(one.Path, "/service/kinesis") || strings.HasSuffix(one.Path, "/service/dynamodb") {
			found = append(found, one.Path+" "+one.Version)
		}
	}
	return found
}

func main() {
	settings := must(config.LoadDefaultConfig(ctx))
	streams, tables = kinesis.NewFromConfig(settings), dynamodb.NewFromConfig(settings)
	report := map[string]any{"versions": versions()}
	report["created"] = create()
	report["written"] = write()
	report["read"] = readAll()
	report["split"] = split()
	report["fanOut"] = fanOut()
	report["again"] = readAll()
	report["limits"] = limits()
	report["expired"] = expire()
	report["table"] = table()
	check(json.NewEncoder(os.Stdout).Encode(report))
}
