package tenure

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// ChangeType says what changed in a namespace.
type ChangeType string

// The changes in the log of a namespace. ChangeSnapshot is none of them: Registry.Watch begins with
// it.
const (
	ChangeJoined    ChangeType = "joined"    // an instance entered the registry
	ChangeActive    ChangeType = "active"    // an instance takes part now
	ChangeDraining  ChangeType = "draining"  // an instance drains
	ChangeDrifted   ChangeType = "drifted"   // an instance was silent for DriftedAfter
	ChangeRecovered ChangeType = "recovered" // a drifted instance beat again
	ChangeDown      ChangeType = "down"      // an instance was silent for DownAfter, and was removed
	ChangeLeft      ChangeType = "left"      // an instance deregistered, or was removed by Control.Remove
	ChangeHeld      ChangeType = "held"      // Count instances were silent at once: the rest is not removed for another DownAfter
	ChangeElected   ChangeType = "elected"   // an instance leads Role now, with Token
	ChangeEnded     ChangeType = "ended"     // the term of Role with Token has ended, see TermRecord.Reason
	ChangeSnapshot  ChangeType = "snapshot"  // all instances as they are: what was known before is replaced
)

// Change is a change in a namespace, of one instance if it is about any. Whoever may write to the
// keys of the namespace may have written it.
type Change struct {
	// ID is that of the entry in the log of Redis: a later one is greater. An entry about several
	// instances is as many changes with one ID, in a row.
	ID         string     `json:"id"`
	Time       time.Time  `json:"time,omitzero"` // by Redis's clock, never earlier than that of a change before
	Type       ChangeType `json:"type"`
	InstanceID string     `json:"instance_id,omitempty"`
	Role       string     `json:"role,omitempty"`      // with ChangeElected and ChangeEnded; "" is the default role
	Token      int64      `json:"token,omitempty"`     // likewise
	Reason     string     `json:"reason,omitempty"`    // with ChangeEnded
	Count      int        `json:"count,omitempty"`     // with ChangeHeld
	Instances  []Instance `json:"instances,omitempty"` // with ChangeSnapshot: all that there are, in the order of their IDs
}

// namesInstance are the changes, and whether each is about an instance in any case.
var namesInstance = map[ChangeType]bool{
	ChangeJoined: true, ChangeActive: true, ChangeDraining: true, ChangeDrifted: true, ChangeRecovered: true, ChangeDown: true, ChangeLeft: true,
	ChangeElected: true, ChangeEnded: false, ChangeHeld: false,
}

// isEntryID reports whether Redis would take id as that of an entry of a stream: two numbers of 64
// bits, which have 20 digits at most.
func isEntryID(id string) bool {
	ms, seq, _ := strings.Cut(id, "-")
	for _, number := range []string{ms, seq} {
		if _, err := strconv.ParseUint(number, 10, 64); err != nil || len(number) > 20 {
			return false
		}
	}
	return true
}

const logPage = 100 // entries that one question reads

// Log returns what changed in the namespace after the change with that ID, oldest first: the
// changes of at most limit entries of the log; entries that are none of tenure's changes do not
// count. Limit 0 or less: none. With "" it begins at the oldest that is kept. The last 10,000
// entries or so are kept. What other programs change is there once the leader has seen
// it. On a Redis Cluster the elections of a LeaderKey in another hash slot are not there.
//
// If the change with that ID is not kept any more, changes after it may be missing: Log returns
// ErrNotFound. Other errors are ErrUnreachable and ErrMisconfigured, also if after is no such ID.
func (r *Registry) Log(ctx context.Context, after string, limit int) ([]Change, error) {
	if after != "" && !isEntryID(after) {
		return nil, fmt.Errorf("%w: %.100q is no ID of a change", ErrMisconfigured, after)
	}
	var all []Change
	for limit = min(limit, store.MaxLog); limit > 0; {
		most := min(limit, logPage)
		page, last, n, err := r.changes(ctx, after, most)
		if err != nil {
			return nil, err
		}
		for i, c := range page { // entries that are no changes do not count: who goes on after the last change would never get past them
			if i == 0 || c.ID != page[i-1].ID {
				limit--
			}
		}
		if all = append(all, page...); n < most {
			break
		}
		after = last
	}
	return all, nil
}

// Recent returns what changed in the namespace last, oldest first: the changes of at most limit
// entries of the log. Limit 0 or less: none. Log goes on after the last of them. It asks Redis
// once. The errors are ErrUnreachable and ErrMisconfigured.
func (r *Registry) Recent(ctx context.Context, limit int) ([]Change, error) {
	if limit = min(limit, store.MaxLog); limit <= 0 {
		return nil, nil
	}
	entries, err := ask(ctx, &r.asked, func(ctx context.Context) ([]store.LogEntry, error) { return r.store.LogTail(ctx, limit) })
	var all []Change
	for _, e := range entries {
		all = append(all, changesOf(e)...)
	}
	return all, err
}

// changes reads one page of the log, of n entries. last is the ID of the last of them.
func (r *Registry) changes(ctx context.Context, after string, most int) (page []Change, last string, n int, err error) {
	reply, err := ask(ctx, &r.asked, func(ctx context.Context) (store.LogReply, error) { return r.store.Log(ctx, after, most) })
	if err != nil {
		return nil, "", 0, err
	}
	if reply.Gone {
		return nil, "", 0, fmt.Errorf("%w: the log is not kept back to %s", ErrNotFound, after)
	}
	last = after
	for _, e := range reply.Entries {
		page, last = append(page, changesOf(e)...), e.ID
	}
	return page, last, len(reply.Entries), nil
}

// changesOf are the changes of one entry. What tenure does not write is none.
func changesOf(e store.LogEntry) (changes []Change) {
	kind := ChangeType(e.Event)
	named, known := namesInstance[kind]
	if !known || !isEntryID(e.ID) {
		return nil
	}
	change := Change{ID: e.ID, Time: timeOfEntry(e.ID), Type: kind, Role: e.Role, Token: e.Token, Reason: e.Reason, Count: e.Count}
	for _, id := range e.Instances {
		if store.IDPattern.MatchString(id) {
			change.InstanceID = id
			changes = append(changes, change)
		}
	}
	if !named && len(changes) == 0 {
		changes = append(changes, change)
	}
	return changes
}

// timeOfEntry is when an entry of a stream was written; zero if its ID does not say.
func timeOfEntry(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	milliseconds, _ := strconv.ParseInt(text, 10, 64) // 0 or far too much of what is no time, which store.Time takes for none
	return store.Time(milliseconds)
}

// How often Watch reads the log.
const (
	watchInterval = 5 * time.Second       // without any hint
	watchSpacing  = 25 * time.Millisecond // between two reads that hints cause
)

// Watch follows the namespace and misses nothing: it yields a snapshot of all instances, and then
// each change of the log. What is yielded after a snapshot may have been in it already. If changes
// may have been missed, because the log was cut off or Redis has lost data, it yields another
// snapshot.
//
//	for change, err := range c.Registry().Watch(ctx) {
//		if err != nil {
//			log.Print(err) // it goes on
//			continue
//		}
//		switch change.Type {
//		case tenure.ChangeSnapshot: // known = change.Instances
//		case tenure.ChangeDown: // delete(known, change.InstanceID)
//		}
//	}
//
// While Run of the Coordinator goes on, hints wake it, and a change arrives within milliseconds; if
// more than 500 processes listen, a change may wait until 0.125 ms for each of them have passed
// since the hint before, and then for the next heartbeat or sweep of any instance. It reads the log
// every 5 s in any case: that is the bound if a hint is lost, and in a Control. A read that fails
// is yielded as an error with a zero Change, once for several in a row; Watch goes on. An
// ErrTruncated comes with the snapshot that was cut. The sequence ends when ctx is done. It keeps a
// page of 100 entries, or one snapshot, and may be ranged over several times, also at once.
func (r *Registry) Watch(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		w := watch{r: r, wake: newWakeup()}
		defer r.watch(w.wake)()
		for on := true; on; on = w.pause(ctx) {
			if !w.turn(ctx, yield) {
				return
			}
		}
	}
}

// watch is one call of Watch.
type watch struct {
	r        *Registry
	wake     wakeup
	position string // ID of the last entry that was yielded; "": the log had none
	follows  bool   // a snapshot was yielded, and all changes after it
	more     bool   // there may be another page
	failures int    // in a row
}

// turn yields what there is. false: nothing more is wanted.
func (w *watch) turn(ctx context.Context, yield func(Change, error) bool) bool {
	page, err := w.read(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && len(page) == 0:
		w.failures++
		return w.failures > 1 || yield(Change{}, err)
	}
	w.failures = 0
	for _, change := range page {
		if !yield(change, err) || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// read reads a page of changes, or a snapshot if they cannot be followed.
func (w *watch) read(ctx context.Context) (page []Change, err error) {
	w.more = false
	if w.follows {
		page, last, n, err := w.r.changes(ctx, w.position, logPage)
		lost := n == logPage && w.position == "" // of a log that was empty it is not known what was cut off since, if it has become long
		if err == nil && !lost {
			w.position, w.more = last, n == logPage
			return page, nil
		}
		if err != nil && !matches(err, ErrNotFound) {
			return nil, err
		}
		w.follows = false
	}
	end, err := ask(ctx, &w.r.asked, w.r.store.LogEnd) // before the snapshot: what happens meanwhile comes after it
	if err != nil {
		return nil, err
	}
	instances, err := w.r.Instances(ctx, InstanceQuery{})
	if err != nil && !matches(err, ErrTruncated) {
		return nil, err
	}
	w.position, w.follows = end, true
	return []Change{{ID: end, Time: timeOfEntry(end), Type: ChangeSnapshot, Instances: instances}}, err
}

// pause waits for the next turn. false: ctx is done.
func (w *watch) pause(ctx context.Context) bool {
	if w.more {
		return ctx.Err() == nil
	}
	rest := watchInterval - watchSpacing
	if w.failures > 0 {
		rest = lease.Backoff(watchSpacing, w.failures, rest)
	}
	return waitFor(ctx, nil, watchSpacing) && waitFor(ctx, w.wake, rest)
}

// waitFor waits until something comes, but no longer than for d. false: ctx is done.
func waitFor(ctx context.Context, come <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-come:
	case <-timer.C:
	}
	return true
}
