package orders

import (
	"context"
	"os"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// kinesis starts a local Kinesis in a container and returns its address, or that of the one that runs already.
func kinesis(t *testing.T, ctx context.Context) string {
	if running := os.Getenv("SHARDWAY_ENDPOINT_URL"); running != "" {
		return running
	}
	image := "OWNER/shardway-local:v0.3.0"
	if own := os.Getenv("SHARDWAY_IMAGE"); own != "" {
		image = own
	}
	container, err := testcontainers.Run(ctx, image,
		testcontainers.WithCmd("--stream", "orders:4"),
		testcontainers.WithExposedPorts("4567/tcp"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/_shardway/health").WithPort("4567/tcp")),
	)
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	address, err := container.PortEndpoint(ctx, "4567/tcp", "http")
	if err != nil {
		t.Fatal(err)
	}
	return address
}
