//go:build unix

package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// reading is what a server says of itself at a time of its own clock.
type reading struct {
	at                 time.Duration // since the epoch
	cpu                time.Duration
	in, out            float64 // bytes
	connected, clients float64 // connections: all that ever were, those of now
	memory, ofClients  float64 // bytes: of all, of connections
	evalMicros, evals  float64 // time in scripts, how many ran
}

func parse(info map[string]string) (r reading) {
	number := func(field string) float64 {
		value, _ := strconv.ParseFloat(info[field], 64) // a field that is not there is 0
		return value
	}
	seconds := func(field string) time.Duration { return time.Duration(number(field) * float64(time.Second)) }
	r.at = time.Duration(number("server_time_usec")) * time.Microsecond
	r.cpu = seconds("used_cpu_user") + seconds("used_cpu_sys")
	r.in, r.out = number("total_net_input_bytes"), number("total_net_output_bytes")
	r.connected, r.clients = number("total_connections_received"), number("connected_clients")
	r.memory, r.ofClients = number("used_memory"), number("mem_clients_normal")
	r.evalMicros, r.evals = statistic(info["cmdstat_evalsha"], "usec"), statistic(info["cmdstat_evalsha"], "calls")
	return r
}

// statistic is a number of a line such as calls=1,usec=2.
func statistic(line, name string) float64 {
	for part := range strings.SplitSeq(line, ",") {
		if text, ok := strings.CutPrefix(part, name+"="); ok {
			value, _ := strconv.ParseFloat(text, 64) // Redis wrote it
			return value
		}
	}
	return 0
}

// look reads a server over its client. An error of a server that is down is an answer too.
func look(client *redis.Client, sections ...string) (reading, error) {
	text, err := client.Info(context.Background(), sections...).Result()
	if err != nil {
		return reading{}, err
	}
	info := make(map[string]string)
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			info[name] = value
		}
	}
	return parse(info), nil
}

// meter watches a server.
type meter struct {
	tb     redistest.TB
	client *redis.Client
	// connect is what a new connection costs the server, its greeting included.
	connect time.Duration
}

func newMeter(tb redistest.TB, server *redistest.Server) *meter {
	opts := server.Options()
	opts.PoolSize, opts.ReadTimeout, opts.MaxRetries = 2, time.Minute, -1
	client := redis.NewClient(opts)
	tb.Cleanup(func() { _ = client.Close() }) // it has nothing to say
	return &meter{tb: tb, client: client}
}

func (m *meter) now() reading {
	r, err := look(m.client, "server", "cpu", "stats", "clients", "memory", "commandstats")
	if err != nil {
		m.tb.Fatalf("INFO: %v", err)
	}
	return r
}

// share is of a core: what the server takes over a while.
func (m *meter) share(over time.Duration) float64 {
	before := m.now()
	time.Sleep(over)
	after := m.now()
	return (after.cpu - before.cpu).Seconds() / (after.at - before.at).Seconds()
}

// calibrate measures what a connection costs: bare ones are opened and greet.
func (m *meter) calibrate(server *redistest.Server, count int) {
	before := m.now()
	for range count {
		opts := server.Options()
		opts.PoolSize = 1
		client := redis.NewClient(opts)
		if err := client.Ping(context.Background()).Err(); err != nil {
			m.tb.Fatalf("%v", err)
		}
		_ = client.Close() // it has nothing to say
	}
	m.connect = (m.now().cpu - before.cpu) / time.Duration(count)
}

// second is what a server did in about a second.
type second struct {
	share     float64 // of a core
	connected float64 // connections that were opened
	took      time.Duration
}

// without is the share without the set-up of connections.
func (s second) without(connect time.Duration) float64 {
	return max(0, s.share-s.connected*connect.Seconds()/s.took.Seconds())
}

// everySecond watches the server until stop is called, which returns what it did in each second.
// One that was started again is taken up from when it last did not answer.
func (m *meter) everySecond() (stop func() []second) {
	done, ended := make(chan struct{}), make(chan struct{})
	var all []second
	go func() { // ends with done; stop waits for it
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last, err := look(m.client, "server", "cpu", "stats")
		down := time.Now() // when it last did not answer
		for {
			if now, failed := look(m.client, "server", "cpu", "stats"); failed != nil {
				err, down = failed, time.Now()
			} else {
				took := now.at - last.at
				if now.cpu < last.cpu || now.connected < last.connected { // it was started again, after it did not answer
					last.cpu, last.connected, took = 0, 0, time.Since(down)
					err = nil
				}
				if took > time.Second/4 && err == nil {
					all = append(all, second{share: (now.cpu - last.cpu).Seconds() / took.Seconds(), connected: now.connected - last.connected, took: took})
				}
				last, err = now, nil
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	return sync.OnceValue(func() []second {
		close(done)
		<-ended
		return all
	})
}

// worst is the most that the server did in a second, without what connections took.
func worst(all []second, connect time.Duration) (share float64) {
	for _, s := range all {
		share = max(share, s.without(connect))
	}
	return share
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// reserveFiles are left for all else.
const reserveFiles = 500

// openFiles is how many files this process, and a server that it starts, may open.
func openFiles() (int, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return int(min(limit.Cur, 1<<20)), err
}
