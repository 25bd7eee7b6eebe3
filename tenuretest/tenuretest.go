// Package tenuretest makes coordinators for tests that decide themselves when the process leads: no
// Redis, no waiting, and usable in a testing/synctest bubble.
package tenuretest

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/hook"
)

// patience is how long Lead and Depose wait for the coordinator. It is only reached if Run was
// not called.
const patience = time.Minute

// Control decides whether a coordinator leads. Its methods are for the goroutine of the test, as
// those of testing.TB are.
type Control struct {
	t           testing.TB
	coordinator *tenure.Coordinator
	control     hook.Control
}

// New returns a coordinator that follows until Lead is called. The test starts its Run, as the
// program would, and ends it by its context. All roles of the coordinator lead and follow together.
//
// The options are checked as those of tenure.New are; wrong ones fail the test. Namespace may be
// left empty. Leases do not expire.
func New(t testing.TB, opts tenure.Options) (*tenure.Coordinator, *Control) {
	t.Helper()
	made, control, err := hook.NewControlled(opts)
	if err != nil {
		t.Fatalf("tenuretest.New: %v", err)
	}
	coordinator := made.(*tenure.Coordinator)
	return coordinator, &Control{t: t, coordinator: coordinator, control: control}
}

// Lead makes the process the leader of every role and returns when it is. A role that stands back
// after its work failed is waited for. Lead fails the test if Run does not go on, or if a
// role does not lead within a minute.
func (c *Control) Lead() {
	c.t.Helper()
	c.control.Grant(true)
	c.await(func() bool { _, all := c.control.Leading(); return all }, "lead every role")
}

// Depose takes every leadership away, as if another instance had it now, and returns when IsLeader
// is false for each role. The contexts of the terms are cancelled with cause tenure.ErrLost; their
// work may still be draining.
func (c *Control) Depose() {
	c.t.Helper()
	c.control.Grant(false)
	c.await(func() bool { some, _ := c.control.Leading(); return !some }, "follow")
}

func (c *Control) await(reached func() bool, what string) {
	c.t.Helper()
	changed := make(chan struct{}, 1)
	stop := c.coordinator.Observe(func(tenure.Event) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	bound := time.NewTimer(patience)
	defer bound.Stop()
	for !reached() {
		select {
		case <-changed:
		case <-bound.C:
			c.t.Fatalf("tenuretest: the coordinator does not %s: is its Run going on?", what)
		}
	}
}

// Context returns a context as leader work and tasks get it, of a term with the given fencing
// token, for a test that calls them itself: tenure.TermFrom finds the term, which is valid until
// the test ends. It needs no coordinator. The token must be positive.
func Context(t testing.TB, token int64) context.Context {
	t.Helper()
	if token <= 0 {
		t.Fatalf("tenuretest.Context: token %d: must be positive", token)
	}
	ctx, end := hook.NewTerm(t.Context(), token)
	t.Cleanup(func() { end(tenure.ErrStopped) })
	return ctx
}
