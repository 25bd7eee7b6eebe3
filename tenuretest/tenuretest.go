// Package tenuretest makes coordinators for tests that decide themselves when the process leads: no
// Redis, no waiting, and usable in a testing/synctest bubble.
package tenuretest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/hook"
)

// How long Lead and Depose wait.
const (
	patience = time.Minute           // for the coordinator
	toBegin  = 10 * time.Second      // for a Run that the test has just started in a goroutine
	glance   = 20 * time.Millisecond // between two looks at whether Run has ended, which is no event
)

// Control decides whether a coordinator leads. Its methods are for the goroutine of the test, as
// those of testing.TB are.
type Control struct {
	t           testing.TB
	coordinator *tenure.Coordinator
	control     hook.Control
	cluster     *Cluster // nil: the coordinator is alone

	mu     sync.Mutex
	failed map[string]error // the last error of the leader work, or health check, of a role
}

// New returns a coordinator that follows until Lead is called. The test starts its Run, as the
// program would, and ends it by its context. At the end of the test a Run whose context is done,
// such as t.Context, is waited for: its work may take as long as ShutdownTimeout allows, also in a
// bubble, and nothing of it outlives the test.
//
// The options are checked as those of tenure.New are; wrong ones fail the test. Namespace may be
// left empty. Leases do not expire.
func New(t testing.TB, opts tenure.Options) (*tenure.Coordinator, *Control) {
	t.Helper()
	return newControlled(t, opts, nil)
}

// newControlled makes a coordinator that shares its memory with those of a cluster; nil: with none.
func newControlled(t testing.TB, opts tenure.Options, cluster *Cluster) (*tenure.Coordinator, *Control) {
	t.Helper()
	var beside hook.Control
	if cluster != nil && len(cluster.members) > 0 {
		beside = cluster.members[0].control
	}
	made, control, err := hook.NewControlled(opts, beside)
	if err != nil {
		t.Fatalf("tenuretest.New: %v", err)
	}
	coordinator := made.(*tenure.Coordinator)
	c := &Control{t: t, coordinator: coordinator, control: control, cluster: cluster, failed: make(map[string]error)}
	coordinator.Observe(func(e tenure.Event) {
		if e.Type == tenure.EventWorkFailed {
			c.mu.Lock()
			c.failed[e.Role] = e.Err
			c.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if ended := control.Ending(); ended != nil {
			<-ended
		}
	})
	return coordinator, c
}

// Lead makes the process the leader of these roles and of no other, without any of every role, and
// returns when it is. "" is the default role. A role that is led already goes on with its term. One
// that stands back after its work failed is waited for. Lead fails the test if there is no such
// role, if one does not lead within a minute, at once if Run has ended, and after ten seconds if
// Run was not called. What it says then has the state of each role, why it waits and the last error
// of its work. In a Cluster every other instance that runs is deposed first, and knows the leader
// and its token when Lead returns; the leases of one that is disconnected are waited for. Lead does
// not wait for tasks: a leader opens their records a moment later, see RunDue.
func (c *Control) Lead(roles ...string) {
	c.t.Helper()
	c.mustBeConnected("Lead")
	if _, known := c.control.Leading(roles...); !known {
		c.t.Fatalf("tenuretest: the coordinator cannot lead %q: it does not have all of these roles\n%s", roles, c.roles())
	}
	if c.cluster != nil {
		c.cluster.yield(c)
	}
	c.control.Grant(roles...)
	what := "lead every role"
	if len(roles) > 0 {
		what = fmt.Sprintf("lead %q alone", roles)
	}
	c.await(func() bool { so, _ := c.control.Leading(roles...); return so }, what)
	if c.cluster != nil {
		c.cluster.follow(c)
	}
}

// Depose takes every leadership away and returns when IsLeader is false for each role, and nobody
// is known to lead. The contexts of the terms are cancelled with cause tenure.ErrLost; their work
// may still be draining.
func (c *Control) Depose() {
	c.t.Helper()
	c.mustBeConnected("Depose")
	c.control.Refuse("")
	c.await(func() bool { return c.control.Following("") }, "follow")
}

// Follow is Depose, but that another instance with this ID leads every role from then on: returns
// when each role knows, see tenure.ElectionStatus.Leader. Nothing needs to run under that ID.
func (c *Control) Follow(leaderID string) {
	c.t.Helper()
	c.mustBeConnected("Follow")
	if leaderID == "" || leaderID == c.coordinator.InstanceID() {
		c.t.Fatalf("tenuretest: Follow(%q): must be the ID of another instance", leaderID)
	}
	c.control.Refuse(leaderID)
	c.await(func() bool { return c.control.Following(leaderID) }, fmt.Sprintf("follow %q", leaderID))
}

func (c *Control) mustBeConnected(call string) {
	c.t.Helper()
	if !c.control.Connected() {
		c.t.Fatalf("tenuretest: %s: instance %q is disconnected: see Cluster.Reconnect", call, c.coordinator.InstanceID())
	}
}

// changes returns a channel that has something whenever there was an event, until stop is called.
func (c *Control) changes() (changed <-chan struct{}, stop func()) {
	news := make(chan struct{}, 1)
	return news, c.coordinator.Observe(func(tenure.Event) {
		select {
		case news <- struct{}{}:
		default:
		}
	})
}

func (c *Control) await(reached func() bool, what string) {
	c.t.Helper()
	changed, stop := c.changes()
	defer stop()
	bound := time.NewTimer(patience)
	defer bound.Stop()
	look := time.NewTicker(glance)
	defer look.Stop()
	for began := time.Now(); !reached(); {
		switch c.state() {
		case tenure.ElectionStopped:
			c.t.Fatalf("tenuretest: the coordinator cannot %s: its Run has ended\n%s", what, c.roles())
		case tenure.ElectionIdle:
			if time.Since(began) >= toBegin {
				c.t.Fatalf("tenuretest: the coordinator cannot %s: its Run was not called, or has refused what it got: see its error\n%s", what, c.roles())
			}
		}
		select {
		case <-changed:
		case <-look.C:
		case <-bound.C:
			c.t.Fatalf("tenuretest: the coordinator does not %s\n%s", what, c.roles())
		}
	}
}

// state is idle until Run was called, and stopped once it has ended: then every role is. The
// elector of a default role that there is not never runs.
func (c *Control) state() tenure.ElectionState {
	of := c.coordinator.Elector()
	if roles := c.coordinator.Roles(); len(roles) > 0 {
		of = roles[0]
	}
	return of.Status().State
}

// roles says of each role how it stands.
func (c *Control) roles() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for _, e := range c.coordinator.Roles() {
		s := e.Status()
		line := fmt.Sprintf("role %q: %s", s.Role, s.State)
		if s.Waiting != "" {
			line += fmt.Sprintf(", waiting: %s", s.Waiting)
		}
		if err := cmp.Or(c.failed[s.Role], s.Err); err != nil {
			line += fmt.Sprintf(", last error: %v", err)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Context returns a context as leader work and tasks get it, of a term with the given fencing
// token, for a test that calls them itself: tenure.TermFrom finds the term, which is valid until
// end is called or the test ends. It needs no coordinator. The token must be positive.
//
// end ends the term as a lost lease would: Term.Valid turns false, then the context is cancelled,
// with that cause, such as tenure.ErrLost. Nil is tenure.ErrStopped, which is also the cause at the
// end of the test. Any goroutine may call end; only the first call has an effect.
func Context(t testing.TB, token int64) (ctx context.Context, end func(cause error)) {
	t.Helper()
	if token <= 0 {
		t.Fatalf("tenuretest.Context: token %d: must be positive", token)
	}
	ctx, finish := hook.NewTerm(context.WithoutCancel(t.Context()), token)
	end = func(cause error) { finish(cmp.Or(cause, tenure.ErrStopped)) }
	context.AfterFunc(t.Context(), func() { end(nil) }) // before the cleanups, which may wait for who works in the term
	t.Cleanup(func() { end(nil) })
	return ctx, end
}
