// Fencing-sql shows how a row of a database refuses a leader that is none any more. A leader is
// paused right before a write, another takes over and writes, the first wakes up and goes on: its
// UPDATE finds no row whose token is not above its own. The work and the row are in leader.go;
// examples/fencing does the same in Redis.
//
//	go run ./examples/fencing-sql
//
// It runs on an embedded database (SQLite, in memory) and an embedded Redis, or on REDIS_URL in a
// namespace of its own that it removes at the end. It exits with 0 when the stale write was
// refused, with 1 otherwise.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver
)

func main() {
	limit := flag.Duration("for", 10*time.Second, "how long it may take at most; it ends when all has been shown")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Getenv("REDIS_URL"), *limit)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencing-sql:", err)
		os.Exit(1)
	}
}

// run starts Redis if there is none, plays the show and removes what it left behind.
func run(ctx context.Context, out io.Writer, url string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if url == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer embedded.Close()
		embedded.ClockTTL(true)
		url = "redis://" + embedded.Addr()
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return errors.New("REDIS_URL must look like redis://user:password@host:6379/0") // the cause repeats it, with the password
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s: %w", options.Addr, err)
	}
	namespace := "tenure-fencing-sql-" + rand.Text()[:8]
	defer removeNamespace(client, namespace)

	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	account, err := openAccount(ctx, db, 1)
	if err != nil {
		return err
	}

	alpha, err := newWorker("alpha", out, options, namespace, account)
	if err != nil {
		return err
	}
	defer alpha.client.Close()
	beta, err := newWorker("beta", out, options, namespace, account)
	if err != nil {
		return err
	}
	defer beta.client.Close()
	return show(ctx, out, alpha, beta)
}

// show returns nil when alpha, which led first, was refused after beta had taken over.
func show(ctx context.Context, out io.Writer, alpha, beta *worker) error {
	paused, resume := make(chan error, 1), make(chan struct{})
	alpha.beforeWrite = func() {
		paused <- nil
		<-resume
	}
	wake := sync.OnceFunc(func() { close(resume) })

	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer wake()
	defer cancel()

	workers.Go(func() { _ = alpha.elector.Run(ctx, alpha.lead) }) // ends with ctx
	if err := await(ctx, paused); err != nil {
		return fmt.Errorf("waiting for alpha to lead: %w", err)
	}
	fmt.Fprintln(out, "alpha is paused: nothing renews its lease, which lapses")
	_ = alpha.client.Close()

	workers.Go(func() { _ = beta.elector.Run(ctx, beta.lead) }) // ends with ctx
	if err := await(ctx, beta.wrote); err != nil {
		return fmt.Errorf("waiting for beta to write: %w", err)
	}

	fmt.Fprintln(out, "alpha wakes up and goes on with what it was about to do")
	wake()
	err := await(ctx, alpha.wrote)
	if err == nil {
		return errors.New("the account accepted a stale write")
	}
	if !errors.Is(err, errStale) {
		return fmt.Errorf("waiting for alpha to write: %w", err)
	}
	value, err := alpha.account.read(ctx)
	fmt.Fprintf(out, "the account keeps %q\n", value)
	return err
}

// await waits for the result of a worker, or for the end of the show.
func await(ctx context.Context, told <-chan error) error {
	select {
	case err := <-told:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// removeNamespace deletes the keys of this run and no others.
func removeNamespace(client *redis.Client, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys := client.Scan(ctx, 0, namespace+":*", 500).Iterator()
	for keys.Next(ctx) {
		client.Del(ctx, keys.Val())
	}
}
