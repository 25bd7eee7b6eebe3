// Demo shows an election live: three processes over one Redis, the leader killed with SIGKILL, then
// a graceful hand-over, each with its measured time. It runs on an embedded Redis, or on REDIS_URL
// in a namespace of its own that it removes at the end.
//
//	go run ./examples/demo -for 20s
//
// It exits with 0 after a summary, with 1 when an election failed or two processes led at once.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// leaseTTL is short, so that the take-over after a crash can be watched.
const leaseTTL = 3 * time.Second

func main() {
	var member memberConfig
	duration := flag.Duration("for", 0, "how long to run; 0: until interrupted")
	flag.StringVar(&member.id, "member", "", "run as the process of this name (used by the demo itself)")
	flag.StringVar(&member.namespace, "namespace", "", "namespace of the run (used by the demo itself)")
	flag.Parse()
	member.url = os.Getenv("REDIS_URL") // no flag: a password in it would stand in the list of processes

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if member.id != "" {
		err = runMember(ctx, member)
	} else {
		err = runDemo(ctx, member.url, *duration)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// runDemo starts Redis if there is none, plays the show and removes what it left behind.
func runDemo(ctx context.Context, url string, duration time.Duration) error {
	embedding := url == ""
	if embedding {
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
	where := options.Addr
	if embedding {
		where = "an embedded Redis"
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s: %w", options.Addr, err)
	}
	namespace := "tenure-demo-" + rand.Text()[:8]
	defer removeNamespace(client, namespace)

	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	s := &show{url: url, namespace: namespace, client: client, began: time.Now(), events: make(chan report, 64)}
	s.say("", "three processes over %s, namespace %s, lease %v", where, namespace, leaseTTL)
	return s.run(ctx)
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
