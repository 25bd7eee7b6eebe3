package tenure

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/store"
)

// NewStandalone returns a coordinator without Redis, for a service that runs as one instance: while
// Run goes on it leads every role, but for the stand-back after a resignation or failed work. The
// registry lists this process only, tasks keep their records in memory. Tokens start from the wall
// clock, so that they go on increasing through restarts. Options.Namespace may be left empty: there
// is nobody to share one with. Bad options are refused as New refuses them.
func NewStandalone(opts Options) (*Coordinator, error) {
	coordinator, _, err := newLocal(opts, true, neverExpires, nil, nil)
	return coordinator, err
}

// neverExpires makes a lease one that is believed in for ever.
func neverExpires(t *lease.Timing) { t.Drift = -forever }

// forTests is neverExpires, and quick to lead again after it was deposed.
func forTests(t *lease.Timing) {
	neverExpires(t)
	t.TTL, t.Retry, t.Penalty = minLeaseTTL, time.Second, time.Second
}

// localNamespace is that of a coordinator without Redis.
const localNamespace = "local"

// newLocal makes a coordinator on a memory, which others may share; nil: on one of its own. All its
// calls pass the link; nil: there is none.
func newLocal(opts Options, granting bool, timing func(*lease.Timing), memory *memstore.Memory, link *memstore.Link) (*Coordinator, *memstore.Leases, error) {
	var c checker
	opts.Namespace = cmp.Or(opts.Namespace, localNamespace)
	opts = opts.complete(&c)
	if err := c.err(); err != nil {
		return nil, nil, err
	}
	if memory == nil {
		memory = memstore.NewMemory(readClock)
	}
	control := memstore.NewLeases(granting, memory, link)
	commands, registry := memstore.NewCommands(), memstore.NewRegistry()
	control.Note = registry.Note
	reached := backend{
		commands: commands,
		leases:   func(r store.Role) store.Lease { return control.Lease(r) },
		foreign:  func(r store.Role) store.Lease { return control.Foreign(r) },
		check:    func(*checker, string, ElectionOptions) {},
		timing:   timing,
		registry: registry,
		tasks:    memory.Tasks,
		listen:   control.Listen,
	}
	if link != nil {
		reached.commands, reached.registry, reached.tasks = link.Commands(commands), link.Registry(registry), link.Tasks(memory.Tasks)
	}
	coordinator := newCoordinator(opts, reached)
	commands.Wake, registry.Wake = coordinator.commands.wake.nudge, coordinator.registry.changed
	return coordinator, control, nil
}

func init() { //nolint:gochecknoinits // the only way in for tenuretest and the proof without a public name; it does nothing else
	hook.NewControlled = func(opts any, beside hook.Control) (any, hook.Control, error) {
		memory := memstore.NewSharedMemory(readClock)
		if other, ok := beside.(controlled); ok {
			memory = other.memory
		}
		link := new(memstore.Link)
		coordinator, control, err := newLocal(opts.(Options), false, forTests, memory, link)
		return coordinator, controlled{control, coordinator, memory, link}, err
	}
	hook.NewTerm = func(parent context.Context, token int64) (context.Context, func(error)) {
		term := Term{InstanceID: "test", Token: token, Since: time.Now().UTC().Truncate(time.Second)}
		live := begin(parent, term, lease.Lease{Sent: readClock(), Life: forever}, func() {})
		return live.ctx, live.end
	}
	hook.Repeatable = func(opts any, random func() float64, secret func() string) any {
		switch o := opts.(type) {
		case ElectorOptions:
			o.random, o.secret = random, secret
			return o
		case Options:
			o.random, o.secret = random, secret
			return o
		}
		return opts
	}
	hook.Scripts = &contract
	hook.ElectionEnded = func(elector any) (at time.Time, ended bool) {
		if at := elector.(*Elector).endedAt.Load(); at != nil {
			return *at, true
		}
		return at, elector.(*Elector).phase.Load() == phaseStopped // it never ran
	}
	hook.ElectionDown = func(elector any) bool { return elector.(*Elector).loop.status.Load().down }
	hook.Beside = func(elector any, fill func() any) any {
		beside := &elector.(*Elector).beside
		if beside.Load() == nil {
			filled := fill()
			beside.CompareAndSwap(nil, &filled)
		}
		return *beside.Load()
	}
	hook.TaskNames = func(coordinator any) (names []string) {
		for _, role := range coordinator.(*Coordinator).tasks.all() {
			for _, r := range role.known() {
				names = append(names, r.Name)
			}
		}
		return names
	}
}

// controlled is what tenuretest holds of a coordinator.
type controlled struct {
	*memstore.Leases
	coordinator *Coordinator
	memory      *memstore.Memory
	link        *memstore.Link
}

// Leading is that of hook.Control.
func (c controlled) Leading(roles ...string) (so, known bool) {
	for _, role := range roles {
		if _, there := c.coordinator.Role(role); !there {
			return false, false
		}
	}
	for _, e := range c.coordinator.all() {
		if e.IsLeader() != (len(roles) == 0 || slices.Contains(roles, e.Role())) {
			return false, true
		}
	}
	return true, true
}

// Following is that of hook.Control.
func (c controlled) Following(leader string) bool {
	for _, e := range c.coordinator.all() {
		if e.IsLeader() || e.Status().Leader != leader {
			return false
		}
	}
	return true
}

// Settled is that of hook.Control.
func (c controlled) Settled() bool {
	for _, e := range c.coordinator.all() {
		leader, token := c.Elsewhere(e.Role())
		if s := e.Status(); e.IsLeader() || s.Leader != leader || token != 0 && s.LeaderToken != token {
			return false
		}
	}
	return true
}

// RetryAt is that of hook.Control.
func (c controlled) RetryAt(task string) time.Time {
	reply, err := c.memory.Tasks.Record(context.Background(), task)
	if err != nil { // never: it is in memory
		return time.Time{}
	}
	return store.Time(reply.Record.RetryAt)
}

// RunsOnElection is that of hook.Control.
func (c controlled) RunsOnElection(task string) bool {
	home, _ := c.coordinator.tasks.home(task)
	registered := home.find(task)
	return registered != nil && registered.RunOnElection
}

// Disconnect is that of hook.Control. The leases of terms that are on last as if each had been
// renewed right now; that of a term which has ended, in an earlier cut, ends when it would have.
func (c controlled) Disconnect() {
	if !c.link.Cut() {
		return
	}
	for _, e := range c.coordinator.all() {
		timing := e.loop.opts.timing()
		held := c.Held(e.Role(), e.IsLeader())
		c.link.After(timing.Life()-timing.Guard(), func(over bool) {
			if !over {
				lapse(&e.loop)
			}
		})
		c.link.After(timing.TTL, func(bool) { c.Lapse(e.Role(), held) }) // no matter that it is back, if it was not renewed
	}
	c.Changed()
}

// Reconnect is that of hook.Control.
func (c controlled) Reconnect() {
	c.link.Fix()
	c.Changed()
}

// Connected is that of hook.Control.
func (c controlled) Connected() bool { return c.link.Up() }

// Ending is that of hook.Control.
func (c controlled) Ending() <-chan struct{} {
	if run := c.coordinator.running.Load(); run != nil && run.stopped() != nil {
		return run.ended
	}
	return nil
}

// lapse ends the term that is on as if its lease had not been renewed in time.
func lapse(l *electionLoop) {
	if t := l.current.Load(); t != nil {
		t.lease.Store(nil)
		t.expire()
	}
}
