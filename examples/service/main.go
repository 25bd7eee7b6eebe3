// Service is a whole service with an HTTP handler that answers by IsLeader and a task that runs on
// the leader only.
//
//	go run ./examples/service
//	curl http://127.0.0.1:8080/
//	curl -X POST http://127.0.0.1:8080/orders
//
// It runs on an embedded Redis, or on REDIS_URL, where processes that are started on different
// ports are instances of one service; the last of them removes their keys. The one that has an
// embedded Redis logs how to start a second beside it. It exits with 0 after Ctrl-C, SIGTERM or the
// time of -for, with 1 if it cannot serve.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

const namespace = "tenure-service"

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to serve on; port 0: a free one")
	duration := flag.Duration("for", 0, "how long to serve; 0: until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Getenv("REDIS_URL"), *addr, *duration)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run wires the service and serves for the given time, or until ctx is done.
func run(ctx context.Context, out io.Writer, url, addr string, duration time.Duration) error {
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	log := slog.New(slog.NewTextHandler(out, nil))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	if url == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer embedded.Close()
		embedded.ClockTTL(true)
		url = "redis://" + embedded.Addr()
		log.Info("embedded Redis", "second_instance", "REDIS_URL="+url+" go run ./examples/service -addr 127.0.0.1:0")
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return errors.New("REDIS_URL must look like redis://user:password@host:6379/0") // the cause repeats it, with the password
	}
	store, own := redis.NewClient(options), redis.NewClient(options)
	defer store.Close()
	defer own.Close()
	if err := store.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s: %w", options.Addr, err)
	}

	_, port, _ := net.SplitHostPort(listener.Addr().String())
	coordinator, err := tenure.New(own, tenure.Options{
		Namespace:  namespace,
		InstanceID: "service-" + port,                                 // the default is for one process a host
		Election:   tenure.ElectionOptions{LeaseTTL: 5 * time.Second}, // the default of 30 s is long to wait after a kill -9
		Logger:     log,
	})
	if err != nil {
		return err
	}
	s := &shop{Coordinator: coordinator, store: store, orders: namespace + ":orders"}
	if err := coordinator.Tasks().Register(tenure.Task{
		Name:     "report",
		Schedule: tenure.Every(2 * time.Second),
		Run:      s.report(log),
	}); err != nil {
		return err
	}
	log.Info("serving", "url", "http://"+listener.Addr().String()+"/")
	defer removeKeys(store)
	return serve(ctx, s, listener)
}

// removeKeys deletes the keys of the service if no instance is registered: an example leaves
// nothing behind, a service would not do this, since another one may be about to start.
func removeKeys(client *redis.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if left, err := client.HLen(ctx, namespace+":instances").Result(); err != nil || left > 0 {
		return
	}
	keys := client.Scan(ctx, 0, namespace+":*", 500).Iterator()
	for keys.Next(ctx) {
		client.Del(ctx, keys.Val())
	}
}
