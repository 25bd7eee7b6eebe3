package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// InstanceState is the state of an instance.
type InstanceState string

// The states of an instance. The first three are its own word, which counts while it beats.
const (
	InstanceJoining  InstanceState = "joining"  // it has registered and does not take part yet
	InstanceActive   InstanceState = "active"   // it beats
	InstanceDraining InstanceState = "draining" // it is on its way out
	InstanceDrifted  InstanceState = "drifted"  // it has been silent for DriftedAfter
	InstanceDown     InstanceState = "down"     // it has been silent for DownAfter and is about to be removed

	// InstanceUnknown: the instance belongs to another program, beats, and has a status that is not
	// a word. If its status is a word that is none of these constants, such as "dead", then State
	// is that word. Counts counts both as unknown.
	InstanceUnknown InstanceState = "unknown"
)

// Instance is the record of one process. If another program wrote it, its metadata are untrusted.
// They are left out if they are not texts, or if there are more of them than RegistryOptions allow.
type Instance struct {
	ID string `json:"instance_id"`
	// Incarnation tells one start of the process from the next. "" if another program wrote the
	// record.
	Incarnation string `json:"incarnation"`
	// State is one of the constants, or the word of another program: see InstanceUnknown.
	State InstanceState `json:"state"`
	// StartedAt and LastHeartbeat come from the record, in whole seconds of Redis's clock, or of
	// the clock of the other program that wrote it. Zero if the record has none.
	StartedAt     time.Time `json:"started_at,omitzero"`
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
	// Age is the time since the last beat, by Redis's clock. An instance of another program counts
	// as beaten each time a leader sees its heartbeat key. Until a leader has seen that key, its
	// own last_heartbeat counts.
	Age         time.Duration     `json:"-"`
	WorkerCount int               `json:"worker_count"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// InstanceQuery narrows a listing. The zero value asks for all.
type InstanceQuery struct {
	// States are the states to list. Empty: every state. InstanceUnknown lists every instance whose
	// state is none of the other constants. Anything else is refused with an *OptionError.
	States []InstanceState
	// Limit is the largest number of instances to list. Default, and at most, 100,000.
	Limit int
}

// Counts says how many instances there are, by state.
type Counts struct {
	Joining   int `json:"joining"`
	Active    int `json:"active"`
	Draining  int `json:"draining"`
	Drifted   int `json:"drifted"`
	Down      int `json:"down"`
	Unknown   int `json:"unknown"`   // instances of other programs with another status
	Total     int `json:"total"`     // the sum of the six above
	Malformed int `json:"malformed"` // entries that are no record of an instance: they are skipped
}

const (
	maxInstances     = 100_000 // entries that a listing looks at
	maxInstanceBytes = 64 << 20
	registryBound    = membership.MaxBound
)

// Registry is the registry of instances. This process sends its heartbeats to it, the leader sweeps
// it, anybody reads it. Its methods are safe for concurrent use and work without Run. They return
// as soon as their context is done, with its cause (context.Cause), though the client may go on
// with a call.
type Registry struct {
	store       store.Registry
	bus         *eventBus
	id          string
	incarnation string
	opts        RegistryOptions
	random      func() float64

	wake                       wakeup // the beat loop beats at once
	beating, leaving, sweeping callGate
	asked                      callGate

	entered atomic.Bool // a beat may have reached Redis
	left    atomic.Bool // deregister was called: no beat is sent any more

	heldSince atomic.Int64 // begin of the hold that was reported last, by Redis's clock in ms

	mu            sync.Mutex
	status        InstanceState     // what the next beat says
	workers       int               // likewise
	metadata      map[string]string // likewise; replaced, never written to
	edition       int               // counts what Update has changed
	updated       time.Time         // when Update last had it beat at once
	duplicateID   string            // the other incarnation of our ID that was reported last
	duplicateSeen time.Time         // when it was last heard of; zero: it is gone
}

// newRegistry wants completed options.
func newRegistry(store store.Registry, bus *eventBus, opts Options) *Registry {
	return &Registry{
		store:       store,
		bus:         bus,
		id:          opts.InstanceID,
		incarnation: opts.secret(),
		opts:        opts.Registry,
		random:      opts.random,
		status:      InstanceJoining,
		workers:     opts.Registry.WorkerCount,
		metadata:    opts.Registry.Metadata,
		wake:        newWakeup(),
		beating:     callGate{most: maxRegistryCalls},
		leaving:     callGate{most: maxRegistryCalls},
		sweeping:    callGate{most: maxRegistryCalls},
		asked:       callGate{most: maxQuestions},
	}
}

// InstanceUpdate is a change of the record of this instance, for Registry.Update. The zero value
// changes nothing.
type InstanceUpdate struct {
	// WorkerCount is the new number, between 0 and 1,048,576. Nil: as it was.
	WorkerCount *int
	// Metadata replaces all that there is: at most 32 pairs, 4 KiB in all. Nil: as it was; empty:
	// none.
	Metadata map[string]string
}

// updateSpacing is how soon after one another two calls of Update have this instance beat at once:
// a flood of them costs no flood of heartbeats.
const updateSpacing = time.Second

// Update changes the record of this instance. Before Run it sets the values with which the record
// begins. During Run they are sent at once if the last Update is at least a second ago, and with
// the next heartbeat otherwise. Update does not talk to Redis and does not wait.
//
// Update returns an *OptionError, which matches ErrMisconfigured, if a value is out of its limits;
// nothing is changed then. It returns ErrStopped once this instance has left the registry. The
// number and the map are copied.
func (r *Registry) Update(u InstanceUpdate) error {
	var c checker
	workers := 0
	if u.WorkerCount != nil {
		workers = *u.WorkerCount
	}
	c.said("InstanceUpdate.", workers, u.Metadata)
	if err := c.err(); err != nil {
		return err
	}
	if r.left.Load() {
		return ErrStopped
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.WorkerCount != nil {
		r.workers = workers
	}
	if u.Metadata != nil {
		r.metadata = maps.Clone(u.Metadata)
	}
	r.edition++
	if now := time.Now(); now.Sub(r.updated) >= updateSpacing {
		r.updated = now
		r.wake.nudge()
	}
	return nil
}

// said returns the values for the next heartbeat.
func (r *Registry) said() (workers int, metadata map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers, r.metadata
}

// Instances lists the instances, in the order of their IDs. Entries that are no record of an
// instance are skipped; Counts counts them. If there are more than the query, or a listing, may
// have, it returns some of them and ErrTruncated. Other errors are ErrUnreachable and
// ErrMisconfigured.
func (r *Registry) Instances(ctx context.Context, q InstanceQuery) ([]Instance, error) {
	for i, state := range q.States {
		if state.known() != state {
			return nil, &OptionError{
				Field: fmt.Sprintf("InstanceQuery.States[%d]", i), Value: fmt.Sprintf("%.200q", state), Reason: "is no InstanceState: use a constant, such as InstanceActive",
			}
		}
	}
	limit := maxInstances
	if q.Limit > 0 {
		limit = min(q.Limit, limit)
	}
	var all []Instance
	size, full := 0, false
	_, err := r.each(ctx, func(i Instance) bool {
		if len(q.States) > 0 && !slices.Contains(q.States, i.State.known()) {
			return true
		}
		size += i.size()
		if full = len(all) == limit || size > maxInstanceBytes; full {
			return false
		}
		all = append(all, i)
		return true
	})
	if err == nil && full {
		err = ErrTruncated
	}
	if err != nil && !errors.Is(err, ErrTruncated) {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	return all, err
}

// Instance returns one instance, or ErrNotFound.
func (r *Registry) Instance(ctx context.Context, id string) (Instance, error) {
	if !store.IDPattern.MatchString(id) {
		return Instance{}, fmt.Errorf("%w: %.100q is no instance ID", ErrNotFound, id)
	}
	var now int64
	entry, err := ask(ctx, &r.asked, func(ctx context.Context) (entry store.Entry, err error) {
		entry, now, err = r.store.Instance(ctx, id)
		return entry, err
	})
	if errors.Is(err, ErrNotFound) {
		return Instance{}, fmt.Errorf("%w: instance %s", ErrNotFound, id)
	}
	if err != nil {
		return Instance{}, err
	}
	instance, ok := r.instance(entry, now)
	if !ok {
		return Instance{}, fmt.Errorf("%w: the record of instance %s is malformed", ErrNotFound, id)
	}
	return instance, nil
}

// Counts counts the instances. If there are more entries than a listing looks at, it returns
// what it has counted and ErrTruncated. Other errors are ErrUnreachable and ErrMisconfigured.
func (r *Registry) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	malformed, err := r.each(ctx, func(i Instance) bool {
		c.Total++
		switch i.State {
		case InstanceJoining:
			c.Joining++
		case InstanceActive:
			c.Active++
		case InstanceDraining:
			c.Draining++
		case InstanceDrifted:
			c.Drifted++
		case InstanceDown:
			c.Down++
		default:
			c.Unknown++
		}
		return true
	})
	if err != nil && !errors.Is(err, ErrTruncated) {
		return Counts{}, err
	}
	c.Malformed = malformed
	return c, err
}

// each reads every instance once, as long as take wants more.
func (r *Registry) each(ctx context.Context, take func(Instance) bool) (malformed int, err error) {
	seen := make(map[string]struct{}) // a scan may repeat itself
	looked := 0
	const mostPages = 10 * maxInstances / store.ScanCount // small pages are Redis's right, a scan without an end is not
	cursor := "0"
	for range mostPages {
		page, err := ask(ctx, &r.asked, func(ctx context.Context) (store.ScanReply, error) { return r.store.Scan(ctx, cursor, false) })
		if err != nil {
			return malformed, err
		}
		malformed += page.Malformed
		looked += page.Malformed
		for _, entry := range page.Entries {
			if _, again := seen[entry.ID]; again {
				continue
			}
			if looked++; looked > maxInstances {
				return malformed, ErrTruncated
			}
			seen[entry.ID] = struct{}{}
			instance, ok := r.instance(entry, page.Now)
			if !ok {
				malformed++
				continue
			}
			if !take(instance) {
				return malformed, nil
			}
		}
		if cursor = page.Next; cursor == "0" {
			return malformed, nil
		}
		if looked >= maxInstances {
			return malformed, ErrTruncated
		}
		if ctx.Err() != nil {
			return malformed, context.Cause(ctx)
		}
	}
	return malformed, ErrTruncated
}

// known is the state, or InstanceUnknown for a word that tenure does not know.
func (s InstanceState) known() InstanceState {
	switch s {
	case InstanceJoining, InstanceActive, InstanceDraining, InstanceDrifted, InstanceDown:
		return s
	}
	return InstanceUnknown
}

// instance makes sense of an entry, as far as there is any.
func (r *Registry) instance(e store.Entry, now int64) (Instance, bool) {
	record, ok := store.ParseInstance(e.Record)
	if !ok || !store.IDPattern.MatchString(e.ID) {
		return Instance{}, false
	}
	i := Instance{
		ID: e.ID, Incarnation: record.Incarnation, StartedAt: record.StartedAt, LastHeartbeat: record.LastHeartbeat,
		WorkerCount: record.WorkerCount, Metadata: record.Metadata,
	}
	switch {
	case e.Beaten:
		i.Age = max(store.Milliseconds(now-e.Last), 0)
	case !i.LastHeartbeat.IsZero():
		i.Age = max(store.Milliseconds(now-i.LastHeartbeat.UnixMilli()), 0)
	}
	i.State = r.stateOf(InstanceState(record.Status), i.Age)
	return i, true
}

// stateOf is the state of an instance: by its age, and by its own status while it beats. No
// instance calls itself drifted: a sweep wrote that before the instance beat again.
func (r *Registry) stateOf(says InstanceState, age time.Duration) InstanceState {
	switch {
	case age >= r.opts.DownAfter:
		return InstanceDown
	case age >= r.opts.DriftedAfter:
		return InstanceDrifted
	case says == InstanceDrifted:
		return InstanceActive
	}
	return says
}

func (i Instance) size() int {
	size := 200 + len(i.ID) + len(i.Incarnation)
	for name, value := range i.Metadata {
		size += 32 + len(name) + len(value)
	}
	return size
}

// memberEvents are the events that a hint, or a verdict of a sweep, leads to.
var memberEvents = map[string]EventType{
	"joined": EventInstanceJoined, store.SweepDrifted: EventInstanceDrifted, store.SweepRecovered: EventInstanceRecovered, store.SweepDown: EventInstanceDown, store.SweepLeft: EventInstanceLeft,
}

// hint takes a hint from the subscription. What this process did itself is reported already.
func (r *Registry) hint(h store.Hint) {
	if h.Source == r.incarnation {
		return
	}
	if kind, known := memberEvents[h.Type]; known {
		for _, subject := range append(h.Subjects, h.Subject) {
			if store.IDPattern.MatchString(subject) {
				r.bus.publish(Event{Type: kind, Subject: subject, Remote: true})
			}
		}
	}
	if h.Type == store.HintDuplicate && h.Subject == r.id && r.opts.HeartbeatInterval > 0 && store.IncarnationPattern.MatchString(h.Source) {
		r.duplicate(h.Source, false)
	}
}

// duplicate reports another living process with our ID, once until it was not heard of for
// DownAfter. Only what we saw ourselves is reported again if it is yet another one: hints may be
// forged.
func (r *Registry) duplicate(other string, seen bool) {
	r.mu.Lock()
	known := !r.duplicateSeen.IsZero() && time.Since(r.duplicateSeen) < r.opts.DownAfter && (!seen || r.duplicateID == other)
	r.duplicateID, r.duplicateSeen = other, time.Now()
	r.mu.Unlock()
	if !known {
		r.bus.publish(Event{Type: EventInstanceDuplicated, Subject: other})
	}
}

// flush waits for the calls that were left, at the latest until the deadline.
func (r *Registry) flush(deadline time.Time) error {
	var left error
	for _, gate := range []*callGate{&r.beating, &r.leaving, &r.sweeping} {
		left = cmp.Or(left, gate.flush(deadline, "a call of the registry to Redis"))
	}
	return joined(left, r.asked.flush(deadline, questionsLeft))
}
