package redisstore

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// scriptsLua is the file beside the package that embeds it. What the tests run is contract, which
// contractSource is the text of.
var scriptsLua, contract = func() (string, *Scripts) {
	source, err := os.ReadFile("../../scripts.lua")
	if err != nil {
		panic(err)
	}
	return string(source), MustLoad(string(source))
}()

var contractSource = scriptsLua

// TestMain takes the scripts of TENURE_SCRIPTS in place of the product's, if it is set: that is how
// `make bugs` breaks them.
func TestMain(m *testing.M) {
	if path := os.Getenv("TENURE_SCRIPTS"); path != "" {
		source, err := os.ReadFile(path)
		if err == nil {
			contractSource = string(source)
			contract, err = Load(contractSource)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	// miniredis builds a Lua state for each script, and all of it is garbage at once.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	m.Run()
}

// together lets the parts of a test run beside each other. The test itself runs alone.
func together(t *testing.T) {
	t.Helper()
	t.Parallel()
}

var errBroken = errors.New("the disk is full")

// cluster is a Redis with a store on it: a miniredis, or a redis-server of the test's own.
type cluster struct {
	mini  *miniredis.Miniredis // nil: a redis-server
	rdb   *redis.Client
	store *Store
}

// clusterOf is what a client talks to. The client is closed when the test is over.
func clusterOf(t testing.TB, opts *redis.Options, namespace string) *cluster {
	t.Helper()
	opts.MaxRetries = -1
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	return &cluster{rdb: rdb, store: openStore(rdb, namespace)}
}

// miniCluster is a miniredis that counts TTLs by the clock that the test may set.
func miniCluster(t testing.TB, namespace string) *cluster {
	t.Helper()
	mini := miniredis.RunT(t)
	mini.ClockTTL(true)
	c := clusterOf(t, &redis.Options{Addr: mini.Addr(), Protocol: 2, DisableIdentity: true}, namespace)
	c.mini = mini
	return c
}

// onClusters runs act on a miniredis and on a redis-server.
func onClusters(t *testing.T, namespace string, act func(*testing.T, *cluster)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) { act(t, miniCluster(t, namespace)) })
	t.Run("redis", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a redis-server")
		}
		act(t, clusterOf(t, redistest.Start(t).Options(), namespace))
	})
}

// openStore returns a store of a namespace that runs the contract.
func openStore(rdb redis.UniversalClient, namespace string) *Store {
	return New(rdb, contract, namespace, "a", func() string { return "a secret" })
}

var began = time.Now()

// clock reads both clocks of this machine.
func clock() lease.Reading {
	now := time.Now()
	return lease.Reading{Mono: now.Sub(began), Wall: time.Duration(now.UnixNano())}
}

// quietStore is a store whose client talks to nobody.
func quietStore(t *testing.T) *Store {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	return openStore(client, "ns")
}
