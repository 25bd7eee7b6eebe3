// Quickstart is a service whose leader writes a report each night: the quick start of the README.
package main

import (
	"cmp"
	"context"
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
		Namespace: "shop",                                            // the name of the service, before every key
		Election:  tenure.ElectionOptions{LeaseTTL: 5 * time.Second}, // a crash is noticed within this
		Logger:    slog.Default(),
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
		defer stop() // a server that cannot listen ends the program
		slog.Info("http", "ended", server.ListenAndServe())
	}()
	if err := c.Run(ctx); err != nil { // until a signal: tasks finish, the lease is released, another leads
		slog.Error("tenure", "error", err)
	}
	ended, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = server.Shutdown(ended) // requests that are on are answered
}
