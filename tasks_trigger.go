package tenure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tenure-go/tenure/internal/store"
)

const (
	triggerBound = time.Hour        // for which a trigger waits for a leader
	triggerLate  = 30 * time.Second // after which a trigger that is held up on its way has no effect
)

// Trigger has a task run once, as soon as its leader can, also if it is not due. It may be called
// on any instance. The leader of the task's role runs it within a round trip, or within a minute if
// no hint arrives; while another run of the task is on, after that. The run gets args
// (TaskRun.Args), as does every retry and rerun of it. Its slots stay as they are, and come due
// during the run as Task.Overlap says. A trigger that waits comes before a slot that does, but
// after a run that was triggered the slot comes first. If the task is paused, the run waits for
// Resume, for up to a minute more. If nobody leads, it waits in Redis for a leader. After an hour a
// trigger that still waits is dropped: EventTaskTriggerExpired.
//
// Trigger returns the ID of the trigger (TaskRun.Trigger, RunRecord.Trigger) and does not wait for
// the run. Each trigger leads to one run, if Redis keeps the record. What becomes of a run whose
// leader dies is a matter of Task.Abandoned. One trigger waits at a time: ErrTriggerWaiting.
// ErrNotFound: the task has no record, and this process has not registered it. With any other error
// it is not known whether the task will run, unless that is ErrMisconfigured; a request that is
// held up for more than 30 s has no effect.
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
	id = s.secret()
	reply, err := ask(ctx, &s.asked, func(ctx context.Context) (store.TaskReply, error) {
		read, err := s.store.Record(ctx, name)
		if err != nil {
			return read, err
		}
		lease := cmp.Or(read.Record.Lease, home.lease) // a Control knows it by the record alone
		return s.store.Trigger(ctx, name, store.TaskTrigger{
			ID: id, Args: given, By: by, NotAfter: read.Now + triggerLate.Milliseconds(), For: triggerBound, Create: registered, Lease: lease,
			Runs: read.Record.TriggerRuns,
		})
	})
	if err != nil {
		return "", err
	}
	switch reply.Verdict {
	case store.TaskOK:
		home.hear(name)
		return id, nil
	case store.TaskAbsent:
		return "", fmt.Errorf("%w: task %q has no record", ErrNotFound, name)
	case store.TaskWaiting:
		return "", fmt.Errorf("%w: task %q", ErrTriggerWaiting, name)
	case store.TaskMoved:
		return s.triggered(ctx, name, id)
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

// home are the tasks of the role that a task is registered for, or those of the default role.
func (s *TaskScheduler) home(name string) (role *roleTasks, registered bool) {
	for _, role := range s.all() {
		if role.find(name) != nil {
			return role, true
		}
	}
	return s.roleTasks, false
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

// hint takes a hint from the subscription.
func (s *TaskScheduler) hint(h store.Hint) {
	for _, role := range s.all() {
		switch {
		case !h.All && h.Channel != store.LeaseEvents(role.lease):
		case h.Type == store.HintTriggered:
			role.hear(h.Task)
		case h.Type == store.HintConnected:
			role.news.put(func(n *taskNews) { n.missed = true })
		}
	}
}

// hear has the loop look at the record of a task. What is not registered is nobody's business here.
func (s *roleTasks) hear(name string) {
	if s.find(name) == nil {
		return
	}
	s.news.put(func(n *taskNews) {
		if n.names == nil {
			n.names = make(map[string]bool)
		}
		n.names[name] = true
	})
}
