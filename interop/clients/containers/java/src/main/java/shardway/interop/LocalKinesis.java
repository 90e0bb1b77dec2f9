package shardway.interop;

import java.net.URI;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

/** A local Kinesis in a container, or the one that runs already at SHARDWAY_ENDPOINT_URL. */
final class LocalKinesis implements AutoCloseable {
    private static final int PORT = 4567;
    private static final String RUNNING = System.getenv("SHARDWAY_ENDPOINT_URL");
    private static final String IMAGE =
            System.getenv().getOrDefault("SHARDWAY_IMAGE", "OWNER/shardway-local:v0.3.0");

    private GenericContainer<?> container;

    LocalKinesis() {
        if (RUNNING == null) {
            container = new GenericContainer<>(IMAGE)
                    .withCommand("--stream", "orders:4")
                    .withExposedPorts(PORT)
                    .waitingFor(Wait.forHttp("/_shardway/health").forPort(PORT));
            container.start();
        }
    }

    URI address() {
        return URI.create(container == null
                ? RUNNING
                : "http://" + container.getHost() + ":" + container.getMappedPort(PORT));
    }

    @Override
    public void close() {
        if (container != null) {
            container.stop();
        }
    }
}
