package tenure_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

func cleanup(context.Context, int64) error { return nil }

// A service with a handler that answers by IsLeader and a leader-only task. This is the quick start
// of the README.
func Example() { //nolint:testableexamples // it serves until a signal comes
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ReadTimeout: 3 * time.Second}) // a client of its own
	c, err := tenure.New(rdb, tenure.Options{Namespace: "shop", Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Tasks().Register(tenure.Task{
		Name:     "cleanup",
		Schedule: tenure.Every(time.Hour),
		Run:      func(ctx context.Context, run tenure.TaskRun) error { return cleanup(ctx, run.Token) },
	}); err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/leader", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, c.IsLeader()) })
	go func() { log.Fatal(http.ListenAndServe(":8080", nil)) }()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = c.Run(ctx) // until a signal; then drains, releases, deregisters
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// The quick start of the README is the Example above, line by line.
func TestReadmeQuickStartIsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(readme), "## Quick start\n\n```go\n")
	require.True(t, found)
	block, _, _ := strings.Cut(after, "```")

	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, body, found := strings.Cut(string(source), "func Example() { //nolint:testableexamples // it serves until a signal comes\n")
	require.True(t, found)
	body, _, _ = strings.Cut(body, "\n}\n")
	require.Equal(t, strings.TrimSpace(strings.ReplaceAll("\n"+body, "\n\t", "\n")), strings.TrimSpace(block))
}
