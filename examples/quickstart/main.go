// Quickstart is a service whose leader writes a report each night: the quick start of the README.
package main

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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

func main() {
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
