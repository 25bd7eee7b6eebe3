package redisstore

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
)

// scriptsLua is the file beside the package that embeds it.
var scriptsLua, contract = func() (string, *Scripts) {
	source, err := os.ReadFile("../../scripts.lua")
	if err != nil {
		panic(err)
	}
	return string(source), MustLoad(string(source))
}()

// TestMain takes the scripts of TENURE_SCRIPTS in place of the product's, if it is set: that is how
// `make bugs` breaks them.
func TestMain(m *testing.M) {
	if path := os.Getenv("TENURE_SCRIPTS"); path != "" {
		source, err := os.ReadFile(path)
		if err == nil {
			contract, err = Load(string(source))
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
