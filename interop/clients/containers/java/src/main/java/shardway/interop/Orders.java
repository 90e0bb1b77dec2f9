package shardway.interop;

import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.kinesis.KinesisClient;
import software.amazon.awssdk.services.kinesis.model.ExpiredIteratorException;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;

/** An order comes back from the stream, and the service's clock can be moved. */
public final class Orders {
    public static void main(String[] arguments) throws Exception {
        try (var kinesis = new LocalKinesis(); var client = client(kinesis)) {
            var written = client.putRecord(request -> request
                    .streamName("orders")
                    .partitionKey("customer-3")
                    .data(SdkBytes.fromUtf8String("an order")));
            var iterator = client.getShardIterator(request -> request
                            .streamName("orders")
                            .shardId(written.shardId())
                            .shardIteratorType(ShardIteratorType.AT_SEQUENCE_NUMBER)
                            .startingSequenceNumber(written.sequenceNumber()))
                    .shardIterator();
            var read = client.getRecords(request -> request.shardIterator(iterator)).records();
            if (read.size() != 1 || !read.get(0).data().asUtf8String().equals("an order")) {
                throw new AssertionError("read: " + read);
            }
            move(kinesis);
            try {
                client.getRecords(request -> request.shardIterator(iterator));
                throw new AssertionError("the iterator has not expired");
            } catch (ExpiredIteratorException expected) {
                System.out.println("ok, against " + kinesis.address());
            }
        }
    }

    private static KinesisClient client(LocalKinesis kinesis) {
        return KinesisClient.builder()
                .endpointOverride(kinesis.address())
                .region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
                .build();
    }

    private static void move(LocalKinesis kinesis) throws Exception {
        var request = HttpRequest.newBuilder(kinesis.address().resolve("/_shardway/clock"))
                .POST(HttpRequest.BodyPublishers.ofString("{\"advance_s\": 301}"))
                .build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new AssertionError("the clock does not move: " + answer.body());
        }
    }
}
