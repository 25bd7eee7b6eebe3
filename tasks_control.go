package tenure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

const (
	triggerBound = time.Hour        // for which a trigger waits for a leader
	triggerLate  = 30 * time.Second // after which a trigger that is held up on its way has no effect
)

// Trigger has a task run once, as soon as its leader can, also if it is not due. It may be called
// on any instance. The leader of the task's role runs it within a round trip, or within a minute if
// no hint arrives. If another run of the task is on, the triggered run follows it. The run gets
// args (TaskRun.Args), as does every retry and rerun of it. Its slots stay as they are, and come
// due during the run as Task.Overlap says. If a trigger and a slot wait, the trigger comes first;
// right after a run that was triggered, the slot does. If the task is paused, the run waits for
// Resume, for up to a minute more. If nobody leads, it waits in Redis for a leader. After an hour a
// trigger that still waits is dropped: EventTaskTriggerExpired.
//
// Trigger returns the ID of the trigger (TaskRun.Trigger, RunRecord.Trigger) and does not wait for
// the run. Each trigger leads to one run, if Redis keeps the record. What becomes of a run whose
// leader dies is a matter of Task.Abandoned. One trigger waits at a time: ErrTriggerWaiting.
// ErrNotFound: the task has no record, and this process has not registered it. With
// ErrMisconfigured the task will not run, unless the client has sent the request twice (MaxRetries)
// and the rights of its user were changed between. With any other error it is not known whether the
// task will run. A request that is held up for more than 30 s has no effect.
//
// The args must be valid UTF-8 and take at most 1 KiB as a JSON array. They are kept in Redis in
// plain text.
func (s *TaskScheduler) Trigger(ctx context.Context, name string, args ...string) (id string, err error) {
	return s.triggerBy(ctx, name, s.id, args)
}

// triggerBy is Trigger on behalf of somebody.
func (s *TaskScheduler) triggerBy(ctx context.Context, name, by string, args []string) (id string, err error) {
	if err := checkTask(name); err != nil {
		return "", err
	}
	given, err := encodeArgs(args)
	if err != nil {
		return "", err
	}
	home, registered := s.home(name)
	drawn := s.secret() // not the result: a call that is left behind goes on to read it
	reply, err := ask(ctx, &s.asked, func(ctx context.Context) (store.TaskReply, error) {
		read, err := s.store.Record(ctx, name)
		if err != nil {
			return read, err
		}
		lease := cmp.Or(read.Record.Lease, home.lease) // a Control knows it by the record alone
		return s.store.Trigger(ctx, name, store.TaskTrigger{
			ID: drawn, Args: given, By: by, NotAfter: read.Now + triggerLate.Milliseconds(), For: triggerBound, Create: registered, Lease: lease,
			Runs: read.Record.TriggerRuns,
		})
	})
	if err != nil {
		return "", err
	}
	switch reply.Verdict {
	case store.TaskOK:
		home.hear(name)
		return drawn, nil
	case store.TaskAbsent:
		return "", fmt.Errorf("%w: task %q has no record", ErrNotFound, name)
	case store.TaskWaiting:
		return "", fmt.Errorf("%w: task %q", ErrTriggerWaiting, name)
	case store.TaskMoved:
		return s.triggered(ctx, name, drawn)
	default:
		return "", fmt.Errorf("%w: the trigger of task %q was held up for more than %v and has no effect", ErrUnreachable, name, triggerLate)
	}
}

// triggered looks for the run of a trigger that was perhaps taken, in the history of its task.
func (s *TaskScheduler) triggered(ctx context.Context, name, id string) (string, error) {
	runs, err := s.Runs(ctx, name, store.MaxHistory)
	if err == nil && !slices.ContainsFunc(runs, func(r RunRecord) bool { return r.Trigger == id }) {
		err = fmt.Errorf("%w: the trigger of task %q was held up while more than %d others ran: it is not known whether it has run", ErrUnreachable, name, store.KeptTriggers)
	}
	if err != nil {
		return "", err
	}
	return id, nil
}

// encodeArgs is how the arguments of a trigger are kept.
func encodeArgs(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	for i, arg := range args {
		if !utf8.ValidString(arg) {
			return "", fmt.Errorf("%w: args[%d] %.100q must be valid UTF-8", ErrMisconfigured, i, arg)
		}
	}
	text, err := json.Marshal(args)
	if err != nil {
		return "", fmt.Errorf("%w: args: %w", ErrMisconfigured, err)
	}
	if len(text) > store.MaxTriggerArgs {
		return "", fmt.Errorf("%w: args of %d bytes as JSON: at most %d are allowed", ErrMisconfigured, len(text), store.MaxTriggerArgs)
	}
	return string(text), nil
}

// decodeArgs reads them back. What is no list of texts was not written by Trigger: there are none.
func decodeArgs(text string) (args []string) {
	if text == "" || json.Unmarshal([]byte(text), &args) != nil {
		return nil
	}
	return args
}

// hint hands a hint to the tasks of a role that it may concern.
func (s *TaskScheduler) hint(role string, h store.Hint) {
	of := s.of(role)
	switch h.Type {
	case store.HintTriggered:
		of.hear(h.Task)
	case store.HintConnected:
		of.news.put(func(n *taskNews) { n.missed = true })
	}
}

// hear has the loop look at the record of a task. What the loop does not have is nobody's business
// here, and a loop that begins reads every record: of what is heard before, nothing is kept.
func (s *roleTasks) hear(name string) {
	s.mu.Lock()
	heeds := s.looping && (s.names[name] != nil || s.leaving[name] != nil)
	s.mu.Unlock()
	if !heeds {
		return
	}
	s.news.put(func(n *taskNews) {
		if n.names == nil {
			n.names = make(map[string]bool)
		}
		n.names[name] = true
	})
}

// cancelBound is for how long a leader that has missed the hint looks for a run that is to end.
const cancelBound = time.Hour

// Cancel ends the run of a task that is on, wherever its leader is, or that waits for its next
// attempt or to be run again. It works on any instance. Within a round trip, or within a minute if
// no hint arrives, the context of the run is cancelled with the cause ErrCanceled. If the task then
// returns an error, the run is recorded as RunCanceled: it is neither retried nor run again, also
// if its leader dies meanwhile. If it returns nil all the same, it has succeeded. The next slot
// runs as usual; Pause keeps it from that.
//
// Cancel does not wait for the end of the run. It names the run that it has read, so that a request
// which is held up never ends a later one. ErrNotFound: no run of the task is on.
func (s *TaskScheduler) Cancel(ctx context.Context, name string) error {
	if err := checkTask(name); err != nil {
		return err
	}
	home, registered := s.home(name)
	keep, keepFor := store.Keep(store.MaxHistory), time.Duration(0) // whoever has registered the task may keep so many
	if registered {
		keep, keepFor = home.keeps(home.find(name)), home.keepFor
	}
	reply, err := ask(ctx, &s.asked, func(ctx context.Context) (store.TaskReply, error) {
		read, err := s.store.Record(ctx, name)
		r := read.Record
		run := cmp.Or(r.Run, r.Waiting())
		if err != nil || run == "" {
			return store.TaskReply{Verdict: store.TaskMoved}, err
		}
		return s.store.Cancel(ctx, name, store.TaskCancel{Run: run, For: cancelBound, Lease: cmp.Or(r.Lease, home.lease), Keep: keep, KeepFor: keepFor})
	})
	switch {
	case err != nil:
		return err
	case reply.Verdict != store.TaskOK:
		return fmt.Errorf("%w: no run of task %q is on", ErrNotFound, name)
	}
	home.hear(name)
	return nil
}

// knownWithin is how long the leader must have led that does not know a task.
const knownWithin = store.KnownWithin

// Forget removes an orphan: the record of a task that no program registers any more, with its
// history. It works on any instance. The leader of the role that ran the task last must have led
// for a minute without having taken it over; if nobody has led for so long, Forget returns
// ErrNoLeader. If the leader, or this process, has registered the task, it returns ErrRegistered.
// An instance that does not lead may have registered it all the same, in a rolling deploy for
// instance: if it leads later, the task begins anew, as one that no leader has ever seen.
// ErrNotFound: the task has no record.
func (s *TaskScheduler) Forget(ctx context.Context, name string) error {
	if err := checkTask(name); err != nil {
		return err
	}
	home, registered := s.home(name)
	if registered {
		return fmt.Errorf("%w: task %q, by this process", ErrRegistered, name)
	}
	reply, err := ask(ctx, &s.asked, func(ctx context.Context) (store.TaskReply, error) {
		read, err := s.store.Record(ctx, name)
		if err != nil {
			return read, err
		}
		return s.store.Forget(ctx, name, store.TaskForget{Lease: cmp.Or(read.Record.Lease, home.lease), Led: knownWithin})
	})
	switch {
	case err != nil:
		return err
	case reply.Verdict == store.TaskAbsent:
		return fmt.Errorf("%w: task %q has no record", ErrNotFound, name)
	case reply.Verdict == store.TaskKnown:
		return fmt.Errorf("%w: task %q, by the leader", ErrRegistered, name)
	case reply.Verdict == store.TaskUnled:
		return fmt.Errorf("%w that has led for %v yet, so that it is not known whether task %q is registered (fix: try again when one has)", ErrNoLeader, knownWithin, name)
	}
	return nil
}

// forgetRole removes the records of the tasks of a role that is removed, by the key of its lease,
// and counts them.
func (s *TaskScheduler) forgetRole(ctx context.Context, lease string) (count int, err error) {
	names, more, err := s.names(ctx, maxNamed)
	if err != nil {
		return 0, err
	}
	records, err := ask(ctx, &s.asked, func(ctx context.Context) ([]store.TaskRecord, error) {
		_, records, _, err := s.store.Records(ctx, names)
		return records, err
	})
	if err != nil {
		return 0, err
	}
	for i, name := range names {
		if records[i].Lease != lease {
			continue
		}
		reply, err := ask(ctx, &s.asked, func(ctx context.Context) (store.TaskReply, error) {
			return s.store.Forget(ctx, name, store.TaskForget{Lease: lease, Gone: true})
		})
		switch {
		case err != nil:
			return count, err
		case reply.Verdict == store.TaskKnown:
			return count, fmt.Errorf("%w: task %q, whose role somebody leads by now", ErrRegistered, name)
		}
		count++
	}
	if more {
		return count, fmt.Errorf("%w: more than %d tasks", ErrTruncated, maxNamed)
	}
	return count, nil
}

// Unregister takes a task out of this process: no run of it starts here any more. A run that is on
// goes on to its end, and Unregister waits for it; Cancel ends it sooner. A run that waits for its
// next attempt is recorded as interrupted, so that a leader that has registered the task goes on
// with it. If ctx is done first, Unregister returns its cause, and the task is out all the same. A
// task, leader work or a function of Do that passes its own context does not wait.
//
// After that the name may be registered again. The record of the task stays in Redis, with its
// slots and its history, and other instances that have registered it run it when they lead. If none
// has, it is an orphan: the leader of a later term may Forget it. ErrNotFound: this process has not
// registered the task.
func (s *TaskScheduler) Unregister(ctx context.Context, name string) error {
	if err := checkTask(name); err != nil {
		return err
	}
	home, there := s.home(name)
	if !there {
		return notRegistered(name)
	}
	ended, there := home.remove(name)
	if !there { // somebody else was faster
		return notRegistered(name)
	}
	if _, inside := TermFrom(ctx); inside || ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Reschedule gives a registered task another Schedule, at once. It is as if the task had been
// registered with it: the next slot is computed anew, a slot that is due under the old one is a
// matter of Task.Missed, and a run that is on goes on. With Every, the next slot of a task that has
// run is one interval after its last slot: now, if that has passed. It applies to this process. The
// leader's schedule counts, so every instance should do the same, or the next leader goes back to
// its own. A Schedule that hangs, or has failed, can be replaced too. ErrNotFound: this process has
// not registered the task. A bad Schedule is an error that matches ErrMisconfigured, and changes
// nothing.
func (s *TaskScheduler) Reschedule(name string, to Schedule) error {
	if err := checkTask(name); err != nil {
		return err
	}
	for { // again, if it was rescheduled or registered anew while the schedule was asked
		home, _ := s.home(name)
		was := home.find(name)
		if was == nil {
			return notRegistered(name)
		}
		var c checker
		t := was.Task
		t.Schedule = to
		text := t.complete(&c, &home.schedules, home.grace)
		if err := c.err(); err != nil {
			return err
		}
		if home.replace(was, &registered{Task: t, text: text, spec: schedule.Hash(text)}) {
			return nil
		}
	}
}

func notRegistered(name string) error {
	return fmt.Errorf("%w: task %q is not registered by this process", ErrNotFound, name)
}
