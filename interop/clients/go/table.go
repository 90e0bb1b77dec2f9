package main

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// table makes a table, and writes a row under conditions that hold and that fail.
func table() map[string]any {
	id := &types.AttributeValueMemberS{Value: "ключ"}
	_, missing := tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: stream})
	must(tables.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            stream,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: "S"}},
		BillingMode:          types.BillingModePayPerRequest,
	}))
	quickly := func(options *dynamodb.TableExistsWaiterOptions) { options.MinDelay = time.Second }
	check(dynamodb.NewTableExistsWaiter(tables, quickly).Wait(ctx, &dynamodb.DescribeTableInput{TableName: stream}, wait))
	put := dynamodb.PutItemInput{
		TableName: stream,
		Item: map[string]types.AttributeValue{
			"id":      id,
			"counter": &types.AttributeValueMemberN{Value: "1"},
			"bytes":   &types.AttributeValueMemberB{Value: []byte{0, 255}},
		},
		ConditionExpression: aws.String("attribute_not_exists(id)"),
	}
	must(tables.PutItem(ctx, &put))
	_, refused := tables.PutItem(ctx, &put)
	updated := must(tables.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 stream,
		Key:                       map[string]types.AttributeValue{"id": id},
		UpdateExpression:          aws.String("SET #c = #c + :one"),
		ExpressionAttributeNames:  map[string]string{"#c": "counter"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
		ReturnValues:              types.ReturnValueAllNew,
	})).Attributes
	again := types.Put{TableName: stream, Item: put.Item, ConditionExpression: put.ConditionExpression}
	_, cancelled := tables.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{{Put: &again}},
	})
	read := must(tables.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: stream, Key: map[string]types.AttributeValue{"id": id}, ConsistentRead: aws.Bool(true),
	})).Item
	counter := func(item map[string]types.AttributeValue) string {
		return item["counter"].(*types.AttributeValueMemberN).Value
	}
	return map[string]any{
		"missing":   kind(missing),
		"refused":   kind(refused),
		"cancelled": kind(cancelled),
		"counters":  []string{counter(updated), counter(read)},
		"bytes":     sum(read["bytes"].(*types.AttributeValueMemberB).Value),
	}
}
