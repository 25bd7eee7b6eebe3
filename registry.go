package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// InstanceQuery narrows a listing. The zero value asks for all.
type InstanceQuery struct {
	// States are the states to list. Empty: every state. InstanceUnknown lists every instance whose
	// state is none of the other constants. Anything else is refused with an *OptionError.
	States []InstanceState
	// Limit is the largest number of instances to list, at most 100,000. 0 or less: 100,000.
	Limit int
}

const (
	maxInstances     = store.MaxInstances
	maxInstanceBytes = 64 << 20
	registryBound    = membership.MaxBound
)

// metricsFunc is how errors name that function of the application.
const metricsFunc = "RegistryOptions.Metrics"

// Registry is the registry of instances. This process sends its heartbeats to it, the leader sweeps
// it, anybody reads it. Its methods are safe for concurrent use and work without Run. They return
// as soon as their context is done, with its cause (context.Cause), though the client may go on
// with a call.
type Registry struct {
	store       store.Registry
	bus         *eventBus
	namespace   string
	id          string
	incarnation string
	opts        RegistryOptions
	random      func() float64
	elections   elections
	places      places
	newLeader   wakeup // a term of another instance has begun
	readOnly    bool   // of a Control that takes no part: there is no record of its own

	wake                       wakeup     // the beat loop beats at once
	rides                      chan *ride // acquires that may travel with a heartbeat
	expected                   atomic.Pointer[lease.Beats]
	beating, leaving, sweeping callGate
	adding                     callGate
	aggregated                 atomic.Int64                   // entries of the history that this process has added, or tried to
	measuring                  inFlight                       // calls of RegistryOptions.Metrics
	measured                   atomic.Pointer[[]store.Metric] // what the next beat takes along; nil: nothing
	asked                      callGate

	entered atomic.Bool  // a beat may have reached Redis
	left    atomic.Bool  // deregister was called: no beat is sent any more
	started atomic.Int64 // when this process was first registered, by Redis's clock in Unix seconds; 0: not known

	heldSince atomic.Int64 // begin of the hold that was reported last, by Redis's clock in ms

	mu            sync.Mutex
	status        InstanceState // what the next beat says
	taken         bool          // the first good beat was: this instance takes part
	profile       store.Profile // likewise; maps and slices are replaced, never written to
	edition       int           // counts what Update has changed
	updated       time.Time     // when Update last had it beat at once
	duplicateID   string        // the other incarnation of our ID that was reported last
	duplicateSeen time.Time     // when it was last heard of; zero: it is gone

	watches map[wakeup]struct{} // the calls of Watch that go on

	overview atomic.Pointer[map[string]overviewEntry] // by ID: what the last Overview has read

	counted atomic.Bool              // nothing was heard of that changes the counts since they were last read
	passes  *mailbox[[]chan<- error] // calls of Sweep; nil: this process does not sweep
}

// elections is what the registry knows of the elections of its process.
type elections struct {
	leading func([]string) []string // appends the roles that this process leads now
	// compared has each election compare this process with its leader again. It does not block.
	compared func()
	commands func()                                    // some wait for this process. It does not block; nil: nobody takes any
	leader   func(context.Context) (LeaderInfo, error) // asks Redis for that of the default role; no Address. nil: there is none
	// unconnected is why the subscription of the process has no connection; "": it stands, or that
	// is not known. nil: there is none.
	unconnected func() string
}

// newRegistry wants completed options.
func newRegistry(store store.Registry, bus *eventBus, opts Options, elections elections) *Registry {
	return &Registry{
		elections:   elections,
		store:       store,
		bus:         bus,
		namespace:   opts.Namespace,
		id:          opts.InstanceID,
		incarnation: opts.secret(),
		opts:        opts.Registry,
		random:      opts.random,
		status:      InstanceJoining,
		profile:     opts.Registry.profile(),
		wake:        newWakeup(),
		rides:       make(chan *ride),
		newLeader:   newWakeup(),
		watches:     make(map[wakeup]struct{}),
		beating:     callGate{most: maxRegistryCalls},
		leaving:     callGate{most: maxRegistryCalls},
		sweeping:    callGate{most: maxRegistryCalls},
		adding:      callGate{most: maxRegistryCalls},
		asked:       callGate{most: maxQuestions},
	}
}

// InstanceUpdate is a change of what this instance says of itself, for Registry.Update. The zero
// value changes nothing. Each field has the limits of the RegistryOptions of its name.
type InstanceUpdate struct {
	WorkerCount  *int              // nil: as it was
	Address      *string           // nil: as it was; "": none
	Ports        map[string]int    // replaces all of them; nil: as they were; empty: none
	Roles        []string          // likewise
	Capabilities []string          // likewise
	Load         *Load             // nil: as it was
	LoadLimit    *Load             // nil: as it was; a field that is 0: no limit
	Metadata     map[string]string // replaces all of it; nil: as it was; empty: none
}

// changes reports whether the update changes more than the load, which waits for the next
// heartbeat.
func (u InstanceUpdate) changes() bool {
	return u.WorkerCount != nil || u.Address != nil || u.Ports != nil || u.Roles != nil || u.Capabilities != nil || u.LoadLimit != nil || u.Metadata != nil
}

// updateSpacing is how soon after one another two calls of Update have this instance beat at once:
// a flood of them costs no flood of heartbeats.
const updateSpacing = time.Second

// Update changes the record of this instance. Before Run it sets the values with which the record
// begins. During Run they are sent at once if the last Update is at least a second ago, and with
// the next heartbeat otherwise. An update of the Load alone always waits for the next heartbeat: it
// costs no round trip, however often it is made. Update does not talk to Redis and does not wait.
//
// Update returns an *OptionError, which matches ErrMisconfigured, if a value is out of its limits;
// nothing is changed then. It returns ErrMisconfigured in a Control that no coordinator has made,
// which has no record, and ErrStopped once this instance has left the registry. All values are
// copied.
func (r *Registry) Update(u InstanceUpdate) error {
	if r.readOnly {
		return fmt.Errorf("%w: a Control takes no part and has no record of its own, Update is for the registry of a Coordinator", ErrMisconfigured)
	}
	var c checker
	c.says("InstanceUpdate.", u.on(store.Profile{}))
	if err := c.err(); err != nil {
		return err
	}
	if r.left.Load() {
		return ErrStopped
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.profile = u.on(r.profile)
	r.edition++
	if now := time.Now(); u.changes() && now.Sub(r.updated) >= updateSpacing {
		r.updated = now
		r.wake.nudge()
	}
	return nil
}

// on returns the profile as the update leaves it.
func (u InstanceUpdate) on(p store.Profile) store.Profile {
	if u.WorkerCount != nil {
		p.WorkerCount = *u.WorkerCount
	}
	if u.Address != nil {
		p.Address = *u.Address
	}
	if u.Ports != nil {
		p.Ports = maps.Clone(u.Ports)
	}
	if u.Roles != nil {
		p.Roles = slices.Clone(u.Roles)
	}
	if u.Capabilities != nil {
		p.Capabilities = slices.Clone(u.Capabilities)
	}
	if u.Load != nil {
		p.Load = store.Load(*u.Load)
	}
	if u.LoadLimit != nil {
		p.LoadLimit = store.Load(*u.LoadLimit)
	}
	if u.Metadata != nil {
		p.Metadata = maps.Clone(u.Metadata)
	}
	return p
}

// said returns what the next heartbeat says of this instance.
func (r *Registry) said() store.Profile {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.profile
}

// Instances lists the instances, in the order of their IDs. Entries that are no record of an
// instance are skipped; Counts counts them. If there are more than the query, or a listing, may
// have, it returns some of them and ErrTruncated. Other errors are ErrUnreachable and
// ErrMisconfigured. It reads all records. To know who is there again and again, range over Watch:
// it reads them once, and then only who has joined, left or changed its state. What else a record
// says, such as Load, it does not follow.
func (r *Registry) Instances(ctx context.Context, q InstanceQuery) ([]Instance, error) {
	var c checker
	for i, state := range q.States {
		if state.known() != state {
			c.refuse(fmt.Sprintf("InstanceQuery.States[%d]", i), string(state), "is no InstanceState: use a constant, such as InstanceActive")
		}
	}
	if err := c.err(); err != nil {
		return nil, err
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

// All reads the instances one after the other, in no order, each once: in pages of some hundred, so
// that a loop over a hundred thousand holds no more of them in memory than one page, and their IDs.
// Which of those that join or leave meanwhile are among them is left open. Entries that are no
// record of an instance are skipped. If something goes wrong the last element is an error, as those
// of Instances are. Each range over the sequence reads anew; any number of them may go on at a
// time.
func (r *Registry) All(ctx context.Context) iter.Seq2[Instance, error] {
	return func(yield func(Instance, error) bool) {
		goesOn := true
		_, err := r.each(ctx, func(i Instance) bool {
			goesOn = yield(i, nil)
			return goesOn
		})
		if err != nil && goesOn {
			yield(Instance{}, err)
		}
	}
}

// Instance returns one instance, or ErrNotFound, also for what can be no instance ID. Other errors
// are ErrUnreachable and ErrMisconfigured.
func (r *Registry) Instance(ctx context.Context, id string) (Instance, error) {
	instance, _, err := r.findInstance(ctx, id)
	return instance, err
}

// findInstance is Instance, and the time of the answer by Redis's clock.
func (r *Registry) findInstance(ctx context.Context, id string) (Instance, int64, error) {
	if !store.IDPattern.MatchString(id) {
		return Instance{}, 0, fmt.Errorf("%w: %.100q is no instance ID", ErrNotFound, id)
	}
	type answer struct {
		store.Entry
		now int64
	}
	found, err := ask(ctx, &r.asked, func(ctx context.Context) (a answer, err error) {
		a.Entry, a.now, err = r.store.Instance(ctx, id)
		return a, err
	})
	if errors.Is(err, ErrNotFound) {
		return Instance{}, 0, fmt.Errorf("%w: instance %s", ErrNotFound, id)
	}
	if err != nil {
		return Instance{}, 0, err
	}
	instance, ok := r.instance(found.Entry, found.now)
	if !ok {
		return Instance{}, 0, fmt.Errorf("%w: the record of instance %s is malformed", ErrNotFound, id)
	}
	r.places.note(instance)
	return instance, found.now, nil
}

// Counts counts the instances by an index, in one call that takes Redis some microseconds, however
// many there are. An instance of another program counts with the status that the leader saw when it
// last looked at it, every half DriftedAfter. If some entries are in no index, such as one that is
// no record of an instance, Counts lists the instances. If there are then more entries than a
// listing looks at, it returns what the index or the listing has, whichever has more, and
// ErrTruncated. Other errors are ErrUnreachable and ErrMisconfigured.
func (r *Registry) Counts(ctx context.Context) (Counts, error) {
	counts, exact, err := r.indexed(ctx)
	if err != nil || exact {
		return counts, err
	}
	listed, err := r.listedCounts(ctx)
	if errors.Is(err, ErrTruncated) {
		listed = fuller(listed, counts)
	}
	return listed, err
}

// listedCounts is Counts by a listing.
func (r *Registry) listedCounts(ctx context.Context) (Counts, error) {
	var c Counts
	malformed, err := r.each(ctx, func(i Instance) bool { c.add(i.State); return true })
	if err != nil && !errors.Is(err, ErrTruncated) {
		return Counts{}, err
	}
	c.Malformed = malformed
	return c, err
}

// indexed counts the instances by the index, which may not be exact.
func (r *Registry) indexed(ctx context.Context) (counts Counts, exact bool, err error) {
	found, err := ask(ctx, &r.asked, func(ctx context.Context) (store.CountReply, error) {
		return r.store.Count(ctx, r.opts.DriftedAfter, r.opts.DownAfter)
	})
	if err != nil {
		return Counts{}, false, err
	}
	return Counts{
		Joining: found.Joining, Active: found.Active(), Draining: found.Draining, Drifted: found.Drifted, Down: found.Down, Unknown: found.Other + found.Strange, Total: found.Beats,
	}, found.Exact(), nil
}

// orMore is what a listing that was cut has counted, or what the index has if that is more.
func (r *Registry) orMore(ctx context.Context, listed Counts) Counts {
	indexed, _, err := r.indexed(ctx)
	if err != nil {
		return listed
	}
	return fuller(listed, indexed)
}

// each reads every instance once, as long as take wants more.
func (r *Registry) each(ctx context.Context, take func(Instance) bool) (malformed int, err error) {
	return r.eachBy(ctx, recorded, take)
}

// eachBy is each with what makes sense of an entry, see recorded.
func (r *Registry) eachBy(ctx context.Context, read func(store.Entry) (Instance, bool), take func(Instance) bool) (malformed int, err error) {
	seen := make(map[string]struct{}) // a scan may repeat itself, and begin anew on another server
	strange, looked := 0, 0
	const mostPages = 10 * maxInstances / store.ScanCount // small pages are Redis's right, a scan without an end is not
	cursor := "0"
	for range mostPages {
		page, err := ask(ctx, &r.asked, func(ctx context.Context) (store.ScanReply, error) { return r.store.Scan(ctx, cursor, false) })
		if err != nil {
			return malformed, err
		}
		if page.Anew {
			malformed, looked, strange = malformed-strange, looked-strange, 0
		}
		strange += page.Malformed
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
			instance, ok := read(entry)
			if !ok {
				malformed++
				continue
			}
			r.date(&instance, entry, page.Now)
			r.places.note(instance)
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

// instance makes sense of an entry, as far as there is any.
func (r *Registry) instance(e store.Entry, now int64) (Instance, bool) {
	i, ok := recorded(e)
	if ok {
		r.date(&i, e, now)
	}
	return i, ok
}

// recorded is what the record of an entry says. Its age is missing, and its state is its own word.
func recorded(e store.Entry) (Instance, bool) {
	record, ok := store.ParseInstance(e.Record)
	if !ok || !store.IDPattern.MatchString(e.ID) {
		return Instance{}, false
	}
	return Instance{
		ID: e.ID, Incarnation: record.Incarnation, State: InstanceState(record.Status), StartedAt: record.StartedAt, LastHeartbeat: record.LastHeartbeat,
		WorkerCount: record.WorkerCount, WorkerID: record.WorkerID, Address: record.Address, Host: record.Host, Version: record.Version,
		Ports: record.Ports, Roles: record.Roles, Leading: record.Leading, Capabilities: record.Capabilities,
		Load: Load(record.Load), LoadLimit: Load(record.LoadLimit), Metadata: record.Metadata,
	}, true
}

// date adds the age and the state that an instance has by it.
func (r *Registry) date(i *Instance, e store.Entry, now int64) {
	switch {
	case e.Beaten:
		i.Age = max(store.Milliseconds(now-e.Last), 0)
	case !i.LastHeartbeat.IsZero():
		i.Age = max(store.Milliseconds(now-i.LastHeartbeat.UnixMilli()), 0)
	}
	i.State = r.stateOf(i.State, i.Age)
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

// memberEvents are the events that a hint, or a verdict of a sweep, leads to.
var memberEvents = map[string]EventType{
	"joined": EventInstanceJoined, store.SweepDrifted: EventInstanceDrifted, store.SweepRecovered: EventInstanceRecovered, store.SweepDown: EventInstanceDown, store.SweepLeft: EventInstanceLeft,
}

// hint takes a hint from the subscription.
func (r *Registry) hint(h store.Hint) {
	if h.Type != store.HintCommand {
		r.counted.Store(false)
		r.changed()
	}
	if h.Type == store.HintChanged {
		for _, change := range h.Changes {
			r.befell(change)
		}
		return
	}
	r.befell(h)
	if h.Type == store.HintDuplicate && h.Subject == r.id && h.Source != r.incarnation && r.opts.HeartbeatInterval > 0 &&
		store.IncarnationPattern.MatchString(h.Source) {
		r.duplicate(h.Source, false)
	}
}

// befell reports what a hint says of instances. What this process did itself is reported already;
// a change that has waited does not say which process of the instance made it.
func (r *Registry) befell(h store.Hint) {
	kind, known := memberEvents[h.Type]
	if !known || h.Source == r.incarnation {
		return
	}
	for _, subject := range append(h.Subjects, h.Subject) {
		if store.IDPattern.MatchString(subject) && (h.Source != "" || subject != r.id) {
			r.bus.publish(Event{Type: kind, Subject: subject, Remote: true})
		}
	}
}

// changed wakes all that watch.
func (r *Registry) changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for wake := range r.watches {
		wake.nudge()
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
	for _, gate := range []*callGate{&r.beating, &r.leaving, &r.sweeping, &r.adding} {
		left = cmp.Or(left, gate.flush(deadline, "a call of the registry to Redis"))
	}
	return joined(left, r.asked.flush(deadline, questionsLeft), r.measuring.flush(deadline, metricsFunc))
}

// places are the records of those who lead roles of this process, as they were last read. It is
// safe for concurrent use.
type places struct {
	mu   sync.Mutex
	byID map[string]*place
}

type place struct {
	address string
	version string
	started time.Time
	read    bool      // the record was there, and no term of the instance has begun since
	at      time.Time // when it was last read; zero: never
	roles   int       // that the instance leads
}

// lead notes that a term of an instance has begun, and who led the role before; "" is nobody. The
// record of the instance is then to be read, again if it was: a process that has been started anew
// under its ID may be elsewhere. There may be thousands of roles: it looks at no other.
func (p *places) lead(before, now string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is := p.byID[before]; is != nil {
		if is.roles--; is.roles == 0 {
			delete(p.byID, before)
		}
	}
	if now == "" {
		return
	}
	if p.byID == nil {
		p.byID = make(map[string]*place)
	}
	is := p.byID[now]
	if is == nil {
		is = new(place)
		p.byID[now] = is
	}
	is.roles++
	is.read = false
}

// placeSpacing is how soon the record of an instance is read again that leads ever more roles.
const placeSpacing = time.Second

// unread are the instances whose records are to be read, in the order of their IDs. rest says that
// others were read so lately that they are to be read later.
func (p *places) unread(now time.Time) (unread []string, rest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, is := range p.byID {
		switch {
		case is.read:
		case !is.at.IsZero() && now.Sub(is.at) < placeSpacing:
			rest = true
		default:
			unread = append(unread, id)
		}
	}
	slices.Sort(unread)
	return unread, rest
}

// note takes the record of an instance that somebody has read.
func (p *places) note(i Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is := p.byID[i.ID]; is != nil {
		is.address, is.version, is.started, is.read, is.at = i.Address, i.Version, i.StartedAt, true, time.Now()
	}
}

// of is what is known of an instance.
func (p *places) of(id string) place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is := p.byID[id]; is != nil {
		return *is
	}
	return place{}
}
