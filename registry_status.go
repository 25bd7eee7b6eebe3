package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// ClusterStatus is a snapshot of the instances of a namespace, and of who leads its default role.
type ClusterStatus struct {
	Namespace string `json:"namespace"` // the name of the cluster
	Counts    Counts `json:"counts"`
	// Leader is that of the default role; its InstanceID is "" if nobody leads.
	Leader LeaderInfo `json:"leader"`
	// Held is how many instances the hold that runs found silent (see EventSweepHeld); 0: no hold
	// runs. Lost is how many instances sweeps have removed since a time of DownAfter without a
	// removal.
	Held int `json:"held"`
	Lost int `json:"lost"`
	// MinInstances is that of RegistryOptions, at least 1.
	MinInstances int `json:"min_instances"`
	// Healthy reports that the default role has a leader (see Options.NoDefaultRole), that nobody
	// is drifted, down, held or lost, and that at least MinInstances are active. Problems says what
	// is wrong, for people; empty if Healthy.
	Healthy  bool     `json:"healthy"`
	Problems []string `json:"problems,omitempty"`
}

// Status asks Redis how the cluster is: a listing and two questions. It returns ErrUnreachable or
// ErrMisconfigured if Redis gives no answer. If there are more entries than a listing looks at, it
// counts the instances as Counts does, and returns ErrTruncated beside that. If ErrMisconfigured is
// about who leads only, it returns what it has counted too.
func (r *Registry) Status(ctx context.Context) (ClusterStatus, error) {
	return r.survey(ctx, recorded, func(Instance) {})
}

// survey is Status, and hands out each instance that it counts.
func (r *Registry) survey(ctx context.Context, read func(store.Entry) (Instance, bool), take func(Instance)) (ClusterStatus, error) {
	s, unled, begun := r.begin(ctx)
	if begun != nil && !errors.Is(begun, ErrMisconfigured) {
		return s, begun
	}
	malformed, err := r.eachBy(ctx, read, func(i Instance) bool {
		s.note(i)
		take(i)
		return true
	})
	if err != nil && !errors.Is(err, ErrTruncated) {
		return ClusterStatus{Namespace: r.namespace}, err
	}
	s.Counts.Malformed = malformed
	if err != nil {
		s.Counts = r.orMore(ctx, s.Counts)
	}
	s.judge(unled, r.opts.DownAfter)
	s.unless(begun)
	if err != nil {
		return s, alsoTruncated(begun)
	}
	return s, begun
}

// alsoTruncated is ErrTruncated, beside what else is wrong.
func alsoTruncated(err error) error {
	if err == nil || errors.Is(err, ErrTruncated) {
		return cmp.Or(err, ErrTruncated)
	}
	return fmt.Errorf("%w (%w)", err, ErrTruncated)
}

// unless takes an error of the beginning as a problem: then it is not known who leads, or how many
// are held or lost.
func (s *ClusterStatus) unless(begun error) {
	if begun != nil {
		s.Healthy, s.Problems = false, append([]string{errorText(begun)}, s.Problems...)
	}
}

// begin asks for what a status has beside the instances.
func (r *Registry) begin(ctx context.Context) (s ClusterStatus, unled bool, err error) {
	s = ClusterStatus{Namespace: r.namespace, MinInstances: max(r.opts.MinInstances, 1)}
	if r.elections.leader != nil {
		s.Leader, err = r.elections.leader(ctx)
	}
	if err != nil && !errors.Is(err, ErrNoLeader) {
		return s, false, err
	}
	unled = r.elections.leader != nil && s.Leader.InstanceID == ""
	s.Held, s.Lost, err = r.losses(ctx)
	return s, unled, err
}

// note counts an instance.
func (s *ClusterStatus) note(i Instance) {
	s.Counts.add(i.State)
	if i.ID == s.Leader.InstanceID && s.Leader.Token != 0 {
		s.Leader.Address = i.Address
	}
}

// Overview is Status and Instances by one listing: what it costs, and both answers, belong
// together. The instances are in the order of their IDs. With ErrTruncated they are those that were
// read, and the status counts as Status does. If it cannot be read who leads (ErrMisconfigured),
// both are there all the same, without that, and the error is among the problems; if the instances
// cannot be read, they are nil.
//
// It keeps the records until the next call, which parses those only that have changed: it is made
// for a server that asks again and again.
func (r *Registry) Overview(ctx context.Context) (ClusterStatus, []Instance, error) {
	var known overview
	if before := r.overview.Load(); before != nil {
		known.before = *before
	}
	known.after = make(map[string]overviewEntry, len(known.before))
	all := make([]Instance, 0, len(known.before))
	size := 0
	s, err := r.survey(ctx, known.read, func(i Instance) {
		if size += i.size(); size <= maxInstanceBytes {
			all = append(all, i)
		}
	})
	listed := err == nil || errors.Is(err, ErrTruncated) || len(s.Problems) > 0 // see unless
	if !listed {
		return s, nil, err
	}
	if size > maxInstanceBytes {
		err = alsoTruncated(err)
	}
	r.overview.Store(&known.after)
	slices.SortFunc(all, func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	return s, all, err
}

// OverviewOf brings an overview up to date after changes: it asks who leads, and reads the
// instances with these IDs again, in place of all. s and all are what Overview, or OverviewOf, has
// returned; they are not changed, and what it returns shares the other instances with them, which
// are as they were then. The errors are ErrUnreachable and ErrMisconfigured, see Overview.
func (r *Registry) OverviewOf(ctx context.Context, s ClusterStatus, all []Instance, ids ...string) (ClusterStatus, []Instance, error) {
	n, unled, begun := r.begin(ctx)
	if begun != nil && !errors.Is(begun, ErrMisconfigured) {
		return n, nil, begun
	}
	cut := s.Counts.Total > len(all) // there are more than were read
	all = slices.Clone(all)
	for _, id := range ids {
		at, found := slices.BinarySearchFunc(all, id, func(i Instance, id string) int { return cmp.Compare(i.ID, id) })
		i, err := r.Instance(ctx, id)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return ClusterStatus{Namespace: r.namespace}, nil, err
		case err == nil && found:
			all[at] = i
		case err == nil:
			all = slices.Insert(all, at, i)
		case found:
			all = slices.Delete(all, at, at+1)
		}
	}
	for _, i := range all {
		n.note(i)
	}
	n.Counts.Malformed = s.Counts.Malformed
	if cut {
		n.Counts = r.orMore(ctx, n.Counts)
	}
	n.judge(unled, r.opts.DownAfter)
	n.unless(begun)
	return n, all, begun
}

// overview makes sense of entries as recorded does. Those whose text is that of the last time are
// not parsed again: with ten thousand instances that is nine tenths of what a listing takes.
type overview struct {
	before, after map[string]overviewEntry
	size          int
}

// overviewEntry is an entry, and what it says.
type overviewEntry struct {
	text     string
	instance Instance
}

func (o *overview) read(e store.Entry) (Instance, bool) {
	is, known := o.before[e.ID]
	if !known || is.text != e.Record {
		i, ok := recorded(e)
		if !ok {
			return i, false
		}
		is = overviewEntry{e.Record, i}
	}
	if o.size += is.instance.size() + len(is.text); o.size <= maxInstanceBytes {
		o.after[e.ID] = is
	}
	return is.instance.clone(), true
}

// clone copies what an instance refers to.
func (i Instance) clone() Instance {
	i.Ports, i.Metadata = maps.Clone(i.Ports), maps.Clone(i.Metadata)
	i.Roles, i.Leading, i.Capabilities = slices.Clone(i.Roles), slices.Clone(i.Leading), slices.Clone(i.Capabilities)
	return i
}

// judge says whether the cluster is healthy.
func (s *ClusterStatus) judge(unled bool, downAfter time.Duration) {
	wrong := func(is bool, problem string, args ...any) {
		if is {
			s.Problems = append(s.Problems, fmt.Sprintf(problem, args...))
		}
	}
	c := s.Counts
	wrong(unled, "nobody leads")
	wrong(c.Drifted > 0, "%d drifted", c.Drifted)
	wrong(c.Down > 0, "%d down", c.Down)
	wrong(s.Held > 0, "%d were silent at once, those that are left are held", s.Held)
	wrong(s.Lost > 0, "%d lost, the last within %v", s.Lost, downAfter)
	wrong(c.Active < s.MinInstances, "%d active, at least %d are wanted", c.Active, s.MinInstances)
	s.Healthy = len(s.Problems) == 0
}

// losses asks how many instances are held, and how many were lost.
func (r *Registry) losses(ctx context.Context) (held, lost int, err error) {
	both, err := ask(ctx, &r.asked, func(ctx context.Context) (both [2]int, err error) {
		both[0], both[1], err = r.store.Losses(ctx)
		return both, err
	})
	return both[0], both[1], err
}

// Addresses lists where the active instances with a role are reached, in the order of their IDs:
// those whose HasRole is true and that say an Address. "" asks for all active instances with an
// address. The errors are those of Instances. Who leads now: see Elector.Leader.
func (r *Registry) Addresses(ctx context.Context, role string) ([]string, error) {
	active, err := r.Instances(ctx, InstanceQuery{States: []InstanceState{InstanceActive}})
	var addresses []string
	for _, i := range active {
		if i.Address != "" && (role == "" || i.HasRole(role)) {
			addresses = append(addresses, i.Address)
		}
	}
	return addresses, err
}

// WaitFor returns nil as soon as at least n instances are active, this one included; for an n of 0
// at least RegistryOptions.MinInstances. Use it before work that a few instances cannot carry. It
// counts at once and then less and less often, at least every 5 s, also while Redis cannot be
// reached. A count may take 3 s, and longer if several in a row had no answer, up to a minute.
//
// If ctx is done first, WaitFor returns its cause, joined with ErrUnreachable if the last count had
// no answer: as many may be active then. It returns ErrMisconfigured if n is out of [0, 100,000]
// or if somebody has to fix something first.
func (r *Registry) WaitFor(ctx context.Context, n int) error {
	if n < 0 || n > maxInstances {
		return fmt.Errorf("%w: WaitFor got %d, which must be between 0 and %d", ErrMisconfigured, n, maxInstances)
	}
	n = cmp.Or(n, max(r.opts.MinInstances, 1))
	unanswered := ErrUnreachable // why it is not known how many are active; nil: it is
	over := func() error {
		if unanswered != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), unanswered)
		}
		return context.Cause(ctx)
	}
	failed := 0 // counts in a row that had no answer
	for try := 1; ; try++ {
		active, err := r.activeWithin(ctx, lease.Backoff(registryBound, failed+1, waitLongest))
		switch {
		case active >= n:
			return nil
		case ctx.Err() != nil:
			return over()
		case err != nil && !errors.Is(err, ErrUnreachable):
			return err
		case err != nil:
			failed++
		default:
			failed = 0
		}
		unanswered = err
		pause := lease.Backoff(waitFirst, try, waitMost)
		timer := time.NewTimer(pause/4*3 + time.Duration(r.random()*float64(pause/4)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return over()
		case <-timer.C:
		}
	}
}

// activeWithin counts the active instances, for one that asks again: a count that hangs is not
// waited for.
func (r *Registry) activeWithin(ctx context.Context, bound time.Duration) (int, error) {
	ctx, cancel := within(ctx, bound)
	defer cancel()
	counts, err := r.Counts(ctx)
	if err != nil && errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return counts.Active, err
}

// watch has wake nudged when instances have changed, until the end of that.
func (r *Registry) watch(wake wakeup) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches[wake] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watches, wake)
	}
}

// How long WaitFor pauses between two counts, and waits for one at most: a listing over a slow
// network takes its time.
const (
	waitFirst   = 100 * time.Millisecond
	waitMost    = 5 * time.Second
	waitLongest = time.Minute
)

func (r *Registry) known(id string) string {
	return r.places.of(id).address
}

// newer is by how much later this process started than an instance of another version; 0: it did
// not, or has none, or that is not known.
func (r *Registry) newer(id string) time.Duration {
	leader := r.places.of(id)
	started := r.started.Load()
	if r.opts.Version == "" || started == 0 || leader.started.IsZero() || leader.version == r.opts.Version {
		return 0
	}
	return max(time.Unix(started, 0).Sub(leader.started), 0)
}

func (r *Registry) read(ctx context.Context, id string) string {
	i, err := r.Instance(ctx, id)
	if err != nil {
		return ""
	}
	return i.Address
}

func (r *Registry) leaderChanged(before, now string) {
	r.places.lead(before, now)
	if now != "" && now != r.id {
		r.newLeader.nudge()
	}
}

// findLeaders reads the records of those whose terms have begun, until ctx is done: one call a
// change of leader, and one a placeSpacing if an instance comes to lead many roles. What cannot be
// read is asked for again after registryBound, and then less and less often.
func (r *Registry) findLeaders(ctx context.Context) {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	pause := registryBound
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.newLeader:
			pause = registryBound
		case <-timer.C:
			pause = min(2*pause, r.opts.DownAfter)
		}
		asked, failed := false, false
		unread, rest := r.places.unread(time.Now())
		for _, id := range unread {
			if id == r.id {
				continue
			}
			bounded, cancel := within(ctx, registryBound)
			_, err := r.Instance(bounded, id)
			cancel()
			asked, failed = true, failed || err != nil
		}
		if asked { // else nothing is known that was not
			r.elections.compared()
		}
		switch {
		case rest:
			timer.Reset(placeSpacing)
		case failed:
			timer.Reset(pause)
		}
	}
}
