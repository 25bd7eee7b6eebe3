package tenure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Everything here sleeps in virtual time.

// canaryPassword is the password of Redis.
const canaryPassword = "canary-password-5f0c"

// canaries gathers the nonces that go to Redis, and every text that comes out of the process.
type canaries struct {
	mu     sync.Mutex
	nonces map[string]bool
	said   bytes.Buffer
}

// sent keeps the nonce of a lease script: ARGV 2 of acquire, renew and release, with an error that
// repeats as much of the command as Redis does where it does not know it.
func (c *canaries) sent(cmd string, args []string, unknown bool) string {
	if !strings.HasPrefix(cmd, "EVAL") || len(args) < 7 || args[1] != "3" || !strings.HasSuffix(args[4], ":term") {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nonces[args[6]] = true
	if !unknown {
		return ""
	}
	// Redis ends the list after 128 bytes: with short names the nonce is among them.
	return fmt.Sprintf("ERR unknown command '%s', with args beginning with: '%s'", strings.ToLower(cmd), strings.Join(args[len(args)-8:], "' '"))
}

// Write makes it the sink of a log.
func (c *canaries) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.Write(p)
}

// hears keeps what a value shows of itself, in every way that a program may print it.
func (c *canaries) hears(values ...any) {
	for _, value := range values {
		fmt.Fprintf(c, "%v\n%+v\n", value, value)
		if text, err := json.Marshal(value); err == nil {
			fmt.Fprintf(c, "%s\n", text)
		}
		slog.New(slog.NewJSONHandler(c, nil)).Info("value", "it", value)
	}
}

// TestNoSecretIsTold: nonces and the password of Redis are in no log, event, status, record, hint
// or error, whatever goes wrong, and a nonce lies nowhere in Redis but in the term hash.
func TestNoSecretIsTold(t *testing.T) {
	c := &canaries{nonces: map[string]bool{}}
	inCluster(t, func(w *cluster) {
		w.redis.Do(func(m *miniredis.Miniredis) { m.RequireAuth(canaryPassword) })
		var unknown atomic.Bool
		listen := func() {
			w.redis.Intercept(func(_, cmd string, args []string) string { return c.sent(cmd, args, unknown.Load()) })
		}
		listen()
		logger := slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelDebug}))
		password := func(o *redis.Options) { o.Password = canaryPassword }
		setup := func(o *Options) {
			o.Logger = logger
			o.ShutdownTimeout = 5 * time.Second
			o.Registry.Metadata = map[string]string{"zone": "a"}
		}
		panics := errors.New("a task that panics")
		join := func(name string) *instance {
			m := w.on(name, password, setup)
			m.Observe(func(e Event) { c.hears(e) })
			_, err := m.Role("cleanup", ElectionOptions{LeaseTTL: 10 * time.Second})
			require.NoError(t, err)
			require.NoError(t, m.Tasks().Register(Task{Name: "t", Schedule: Every(7 * time.Second), Run: func(_ context.Context, run TaskRun) error {
				c.hears(run)
				panic(panics)
			}}))
			return m.start(func(ctx context.Context, term Term) error {
				c.hears(term, ctx)
				<-ctx.Done()
				c.hears(context.Cause(ctx))
				return ctx.Err()
			})
		}
		look := func(m *instance) {
			ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
			defer cancel()
			term, _ := m.Elector().Term()
			leader, err := m.Elector().Leader(ctx)
			c.hears(m.Elector().Status(), term, leader, err)
			instances, err := m.Registry().Instances(ctx, InstanceQuery{})
			c.hears(instances, err)
			tasks, err := m.Tasks().Tasks(ctx)
			c.hears(tasks, err)
			runs, err := m.Tasks().Runs(ctx, "t", 10)
			c.hears(runs, err)
		}
		a, b := join("a"), join("b")
		stranger := w.net.Client("stranger", password)
		wire := stranger.Subscribe(w.Context(), "tenure:events", "tenure:leader:events")
		hints := wire.Channel(redis.WithChannelHealthCheckInterval(0))
		listened := make(chan struct{})
		go func() { // ends with the subscription
			defer close(listened)
			for message := range hints {
				c.hears(message.Payload)
			}
		}()
		calm := func() {
			w.pass(30 * time.Second)
			look(a)
			look(b)
		}
		calm()
		nothing := func() {}
		for _, trouble := range []struct {
			name       string
			begin, end func()
		}{
			{"unknown command", func() { unknown.Store(true) }, func() { unknown.Store(false) }},
			{"no rights", func() { w.forbid("tenure:leader:term") }, listen},
			{"refused", func() { w.refuse("tenure:leader:term", "ERR something quite else") }, listen},
			{
				"foreign key",
				func() {
					w.redis.Do(func(m *miniredis.Miniredis) { m.Del("tenure:leader"); m.HSet("tenure:leader", "a", "b") })
				},
				func() { w.redis.Del("tenure:leader") },
			},
			{
				"bad token",
				func() { w.redis.Do(func(m *miniredis.Miniredis) { m.HSet("tenure:leader:term", "token", "NaN") }) },
				func() { w.redis.Do(func(m *miniredis.Miniredis) { m.HDel("tenure:leader:term", "token") }) },
			},
			{
				"wrong password",
				func() {
					w.redis.Do(func(m *miniredis.Miniredis) { m.RequireAuth("another") })
					w.net.Cut("a")
					w.net.Cut("b")
				},
				func() { w.redis.Do(func(m *miniredis.Miniredis) { m.RequireAuth(canaryPassword) }) },
			},
			{"frozen", func() { w.redis.Pause(15 * time.Second) }, nothing},
			{"flush", w.redis.FlushAll, nothing},
			{"del", func() { w.redis.Del("tenure:leader") }, nothing},
			{"resign", func() { _, _ = a.Elector().Resign(w.Context()), b.Elector().Resign(w.Context()) }, nothing},
		} {
			fmt.Fprintf(c, "trouble: %s\n", trouble.name)
			trouble.begin()
			w.pass(12 * time.Second)
			look(a)
			look(b)
			trouble.end()
			calm()
		}

		w.redis.Do(func(m *miniredis.Miniredis) {
			for _, key := range m.Keys() {
				if strings.HasSuffix(key, ":term") {
					continue
				}
				switch m.Type(key) {
				case "string":
					text, _ := m.Get(key)
					c.hears(key, text)
				case "hash":
					fields, _ := m.HKeys(key)
					for _, field := range fields {
						c.hears(key, field, m.HGet(key, field))
					}
				case "stream":
					entries, _ := m.Stream(key)
					c.hears(key, entries)
				case "set":
					members, _ := m.Members(key)
					c.hears(key, members)
				}
			}
		})
		for _, m := range []*instance{a, b} {
			_, err := m.stop()
			c.hears(err)
		}
		_ = wire.Close()
		_ = stranger.Close()
		<-listened
		_, err := NewElector(w.net.Client("a", password), Options{Namespace: "{", Election: ElectionOptions{LeaseTTL: 1}})
		c.hears(err)
	})

	said := c.said.String()
	require.Greater(t, len(c.nonces), 10)
	require.Greater(t, len(said), 10_000)
	for _, sign := range []string{"misconfigured", "unknown command", "panics", "vacant", "leadership ended", "WRONGTYPE", "BADTERM"} {
		require.Contains(t, said, sign, "the test shows nothing unless it got that far")
	}
	for nonce := range c.nonces {
		require.Regexp(t, `^[0-9a-f]{32}$`, nonce)
		if at := strings.Index(said, nonce); at >= 0 {
			t.Fatalf("a nonce was told: …%s", said[max(0, at-300):at+40])
		}
	}
	if at := strings.Index(said, canaryPassword); at >= 0 {
		t.Fatalf("the password was told: …%s", said[max(0, at-300):at+40])
	}
}
