// Command start is the program of docs/getting-started.md: two of it on one Redis elect a leader,
// which runs a task every five seconds, and each serves the status page.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	address := cmp.Or(os.Getenv("LISTEN"), "localhost:8080")

	rdb := redis.NewClient(&redis.Options{
		Addr:        cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379"),
		ReadTimeout: 500 * time.Millisecond, // at most a tenth of the lease
	})
	c, err := tenure.New(rdb, tenure.Options{
		Namespace:  "shop",
		InstanceID: os.Getenv("ID"), // "" is the default: $HOSTNAME, else <host>-<pid>
		Election:   tenure.ElectionOptions{LeaseTTL: 5 * time.Second},
		Registry:   tenure.RegistryOptions{Address: address},
		Logger:     slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	err = c.Tasks().Register(tenure.Task{
		Name:     "report",
		Schedule: tenure.Every(5 * time.Second),
		Run: func(_ context.Context, run tenure.TaskRun) error {
			slog.Info("the leader works", "slot", run.Slot, "token", run.Token)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	page, err := tenurehttp.New(c, tenurehttp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/tenure/", http.StripPrefix("/tenure", page))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "leader:", c.IsLeader()) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(page.Close)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	// Until Ctrl-C; then requests are answered, tasks finish, the lease is released, another leads.
	if err := (tenurehttp.Service{Coordinator: c, Server: server}).Serve(ctx, listener); err != nil {
		log.Fatal(err)
	}
}
