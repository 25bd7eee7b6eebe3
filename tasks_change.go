package tenure

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/internal/schedule"
)

// Unregister takes a task out of this process: no run of it starts here any more. A run that is on
// goes on to its end, and Unregister waits for it; Cancel ends it sooner. A run that waits for its
// next attempt is recorded as interrupted, so that a leader that has registered the task goes on
// with it. If ctx is done first, Unregister returns its cause, and the task is out all the same. A
// task, or leader work, that passes its own context does not wait.
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
// matter of Task.Missed, and a run that is on goes on. It applies to this process. The leader's
// schedule counts, so every instance should do the same, or the next leader goes back to its own. A
// Schedule that hangs, or has failed, can be replaced too. ErrNotFound: this process has not
// registered the task. A bad Schedule is an error that matches ErrMisconfigured, and changes
// nothing.
func (s *TaskScheduler) Reschedule(name string, to Schedule) error {
	if err := checkTask(name); err != nil {
		return err
	}
	home, there := s.home(name)
	if !there {
		return notRegistered(name)
	}
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
	if !home.replace(&registered{Task: t, text: text, spec: schedule.Hash(text)}) {
		return notRegistered(name)
	}
	return nil
}

func notRegistered(name string) error {
	return fmt.Errorf("%w: task %q is not registered by this process", ErrNotFound, name)
}
