package tenure

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// crew is a Redis in virtual time and the coordinators on it, each on a host of its own. It keeps
// what happens in order.
type crew struct {
	*testing.T
	net     *simnet.Network
	redis   *simnet.Server
	began   time.Time
	members []*crewMember

	mu     sync.Mutex
	trace  []string
	tokens []int64 // in the order in which they were told of
}

// crewMember is one process.
type crewMember struct {
	*Coordinator
	client *redis.Client // nil without Redis
	crew   *crew
	name   string
	halt   context.CancelCauseFunc
	ended  chan error // what Run returned; nil: it was not called
	when   time.Duration

	mu     sync.Mutex
	events []Event
}

// spare opens connections.
func (m *crewMember) spare() {
	var pings sync.WaitGroup
	for range 10 {
		pings.Go(func() { _ = m.client.Ping(m.crew.Context()).Err() })
	}
	pings.Wait()
}

// inCrew runs act in a bubble. Whatever still runs when it returns is stopped; a goroutine that
// does not end fails the test.
func inCrew(t *testing.T, act func(*crew)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crew{T: t, net: simnet.New(simnet.Options{}), began: time.Now()}
		defer c.net.Close()
		c.redis = c.net.NewServer(simnet.Addr, simnet.ServerOptions{})
		defer func() {
			c.net.Heal("")
			for _, m := range c.members {
				if m.ended != nil {
					_, _ = m.stop()
				}
			}
		}()
		act(c)
	})
}

// member is a coordinator that does not run yet. Its lease lasts 10 s.
func (c *crew) member(name string, change ...func(*Options)) *crewMember {
	c.Helper()
	return c.on(name, nil, change...)
}

// on is a member with another client.
func (c *crew) on(name string, client func(*redis.Options), change ...func(*Options)) *crewMember {
	c.Helper()
	opts := Options{Namespace: "tenure", InstanceID: name, Election: ElectionOptions{LeaseTTL: 10 * time.Second}}
	for _, change := range change {
		change(&opts)
	}
	rdb := c.net.Client(name, client)
	coordinator, err := New(rdb, opts)
	require.NoError(c, err)
	m := c.join(name, coordinator)
	m.client = rdb
	return m
}

// alone is a coordinator without Redis.
func (c *crew) alone(opts Options) *crewMember {
	c.Helper()
	coordinator, err := NewStandalone(opts)
	require.NoError(c, err)
	return c.join("alone", coordinator)
}

func (c *crew) join(name string, coordinator *Coordinator) *crewMember {
	m := &crewMember{Coordinator: coordinator, crew: c, name: name}
	m.Observe(func(e Event) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, e)
	})
	c.members = append(c.members, m)
	return m
}

// start begins Run.
func (m *crewMember) start(lead ...LeadFunc) *crewMember {
	ctx, halt := context.WithCancelCause(context.Background())
	m.halt, m.ended = halt, make(chan error, 1)
	go func() { // ends with halt
		err := m.Run(ctx, lead...)
		m.when = m.crew.now()
		m.ended <- err
		close(m.ended)
	}()
	synctest.Wait()
	return m
}

// stop asks Run to stop and waits for its answer.
func (m *crewMember) stop() (took time.Duration, err error) {
	began := m.crew.now()
	m.halt(nil)
	err = <-m.ended
	return m.when - began, err
}

// crash is the death of the process: Redis hears nothing of it any more.
func (m *crewMember) crash() {
	m.crew.net.Crash(m.name)
	_, _ = m.stop()
}

// now is the time since the beginning.
func (c *crew) now() time.Duration { return time.Since(c.began) }

// pass lets time pass.
func (c *crew) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until lets time pass until done.
func (c *crew) until(bound time.Duration, done func() bool) (took time.Duration) {
	c.Helper()
	began := c.now()
	for !done() {
		require.Less(c, c.now()-began, bound, "it takes too long")
		c.pass(time.Millisecond)
	}
	return c.now() - began
}

// note keeps a line of what happens.
func (c *crew) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

// noted takes the trace.
func (c *crew) noted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.trace
	c.trace = nil
	return taken
}

// holder is who holds a lease, by Redis.
func (c *crew) holder(key string) (id string) {
	c.redis.Do(func(m *miniredis.Miniredis) { id, _ = m.Get(key) })
	return id
}

// del removes a key behind everybody's back.
func (c *crew) del(key string) { c.redis.Do(func(m *miniredis.Miniredis) { m.Del(key) }) }

// refuse makes Redis answer with an error whatever begins with that key.
func (c *crew) refuse(key, refusal string) {
	c.redis.Intercept(func(_, _ string, args []string) string {
		if len(args) > 0 && args[0] == key {
			return refusal
		}
		return ""
	})
}

// forbid takes the rights to a key away.
func (c *crew) forbid(key string) {
	c.refuse(key, "NOPERM this user has no permissions to access one of the keys used as arguments")
}

// record is the status in the record of a member, by Redis; "" where there is no record.
func (m *crewMember) record() (status string) {
	m.crew.redis.Do(func(r *miniredis.Miniredis) {
		var record struct {
			Status string `json:"status"`
		}
		_ = json.Unmarshal([]byte(r.HGet("tenure:instances", m.name)), &record)
		status = record.Status
	})
	return status
}

// works is leader work that takes drain to return when its context is done. It notes what it sees.
func (m *crewMember) works(what string, drain time.Duration) LeadFunc {
	return func(ctx context.Context, term Term) error {
		m.crew.note("%s %s leads %s", m.name, what, m.crew.token(term.Token))
		<-ctx.Done()
		time.Sleep(drain)
		m.crew.note("%s %s drained", m.name, what)
		return ctx.Err()
	}
}

// counts is a task that notes its runs.
func (m *crewMember) counts(name string, schedule Schedule) Task {
	return Task{Name: name, Schedule: schedule, Run: func(_ context.Context, run TaskRun) error {
		m.crew.note("%s %s %v", m.name, run.Task, run.Slot.Sub(m.crew.began))
		return nil
	}}
}

// token is a short name for a token: #1 is the first that was told of.
func (c *crew) token(token int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.tokens, token) {
		c.tokens = append(c.tokens, token)
	}
	return fmt.Sprint("#", slices.Index(c.tokens, token)+1)
}

// told are the events so far, one a line: of the given types, or all but EventWaiting.
func (m *crewMember) told(types ...EventType) []string {
	synctest.Wait()
	m.mu.Lock()
	events := slices.Clone(m.events)
	m.mu.Unlock()
	told := []string{}
	for _, e := range events {
		if len(types) > 0 && !slices.Contains(types, e.Type) || len(types) == 0 && e.Type == EventWaiting {
			continue
		}
		line := []string{string(e.Type)}
		if e.Role != "" {
			line = append(line, "role="+e.Role)
		}
		if e.Token != 0 {
			line = append(line, m.crew.token(e.Token))
		}
		line = append(line, e.Subject, e.Task)
		told = append(told, strings.Join(slices.DeleteFunc(line, func(s string) bool { return s == "" }), " "))
	}
	return told
}

// list is the registry as a member sees it.
func (m *crewMember) list() (listed []string) {
	m.crew.Helper()
	instances, err := m.Registry().Instances(context.Background(), InstanceQuery{})
	require.NoError(m.crew, err)
	for _, i := range instances {
		listed = append(listed, i.ID+" "+string(i.State))
	}
	return listed
}
