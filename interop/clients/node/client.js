// What a user's tests do with a local Kinesis, by the AWS SDK for JavaScript. AWS's own variables of the environment say
// where it is; the argument is the stream's name. The last line that is printed is JSON: what each step found.
import { createHash } from "node:crypto";
import { createRequire } from "node:module";

import * as dynamodb from "@aws-sdk/client-dynamodb";
import * as kinesis from "@aws-sdk/client-kinesis";

const CONTROL = `${process.env.AWS_ENDPOINT_URL}/_shardway`;
const StreamName = process.argv[2];
const NUMBERED = 60;
const kinesisClient = new kinesis.KinesisClient({});
const tables = new dynamodb.DynamoDBClient({});

const version = (name) => createRequire(import.meta.url)(`${name}/package.json`).version;
const call = (name, input) => kinesisClient.send(new kinesis[`${name}Command`](input));
const sum = (data) => createHash("sha256").update(data).digest("hex");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function control(path, body, method = "POST") {
  const answer = await fetch(`${CONTROL}/${path}`, { method, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

// The class by which the SDK knows the error, and how often it has tried.
async function errorOf(library, work) {
  try {
    await work();
  } catch (error) {
    const known = library[error.name] && error instanceof library[error.name];
    return { type: known ? error.name : `unknown ${error}`, attempts: error.$metadata?.attempts ?? 0 };
  }
  return { type: "none", attempts: 0 };
}

async function create() {
  const before = await errorOf(kinesis, () => call("DescribeStreamSummary", { StreamName }));
  await call("CreateStream", { StreamName, ShardCount: 2 });
  const { StreamDescriptionSummary: summary } = await call("DescribeStreamSummary", { StreamName });
  await kinesis.waitUntilStreamExists({ client: kinesisClient, maxWaitTime: 60, minDelay: 1 }, { StreamName });
  const { Shards } = await call("ListShards", { StreamName });
  const { handlerProtocol } = kinesisClient.config.requestHandler.metadata;
  return { missing: before.type, status: summary.StreamStatus, shards: Shards.length, protocol: handlerProtocol };
}

function records() {
  const made = [
    ["plain", Buffer.from("text")],
    ["ключ-鍵-🔑", Buffer.from(Array.from({ length: 256 }, (_, at) => at))],
    ["empty", Buffer.alloc(0)],
    ["é".repeat(128), Buffer.from("é🔑", "utf16le")],
    ["large", Buffer.alloc(1024 * 1024 - 5, 0xfe)],
  ];
  for (let number = 0; number < NUMBERED; number++) made.push([`key-${number}`, Buffer.from(`${number}`)]);
  return made;
}

const shown = (some) => some.map(([key, data]) => [key, data.length, sum(data)]).sort();

async function write() {
  const [first, second, ...others] = records();
  for (const [PartitionKey, Data] of [first, second]) await call("PutRecord", { StreamName, PartitionKey, Data });
  const Records = others.slice(0, 3).map(([PartitionKey, Data]) => ({ PartitionKey, Data }));
  const answer = await call("PutRecords", { StreamName, Records });
  const side = others
    .slice(3)
    .map(([PartitionKey, Data]) => call("PutRecord", { StreamName, PartitionKey, Data }));
  const numbers = new Set((await Promise.all(side)).map((one) => one.SequenceNumber));
  return { written: shown(records()), refused: answer.FailedRecordCount, numbers: numbers.size };
}

// The records of all shards, until the end of each that has ended, else until nothing is behind.
async function readAll() {
  const found = [];
  for (const { ShardId } of (await call("ListShards", { StreamName })).Shards) {
    const start = { StreamName, ShardId, ShardIteratorType: "TRIM_HORIZON" };
    let { ShardIterator: iterator } = await call("GetShardIterator", start);
    while (iterator) {
      const answer = await call("GetRecords", { ShardIterator: iterator });
      found.push(...answer.Records.map((one) => [one.PartitionKey, one.Data]));
      iterator = answer.MillisBehindLatest > 0 || answer.ChildShards ? answer.NextShardIterator : undefined;
    }
  }
  return shown(found);
}

async function split() {
  const [shard] = (await call("ListShards", { StreamName })).Shards;
  const [low, high] = [shard.HashKeyRange.StartingHashKey, shard.HashKeyRange.EndingHashKey].map(BigInt);
  const NewStartingHashKey = `${(low + high) / 2n + 1n}`;
  await call("SplitShard", { StreamName, ShardToSplit: shard.ShardId, NewStartingHashKey });
  await kinesis.waitUntilStreamExists({ client: kinesisClient, maxWaitTime: 60, minDelay: 1 }, { StreamName });
  const { Shards } = await call("ListShards", { StreamName });
  await call("PutRecord", { StreamName, PartitionKey: "after", Data: Buffer.from("the split") });
  return {
    ended: Shards.filter((one) => one.SequenceNumberRange.EndingSequenceNumber).length,
    children: Shards.filter((one) => one.ParentShardId === shard.ShardId).length,
  };
}

// The records of a shard: until its children are named, if it has ended, else until nothing is behind.
async function subscribe(ConsumerARN, { ShardId, SequenceNumberRange }, found) {
  const from = { ConsumerARN, ShardId, StartingPosition: { Type: "TRIM_HORIZON" } };
  const { EventStream } = await call("SubscribeToShard", from);
  for await (const { SubscribeToShardEvent: event } of EventStream) {
    found.push(...event.Records.map((one) => [one.PartitionKey, one.Data]));
    if (event.ChildShards?.length) return event.ChildShards;
    if (event.MillisBehindLatest === 0 && !SequenceNumberRange.EndingSequenceNumber) return [];
  }
  throw new Error(`the subscription to ${ShardId} ended before the shard's records`);
}

async function fanOut() {
  const { StreamDescriptionSummary: summary } = await call("DescribeStreamSummary", { StreamName });
  const consumer = { StreamARN: summary.StreamARN, ConsumerName: "tests" };
  let { Consumer } = await call("RegisterStreamConsumer", consumer);
  while (Consumer?.ConsumerStatus !== "ACTIVE") {
    await pause(100);
    Consumer = (await call("DescribeStreamConsumer", consumer)).ConsumerDescription;
  }
  const [found, children] = [[], []];
  for (const shard of (await call("ListShards", { StreamName })).Shards) {
    children.push(...(await subscribe(Consumer.ConsumerARN, shard, found)));
  }
  await call("DeregisterStreamConsumer", consumer);
  const wrong = { ConsumerARN: `${Consumer.ConsumerARN}0`, ShardId: "shardId-000000000000" };
  const missing = await errorOf(kinesis, () =>
    call("SubscribeToShard", { ...wrong, StartingPosition: { Type: "LATEST" } }),
  );
  return { read: shown(found), children: children.length, missing: missing.type };
}

async function limits() {
  const one = { StreamName, PartitionKey: "throttled", Data: Buffer.from("1") };
  await control("faults", { how: "throttle", operation: "PutRecord", stream: StreamName, count: 2 });
  const retried = (await call("PutRecord", one)).$metadata.attempts;
  await control("faults", { how: "throttle", operation: "PutRecord", stream: StreamName });
  const throttled = await errorOf(kinesis, () => call("PutRecord", one));
  await control("faults", undefined, "DELETE");
  await control("limits", { per_shard: true });
  const hash = { ExplicitHashKey: "0", PartitionKey: "big", Data: Buffer.alloc(900_000) };
  let Records = [hash, hash, hash];
  const codes = new Set();
  while (Records.length) {
    const answer = await call("PutRecords", { StreamName, Records });
    answer.Records.filter((entry) => entry.ErrorCode).forEach((entry) => codes.add(entry.ErrorCode));
    Records = Records.filter((_, at) => answer.Records[at].ErrorCode);
    if (Records.length) await pause(500);
  }
  await control("limits", { per_shard: false });
  return { retried, throttled, codes: [...codes] };
}

async function expire() {
  const [{ ShardId }] = (await call("ListShards", { StreamName })).Shards;
  const start = { StreamName, ShardId, ShardIteratorType: "LATEST" };
  const { ShardIterator } = await call("GetShardIterator", start);
  await control("clock", { advance_s: 301 });
  return (await errorOf(kinesis, () => call("GetRecords", { ShardIterator }))).type;
}

async function table() {
  const TableName = StreamName;
  const send = (name, input) => tables.send(new dynamodb[`${name}Command`]({ TableName, ...input }));
  const missing = await errorOf(dynamodb, () => send("DescribeTable", {}));
  await send("CreateTable", {
    KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
    AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
    BillingMode: "PAY_PER_REQUEST",
  });
  await dynamodb.waitUntilTableExists({ client: tables, maxWaitTime: 60, minDelay: 1 }, { TableName });
  const Item = { id: { S: "ключ" }, counter: { N: "1" }, bytes: { B: Buffer.from([0, 255]) } };
  const put = { Item, ConditionExpression: "attribute_not_exists(id)" };
  await send("PutItem", put);
  const refused = await errorOf(dynamodb, () => send("PutItem", put));
  const add = { Key: { id: Item.id }, UpdateExpression: "SET #c = #c + :one", ReturnValues: "ALL_NEW" };
  const names = { ExpressionAttributeNames: { "#c": "counter" }, ExpressionAttributeValues: { ":one": { N: "1" } } };
  const { Attributes } = await send("UpdateItem", { ...add, ...names });
  const both = { TransactItems: [{ Put: { TableName, ...put } }] };
  const cancelled = await errorOf(dynamodb, () => tables.send(new dynamodb.TransactWriteItemsCommand(both)));
  const read = await send("GetItem", { Key: { id: Item.id }, ConsistentRead: true });
  return {
    missing: missing.type,
    refused: refused.type,
    cancelled: cancelled.type,
    counters: [Attributes.counter.N, read.Item.counter.N],
    bytes: sum(read.Item.bytes.B),
  };
}

const report = { versions: ["client-kinesis", "client-dynamodb"].map((name) => `${name} ${version(`@aws-sdk/${name}`)}`) };
report.created = await create();
report.written = await write();
report.read = await readAll();
report.split = await split();
report.fanOut = await fanOut();
report.again = await readAll();
report.limits = await limits();
report.expired = await expire();
report.table = await table();
kinesisClient.destroy();
tables.destroy();
console.log(JSON.stringify(report));
