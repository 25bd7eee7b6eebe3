package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Link is what the calls of one coordinator to its memory pass: a test may cut it. It is safe for
// concurrent use.
type Link struct {
	mu   sync.RWMutex // held for reading by each call
	cuts int          // so far
	cut  bool
}

// errCut is the answer to all calls while the link is cut.
var errCut = fmt.Errorf("%w: the instance is disconnected", store.ErrUnreachable)

// Cut has all calls fail from now on. It returns when none is under way. If the link is cut it
// reports false.
func (l *Link) Cut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.cut
	if !was {
		l.cut = true
		l.cuts++
	}
	return !was
}

// After calls a function, and says whether the cut that is on is over by then. The function must
// not block.
func (l *Link) After(d time.Duration, do func(over bool)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	of := l.cuts
	time.AfterFunc(d, func() { // ends at once
		l.mu.RLock()
		defer l.mu.RUnlock()
		do(!l.cut || l.cuts != of)
	})
}

// Fix has calls pass again.
func (l *Link) Fix() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

// Up reports whether calls pass.
func (l *Link) Up() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return !l.cut
}

// pass makes a call, if calls pass.
func (l *Link) pass(call func() error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.cut {
		return errCut
	}
	return call()
}

// through makes a call that answers something, if calls pass.
func through[T any](l *Link, call func() (T, error)) (answer T, err error) {
	err = l.pass(func() error {
		answer, err = call()
		return err
	})
	return answer, err
}

// linkedLease is a lease behind a link.
type linkedLease struct {
	*Link
	to store.Lease
}

func (l linkedLease) Acquire(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return through(l.Link, func() (store.LeaseReply, error) { return l.to.Acquire(ctx, r) })
}

func (l linkedLease) Renew(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return through(l.Link, func() (store.LeaseReply, error) { return l.to.Renew(ctx, r) })
}

func (l linkedLease) Release(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return through(l.Link, func() (store.LeaseReply, error) { return l.to.Release(ctx, r) })
}

func (l linkedLease) Leader(ctx context.Context) (store.LeaseReply, error) {
	return through(l.Link, func() (store.LeaseReply, error) { return l.to.Leader(ctx) })
}

func (l linkedLease) Terms(ctx context.Context, limit int) ([]store.TermEntry, error) {
	return through(l.Link, func() ([]store.TermEntry, error) { return l.to.Terms(ctx, limit) })
}

func (l linkedLease) ForgetTerms(ctx context.Context, token int64) (store.LeaseReply, error) {
	return through(l.Link, func() (store.LeaseReply, error) { return l.to.ForgetTerms(ctx, token) })
}

// Tasks returns the records of tasks behind the link.
func (l *Link) Tasks(to store.Tasks) store.Tasks { return linkedTasks{l, to} }

// linkedTasks are the records of tasks behind a link.
type linkedTasks struct {
	*Link
	to store.Tasks
}

func (l linkedTasks) Open(ctx context.Context, name string, o store.TaskOpen) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Open(ctx, name, o) })
}

func (l linkedTasks) Plan(ctx context.Context, name string, p store.TaskPlan) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Plan(ctx, name, p) })
}

func (l linkedTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Claim(ctx, name, c) })
}

func (l linkedTasks) Retry(ctx context.Context, name string, r store.TaskRetry) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Retry(ctx, name, r) })
}

func (l linkedTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Finish(ctx, name, f) })
}

func (l linkedTasks) Record(ctx context.Context, name string) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Record(ctx, name) })
}

func (l linkedTasks) RecordAndTriggers(ctx context.Context, name, of string) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.RecordAndTriggers(ctx, name, of) })
}

func (l linkedTasks) Pause(ctx context.Context, name string, paused bool, expect, why string) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Pause(ctx, name, paused, expect, why) })
}

func (l linkedTasks) Trigger(ctx context.Context, name string, t store.TaskTrigger) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Trigger(ctx, name, t) })
}

func (l linkedTasks) Cancel(ctx context.Context, name string, c store.TaskCancel) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Cancel(ctx, name, c) })
}

func (l linkedTasks) Forget(ctx context.Context, name string, f store.TaskForget) (store.TaskReply, error) {
	return through(l.Link, func() (store.TaskReply, error) { return l.to.Forget(ctx, name, f) })
}

func (l linkedTasks) Names(ctx context.Context, limit int) (names []string, more bool, err error) {
	err = l.pass(func() error {
		names, more, err = l.to.Names(ctx, limit)
		return err
	})
	return names, more, err
}

func (l linkedTasks) Records(ctx context.Context, names []string) (now int64, records []store.TaskRecord, problems []error, err error) {
	err = l.pass(func() error {
		now, records, problems, err = l.to.Records(ctx, names)
		return err
	})
	return now, records, problems, err
}

func (l linkedTasks) Runs(ctx context.Context, name string, limit int) ([]store.Run, error) {
	return through(l.Link, func() ([]store.Run, error) { return l.to.Runs(ctx, name, limit) })
}

// Registry returns a registry behind the link.
func (l *Link) Registry(to store.Registry) store.Registry { return linkedRegistry{l, to} }

// linkedRegistry is a registry behind a link.
type linkedRegistry struct {
	*Link
	to store.Registry
}

func (l linkedRegistry) Heartbeat(ctx context.Context, h store.Heartbeat) (store.HeartbeatReply, error) {
	return through(l.Link, func() (store.HeartbeatReply, error) { return l.to.Heartbeat(ctx, h) })
}

func (l linkedRegistry) Remove(ctx context.Context, id, incarnation string) (verdict string, err error) {
	err = l.pass(func() error {
		verdict, err = l.to.Remove(ctx, id, incarnation)
		return err
	})
	return verdict, err
}

func (l linkedRegistry) Instance(ctx context.Context, id string) (e store.Entry, now int64, err error) {
	err = l.pass(func() error {
		e, now, err = l.to.Instance(ctx, id)
		return err
	})
	return e, now, err
}

func (l linkedRegistry) Scan(ctx context.Context, cursor string, onlyNew bool) (store.ScanReply, error) {
	return through(l.Link, func() (store.ScanReply, error) { return l.to.Scan(ctx, cursor, onlyNew) })
}

func (l linkedRegistry) Losses(ctx context.Context) (held, lost int, err error) {
	err = l.pass(func() error {
		held, lost, err = l.to.Losses(ctx)
		return err
	})
	return held, lost, err
}

func (l linkedRegistry) Count(ctx context.Context, drifted, down time.Duration) (store.CountReply, error) {
	return through(l.Link, func() (store.CountReply, error) { return l.to.Count(ctx, drifted, down) })
}

func (l linkedRegistry) Log(ctx context.Context, after string, limit int) (store.LogReply, error) {
	return through(l.Link, func() (store.LogReply, error) { return l.to.Log(ctx, after, limit) })
}

func (l linkedRegistry) LogEnd(ctx context.Context) (id string, err error) {
	err = l.pass(func() error {
		id, err = l.to.LogEnd(ctx)
		return err
	})
	return id, err
}

func (l linkedRegistry) LogTail(ctx context.Context, limit int) ([]store.LogEntry, error) {
	return through(l.Link, func() ([]store.LogEntry, error) { return l.to.LogTail(ctx, limit) })
}

func (l linkedRegistry) Look(ctx context.Context, k store.Look) (store.LookReply, error) {
	return through(l.Link, func() (store.LookReply, error) { return l.to.Look(ctx, k) })
}

func (l linkedRegistry) Sweep(ctx context.Context, s store.Sweep) (store.SweepReply, error) {
	return through(l.Link, func() (store.SweepReply, error) { return l.to.Sweep(ctx, s) })
}

func (l linkedRegistry) Adopt(ctx context.Context, incarnation string, ids []string) (foreign []string, err error) {
	err = l.pass(func() error {
		foreign, err = l.to.Adopt(ctx, incarnation, ids)
		return err
	})
	return foreign, err
}

func (l linkedRegistry) Metrics(ctx context.Context, ids []string) ([][]store.Metric, error) {
	return through(l.Link, func() ([][]store.Metric, error) { return l.to.Metrics(ctx, ids) })
}

func (l linkedRegistry) Aggregate(ctx context.Context, mark string, entry []store.MetricSummary) (err error) {
	err = l.pass(func() error {
		err = l.to.Aggregate(ctx, mark, entry)
		return err
	})
	return err
}

func (l linkedRegistry) Aggregates(ctx context.Context, limit int) ([]store.Aggregate, error) {
	return through(l.Link, func() ([]store.Aggregate, error) { return l.to.Aggregates(ctx, limit) })
}

// Commands returns commands behind the link.
func (l *Link) Commands(to store.Commands) store.Commands { return linkedCommands{l, to} }

// linkedCommands are commands behind a link.
type linkedCommands struct {
	*Link
	to store.Commands
}

func (l linkedCommands) SendCommand(ctx context.Context, c store.Command, bound time.Duration) (verdict string, err error) {
	err = l.pass(func() error {
		verdict, err = l.to.SendCommand(ctx, c, bound)
		return err
	})
	return verdict, err
}

func (l linkedCommands) ReadCommands(ctx context.Context, instance string, remove []string) (entries []string, err error) {
	err = l.pass(func() error {
		entries, err = l.to.ReadCommands(ctx, instance, remove)
		return err
	})
	return entries, err
}

func (l linkedCommands) StartCommand(ctx context.Context, c store.Command, entry, incarnation string) (verdict string, err error) {
	err = l.pass(func() error {
		verdict, err = l.to.StartCommand(ctx, c, entry, incarnation)
		return err
	})
	return verdict, err
}

func (l linkedCommands) EndCommand(ctx context.Context, c store.Command, incarnation string, o store.CommandOutcome) (err error) {
	err = l.pass(func() error {
		err = l.to.EndCommand(ctx, c, incarnation, o)
		return err
	})
	return err
}

func (l linkedCommands) LookCommand(ctx context.Context, c store.Command, hint bool) (store.CommandOutcome, error) {
	return through(l.Link, func() (store.CommandOutcome, error) { return l.to.LookCommand(ctx, c, hint) })
}

func (l linkedCommands) NoteCommand(ctx context.Context, c store.Command, o store.CommandOutcome) (err error) {
	err = l.pass(func() error {
		err = l.to.NoteCommand(ctx, c, o)
		return err
	})
	return err
}

func (l linkedCommands) CommandLog(ctx context.Context) ([]store.CommandEntry, error) {
	return through(l.Link, func() ([]store.CommandEntry, error) { return l.to.CommandLog(ctx) })
}
