package shardway.interop;

import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.client.builder.AwsAsyncClientBuilder;
import software.amazon.awssdk.awscore.client.builder.AwsClientBuilder;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * One worker of the Kinesis Client Library, of whichever version it was built with. It reads by polling, and prints a
 * JSON line for whatever its processors are told ({@link Processor}).
 *
 * <p>Arguments, each {@code name=value}: {@code stream}, {@code application}, {@code worker} (its id), {@code kinesis}
 * and {@code dynamodb} (where they are answered), {@code start} (where a shard without a lease begins: {@code
 * TRIM_HORIZON}, {@code LATEST}, or a time in epoch milliseconds), {@code checkpoint_ms} (at least so long lies between
 * two checkpoints of a shard), and any setting of the library as a path of its accessors ({@link Settings}), such as
 * {@code lease.failoverTimeMillis=4000}; the first word is {@code lease}, {@code coordinator}, {@code lifecycle},
 * {@code polling} or {@code retrieval}.
 *
 * <p>SIGTERM is a graceful shutdown. The end of standard input is the end of whoever started it: it halts at once.
 */
public final class Worker {
    private static final List<String> OWN =
            List.of("stream", "application", "worker", "kinesis", "dynamodb", "start", "checkpoint_ms");
    private static final long STOP_TIMEOUT_S = 20;

    private Worker() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> own = new HashMap<>();
        List<String[]> settings = new ArrayList<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            if (pair.length != 2) {
                throw new IllegalArgumentException("an argument is name=value, not " + argument);
            }
            if (OWN.contains(pair[0])) {
                own.put(pair[0], pair[1]);
            } else {
                settings.add(pair);
            }
        }
        for (String name : OWN) {
            if (!own.containsKey(name)) {
                throw new IllegalArgumentException("the argument " + name + "= is missing");
            }
        }
        run(own, settings);
    }

    private static void run(Map<String, String> own, List<String[]> settings) throws Exception {
        var out = new Lines();
        Scheduler scheduler = scheduler(own, settings, out);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                scheduler.startGracefulShutdown().get(STOP_TIMEOUT_S, TimeUnit.SECONDS);
                out.print("stopped");
            } catch (Exception fault) {
                out.print("stop failed", "error", fault.toString());
            }
        }));
        Thread guard = new Thread(Worker::haltWithoutInput);
        guard.setDaemon(true);
        guard.start();
        out.print("process");
        scheduler.run();
        System.exit(0);
    }

    private static void haltWithoutInput() {
        try {
            System.in.transferTo(OutputStream.nullOutputStream());
        } catch (IOException fault) {
            // Just as gone.
        }
        Runtime.getRuntime().halt(3);
    }

    private static Scheduler scheduler(Map<String, String> own, List<String[]> settings, Lines out)
            throws ReflectiveOperationException {
        var kinesis = client(KinesisAsyncClient.builder(), own.get("kinesis"));
        var dynamodb = client(DynamoDbAsyncClient.builder(), own.get("dynamodb"));
        var cloudwatch = client(CloudWatchAsyncClient.builder(), own.get("kinesis"));
        var tenures = new AtomicInteger();
        long checkpointMs = Long.parseLong(own.get("checkpoint_ms"));
        var configs = new ConfigsBuilder(
                new SingleStreamTracker(own.get("stream"), start(own.get("start"))),
                own.get("application"),
                kinesis,
                dynamodb,
                cloudwatch,
                own.get("worker"),
                () -> new Processor(out, tenures.incrementAndGet(), checkpointMs));
        var polling = new PollingConfig(own.get("stream"), kinesis);
        var lease = configs.leaseManagementConfig();
        var coordinator = configs.coordinatorConfig();
        var lifecycle = configs.lifecycleConfig();
        var retrieval = configs.retrievalConfig().retrievalSpecificConfig(polling);
        var parts = Map.of(
                "lease", lease,
                "coordinator", coordinator,
                "lifecycle", lifecycle,
                "polling", polling,
                "retrieval", retrieval);
        for (String[] setting : settings) {
            Settings.set(parts, setting[0], setting[1]);
        }
        return new Scheduler(
                configs.checkpointConfig(),
                coordinator,
                lease,
                lifecycle,
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                retrieval);
    }

    private static InitialPositionInStreamExtended start(String text) {
        if (Character.isDigit(text.charAt(0))) {
            return InitialPositionInStreamExtended.newInitialPositionAtTimestamp(new Date(Long.parseLong(text)));
        }
        return InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.valueOf(text));
    }

    /** HTTP/1.1, which each of the local services speaks. */
    private static <B extends AwsAsyncClientBuilder<B, C> & AwsClientBuilder<B, C>, C> C client(B builder, String url) {
        return builder.endpointOverride(URI.create(url))
                .region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
                .httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1))
                .build();
    }
}
