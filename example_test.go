package tenure_test

import (
	"cmp"
	"context"
	"errors"
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

// A service whose leader writes a report each night: examples/quickstart, and the quick start of
// the README.
func Example() { //nolint:testableexamples // it serves until a signal comes
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	rdb := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")}) // a client of its own
	c, err := tenure.New(rdb, tenure.Options{
		Namespace:       "shop",                                            // the name of the service, before every key
		Election:        tenure.ElectionOptions{LeaseTTL: 5 * time.Second}, // a crash is noticed within this
		ShutdownTimeout: 20 * time.Second,                                  // with 5 s for HTTP below the 30 s of Kubernetes
		Logger:          slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Tasks().Register(tenure.Task{
		Name:          "report",
		Schedule:      tenure.Cron("CRON_TZ=Europe/Berlin 0 3 * * *"),
		RunOnElection: true, // so that you see it run now
		Run: func(_ context.Context, run tenure.TaskRun) error {
			slog.Info("the leader writes the report", "slot", run.Slot, "token", run.Token)
			return nil
		},
	}); err != nil {
		log.Fatal(err)
	}

	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "leader:", c.IsLeader()) })
	server := &http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), ":8080"), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.Fatal(err)
		}
	}()
	running, leave := context.WithCancel(context.Background())
	go func() {
		<-ctx.Done()
		time.AfterFunc(time.Second, stop) // a later Ctrl-C kills; some supervisors send two signals at once
		bounded, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(bounded) // requests that are on are answered, while this process may still lead
		leave()
	}()
	if err := c.Run(running); err != nil { // until leave: tasks finish, the lease is released, another leads
		log.Fatal(err)
	}
}

// Leader work is called at the start of each term. One that returns nil is done; the term goes on.
func ExampleCoordinator_Run() {
	c, err := tenure.NewStandalone(tenure.Options{}) // New, in a service with several instances
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	err = c.Run(ctx, func(_ context.Context, term tenure.Term) error {
		fmt.Println("leads:", c.IsLeader(), "valid:", term.Valid())
		stop()
		return nil
	})
	fmt.Println("ended with", err, "and leads:", c.IsLeader())
	// Output:
	// leads: true valid: true
	// ended with <nil> and leads: false
}

// Three shards are shared out between all processes that have them: each leads as many as any
// other, or one more. Run leads them.
func ExampleCoordinator_AddRole() {
	coordinator, err := tenure.NewStandalone(tenure.Options{NoDefaultRole: true})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		consume := func(ctx context.Context, term tenure.Term) error {
			<-ctx.Done() // until then, consume what belongs to term.Role
			return ctx.Err()
		}
		if _, err := coordinator.AddRole(fmt.Sprint("shard-", i), tenure.ElectionOptions{Spread: true, Lead: []tenure.LeadFunc{consume}}); err != nil {
			log.Fatal(err)
		}
	}
	for _, elector := range coordinator.Roles() {
		fmt.Println(elector.Role(), elector.IsLeader())
	}
	// Output:
	// shard-0 false
	// shard-1 false
	// shard-2 false
}

// A handler's leader-only section: the lease is not released before it has returned.
func ExampleElector_Do() {
	c, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	if err != nil {
		log.Fatal(err)
	}
	write := func(_ context.Context, term tenure.Term) error {
		fmt.Println("writes with a token:", term.Token > 0)
		return nil
	}
	err = c.Elector().Do(context.Background(), write)
	fmt.Println("before Run:", errors.Is(err, tenure.ErrNotLeader))

	ctx, stop := context.WithCancel(context.Background())
	_ = c.Run(ctx, func(ctx context.Context, _ tenure.Term) error {
		defer stop()
		return c.Elector().Do(ctx, write)
	})
	// Output:
	// before Run: true
	// writes with a token: true
}

// A task that runs at the start of each term, and once a day.
func ExampleTaskScheduler_Register() {
	c, err := tenure.NewStandalone(tenure.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := c.Tasks().Register(tenure.Task{
		Name:          "warm-up",
		Schedule:      tenure.Cron("CRON_TZ=Europe/Berlin 0 3 * * *"),
		RunOnElection: true,
		Run: func(_ context.Context, run tenure.TaskRun) error {
			fmt.Println(run.Task, "attempt", run.Attempt)
			stop()
			return nil
		},
	}); err != nil {
		log.Fatal(err)
	}
	_ = c.Run(ctx)
	// Output: warm-up attempt 1
}

// A run that is held up by a rate limit waits for as long as that says. One whose input is wrong
// has failed at once.
func ExampleRetryAfter() {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "waf-0"})
	if err != nil {
		log.Fatal(err)
	}
	err = coordinator.Tasks().Register(tenure.Task{
		Name:     "export",
		Schedule: tenure.Every(time.Hour),
		Retry:    tenure.RetryPolicy{Attempts: 5},
		Run: func(ctx context.Context, _ tenure.TaskRun) error {
			status, err := post(ctx)
			switch {
			case err != nil:
				return err // the next attempt comes after a second, then after two
			case status == http.StatusTooManyRequests:
				return tenure.RetryAfter(errors.New("too many requests"), 5*time.Minute)
			case status == http.StatusBadRequest:
				return tenure.NoRetry(errors.New("bad request"))
			}
			return nil
		},
	})
	fmt.Println(err)
	// Output: <nil>
}

func post(context.Context) (status int, err error) { return http.StatusOK, nil }

// The instances of a service, as any of them sees them.
func ExampleRegistry_Instances() {
	c, err := tenure.NewStandalone(tenure.Options{InstanceID: "a", Registry: tenure.RegistryOptions{Metadata: map[string]string{"zone": "1"}}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c.Observe(func(e tenure.Event) {
		if e.Type != tenure.EventInstanceRegistered {
			return
		}
		defer stop()
		instances, err := c.Registry().Instances(ctx, tenure.InstanceQuery{})
		for _, i := range instances {
			fmt.Println(i.ID, i.Metadata["zone"], err)
		}
	})
	_ = c.Run(ctx)
	// Output: a 1 <nil>
}

// TestReadmeQuickStartIsTheExample: the program of the README is examples/quickstart, which is
// built and run by its test, and the Example of this package.
func TestReadmeQuickStartIsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "```go\npackage main\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```\n")
	program, err := os.ReadFile("examples/quickstart/main.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(program), "package main\n")
	require.True(t, found)
	require.Equal(t, code, block)

	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, body, found := strings.Cut(string(source), "func Example() { //nolint:testableexamples // it serves until a signal comes\n")
	require.True(t, found)
	body, _, _ = strings.Cut(body, "\n}\n")
	require.Contains(t, code, "func main() {\n"+body+"\n}\n")
}

// The history of a role says who led it, from when to when, and why not any more.
func ExampleElector_Terms() {
	shop, err := tenure.NewStandalone(tenure.Options{InstanceID: "pod-1"})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = shop.Run(ctx, func(context.Context, tenure.Term) error {
		cancel() // the process is told to stop
		return nil
	})
	if err != nil {
		panic(err)
	}
	terms, err := shop.Elector().Terms(context.Background(), 10)
	if err != nil {
		panic(err)
	}
	for _, term := range terms {
		fmt.Println(term.InstanceID, term.Reason)
	}
	// Output: pod-1 stopped
}

// A page that shows the instances follows the registry: a snapshot, then each change.
func ExampleRegistry_Watch() {
	shop, err := tenure.NewStandalone(tenure.Options{InstanceID: "pod-1"})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	for change, err := range shop.Registry().Watch(context.Background()) {
		if err != nil {
			fmt.Println(err) // the watch goes on
			continue
		}
		switch change.Type {
		case tenure.ChangeSnapshot: // what was known before is replaced by change.Instances
			go func() { ended <- shop.Run(ctx) }() // ends with ctx; awaited below
		case tenure.ChangeElected:
			cancel() // the process is told to stop
		case tenure.ChangeEnded:
			fmt.Println("the term of", change.InstanceID, "has ended:", change.Reason)
		}
		if change.Type == tenure.ChangeLeft {
			fmt.Println(change.InstanceID, "has left")
			break
		}
	}
	if err := <-ended; err != nil {
		panic(err)
	}
	// Output:
	// the term of pod-1 has ended: stopped
	// pod-1 has left
}
