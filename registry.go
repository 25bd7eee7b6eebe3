package tenure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// InstanceStatus is how an instance stands.
type InstanceStatus string

// The statuses of an instance. The first three are its own word, which counts while it beats.
const (
	StatusJoining  InstanceStatus = "joining"  // it has registered and does not take part yet
	StatusActive   InstanceStatus = "active"   // it beats
	StatusDraining InstanceStatus = "draining" // it is on its way out
	StatusDrifted  InstanceStatus = "drifted"  // it has been silent for DriftedAfter
	StatusDown     InstanceStatus = "down"     // it has been silent for DownAfter and is about to be removed

	// StatusUnknown is that of an instance of another program that beats and says something that is
	// no word. A word of its own that is none of these, such as "dead", is its Status as it stands, and
	// counts as unknown too.
	StatusUnknown InstanceStatus = "unknown"
)

// Instance is one process, or what another program wrote of one. Metadata that another program wrote are untrusted, and left out
// where they are no texts, or more of them than RegistryOptions allow.
type Instance struct {
	ID string
	// Incarnation tells one start of the process from the next. "" where another program wrote the record.
	Incarnation string
	// Status is one of the constants, or the word of another program: see StatusUnknown.
	Status InstanceStatus
	// StartedAt and LastHeartbeat are what the record says, in whole seconds of Redis's clock (of the other program's where that wrote
	// it); zero where it says nothing.
	StartedAt     time.Time
	LastHeartbeat time.Time
	// Age is the time since the last beat, by Redis's clock. A record of another program counts as beaten each time a leader saw
	// its heartbeat key, and goes by its own last_heartbeat until a leader has seen it at all.
	Age         time.Duration
	WorkerCount int
	Metadata    map[string]string
}

// InstanceQuery narrows a listing. The zero value asks for all.
type InstanceQuery struct {
	// Status is the only one to be listed. Default: every status. StatusUnknown lists every instance
	// whose status is none of the other constants. Anything else is refused with an *OptionError.
	Status InstanceStatus
	// Limit is the largest number of instances to list, 100,000 at most. Default: that.
	Limit int
}

// Counts says how many instances there are, by status.
type Counts struct {
	Joining, Active, Draining, Drifted, Down int
	Unknown                                  int // instances of other programs with a word of their own
	Total                                    int // of these
	Malformed                                int // entries that are no record of an instance: they are skipped
}

const (
	maxInstances     = 100_000 // entries that a listing looks at
	maxInstanceBytes = 64 << 20
	maxMetadataPairs = 32
	maxMetadataBytes = 4096
	registryBound    = 3 * time.Second
)

// Registry is the registry of instances: this process beats in it, the leader sweeps it, anybody reads it. Its methods are safe
// for concurrent use and work without Run. They return as soon as their context is done, with ErrUnreachable and its cause, though
// the client may go on with a call.
type Registry struct {
	store       registryStore
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

	mu        sync.Mutex
	status    InstanceStatus // what the next beat says
	rival     string         // the other incarnation of our ID that was told of last
	rivalSeen time.Time      // when it was last heard of; zero: it is gone
}

// newRegistry wants completed options.
func newRegistry(store registryStore, bus *eventBus, opts Options) *Registry {
	return &Registry{
		store:       store,
		bus:         bus,
		id:          opts.InstanceID,
		incarnation: opts.secret(),
		opts:        opts.Registry,
		random:      opts.random,
		status:      StatusJoining,
		wake:        newWakeup(),
		beating:     callGate{most: maxRegistryCalls},
		leaving:     callGate{most: maxRegistryCalls},
		sweeping:    callGate{most: maxRegistryCalls},
		asked:       callGate{most: maxQuestions},
	}
}

// Incarnation tells this start of the process from every other. It is random and public.
func (r *Registry) Incarnation() string { return r.incarnation }

// Instances lists the instances, in the order of their IDs. Entries that are no record of an instance are skipped; Counts counts
// them. Where there are more than the query, or a listing, may have, it returns some of them and ErrTruncated. Other errors are
// ErrUnreachable and ErrMisconfigured.
func (r *Registry) Instances(ctx context.Context, q InstanceQuery) ([]Instance, error) {
	if q.Status != "" && q.Status.known() != q.Status {
		return nil, &OptionError{Field: "InstanceQuery.Status", Value: fmt.Sprintf("%.200q", q.Status), Reason: "is no InstanceStatus: use a constant, such as StatusActive"}
	}
	limit := maxInstances
	if q.Limit > 0 {
		limit = min(q.Limit, limit)
	}
	var all []Instance
	size, full := 0, false
	_, err := r.each(ctx, func(i Instance) bool {
		if q.Status != "" && i.Status.known() != q.Status {
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
	if !idPattern.MatchString(id) {
		return Instance{}, fmt.Errorf("%w: %.100q is no instance ID", ErrNotFound, id)
	}
	var now int64
	entry, err := ask(ctx, &r.asked, func(ctx context.Context) (entry instanceEntry, err error) {
		entry, now, err = r.store.readInstance(ctx, id)
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

// Counts counts the instances. Where there are more entries than a listing looks at, it returns what it has counted and ErrTruncated.
// Other errors are ErrUnreachable and ErrMisconfigured.
func (r *Registry) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	malformed, err := r.each(ctx, func(i Instance) bool {
		c.Total++
		switch i.Status {
		case StatusJoining:
			c.Joining++
		case StatusActive:
			c.Active++
		case StatusDraining:
			c.Draining++
		case StatusDrifted:
			c.Drifted++
		case StatusDown:
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
	const mostPages = 10 * maxInstances / scanCount // small pages are Redis's right, a scan without an end is not
	cursor := "0"
	for range mostPages {
		page, err := ask(ctx, &r.asked, func(ctx context.Context) (scanReply, error) { return r.store.scanInstances(ctx, cursor, false) })
		if err != nil {
			return malformed, err
		}
		malformed += page.malformed
		looked += page.malformed
		for _, entry := range page.entries {
			if _, again := seen[entry.id]; again {
				continue
			}
			if looked++; looked > maxInstances {
				return malformed, ErrTruncated
			}
			seen[entry.id] = struct{}{}
			instance, ok := r.instance(entry, page.now)
			if !ok {
				malformed++
				continue
			}
			if !take(instance) {
				return malformed, nil
			}
		}
		if cursor = page.next; cursor == "0" {
			return malformed, nil
		}
		if looked >= maxInstances {
			return malformed, ErrTruncated
		}
		if ctx.Err() != nil {
			return malformed, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
		}
	}
	return malformed, ErrTruncated
}

// known is the status, or StatusUnknown for a word that tenure does not know.
func (s InstanceStatus) known() InstanceStatus {
	switch s {
	case StatusJoining, StatusActive, StatusDraining, StatusDrifted, StatusDown:
		return s
	}
	return StatusUnknown
}

// ownRecord is how a record of tenure begins: its fields in this order, without blanks. Any other record
// is foreign, whatever words it has in it. The scripts read it alike (OWN).
var ownRecord = regexp.MustCompile(`^\{"instance_id":"[A-Za-z0-9._:-]+","started_at":[0-9]+,"last_heartbeat":[0-9]+,` +
	`"status":"[A-Za-z0-9_-]*","worker_count":[0-9]+,"incarnation":"([A-Za-z0-9_-]{1,64})"[,}]`)

var incarnationPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// instance makes sense of an entry, as far as there is any: leniently, since other programs write
// records too. Names of fields are taken as they are, in lower case, as the scripts do.
func (r *Registry) instance(e instanceEntry, now int64) (Instance, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(e.record), &fields) != nil || fields == nil || !idPattern.MatchString(e.id) {
		return Instance{}, false
	}
	i := Instance{
		ID:            e.id,
		StartedAt:     unixSeconds(fields["started_at"]),
		LastHeartbeat: unixSeconds(fields["last_heartbeat"]),
		WorkerCount:   int(min(max(jsonNumber(fields["worker_count"]), 0), 1<<20)),
		Metadata:      metadata(fields["metadata"]),
	}
	if own := ownRecord.FindStringSubmatch(e.record); own != nil {
		i.Incarnation = own[1]
	}
	switch {
	case e.beaten:
		i.Age = max(milliseconds(now-e.last), 0)
	case !i.LastHeartbeat.IsZero():
		i.Age = max(milliseconds(now-i.LastHeartbeat.UnixMilli()), 0)
	}
	i.Status = r.statusOf(ownWord(fields["status"]), i.Age)
	return i, true
}

// ownWord is the status that a record says. An instance that says none is active: it beats.
func ownWord(raw json.RawMessage) InstanceStatus {
	var word *string
	switch {
	case raw == nil:
		return StatusActive
	case json.Unmarshal(raw, &word) != nil:
		return StatusUnknown
	case word == nil, *word == "":
		return StatusActive
	case !incarnationPattern.MatchString(*word): // the same characters
		return StatusUnknown
	}
	return InstanceStatus(*word)
}

// statusOf is the status of an instance by its age, and by its own word while it beats. Drifted is no
// word of its own but what a sweep wrote before it beat again.
func (r *Registry) statusOf(says InstanceStatus, age time.Duration) InstanceStatus {
	switch {
	case age >= r.opts.DownAfter:
		return StatusDown
	case age >= r.opts.DriftedAfter:
		return StatusDrifted
	case says == StatusDrifted:
		return StatusActive
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

func jsonNumber(raw json.RawMessage) float64 {
	var f float64
	_ = json.Unmarshal(raw, &f) // what is no number is none
	return f
}

func unixSeconds(raw json.RawMessage) time.Time {
	const year10000 = 253402300800
	f := jsonNumber(raw)
	if f < 1 || f >= year10000 {
		return time.Time{}
	}
	return time.Unix(int64(math.Floor(f)), 0)
}

func metadata(raw json.RawMessage) map[string]string {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	kept, size := make(map[string]string), 0
	for name, value := range all {
		var text *string
		if json.Unmarshal(value, &text) != nil || text == nil {
			continue
		}
		kept[strings.Clone(name)] = *text
		size += len(name) + len(*text)
	}
	if len(kept) == 0 || len(kept) > maxMetadataPairs || size > maxMetadataBytes {
		return nil
	}
	return kept
}

// membership is what a hint says of an instance.
var membership = map[string]EventType{
	"joined": EventJoined, sweepDrifted: EventDrifted, sweepRecovered: EventRecovered, sweepDown: EventDown, sweepLeft: EventLeft,
}

// hintDuplicate is sent by an incarnation that was replaced and lives.
const hintDuplicate = "duplicate_id"

// hint takes a hint from the subscription. What this process did itself it has reported already.
func (r *Registry) hint(h hint) {
	if h.Source == r.incarnation {
		return
	}
	if kind, known := membership[h.Type]; known {
		for _, subject := range append(h.Subjects, h.Subject) {
			if idPattern.MatchString(subject) {
				r.bus.publish(Event{Type: kind, Subject: subject, Remote: true})
			}
		}
	}
	if h.Type == hintDuplicate && h.Subject == r.id && r.opts.BeatInterval > 0 && incarnationPattern.MatchString(h.Source) {
		r.duplicate(h.Source, false)
	}
}

// duplicate tells of another living process with our ID, once until it was not heard of for DownAfter. Only what we saw
// ourselves is told again where it is yet another one: hints may be forged.
func (r *Registry) duplicate(other string, seen bool) {
	r.mu.Lock()
	known := !r.rivalSeen.IsZero() && time.Since(r.rivalSeen) < r.opts.DownAfter && (!seen || r.rival == other)
	r.rival, r.rivalSeen = other, time.Now()
	r.mu.Unlock()
	if !known {
		r.bus.publish(Event{Type: EventDuplicateID, Subject: other})
	}
}

// flush waits for the calls that were left, at the latest until the deadline.
func (r *Registry) flush(deadline time.Time) error {
	var left error
	for _, gate := range []*callGate{&r.beating, &r.leaving, &r.sweeping} {
		left = cmp.Or(left, gate.flush(deadline, "a call of the registry to Redis"))
	}
	return errors.Join(left, r.asked.flush(deadline, questionsLeft))
}
