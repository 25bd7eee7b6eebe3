package tenure

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// knownWithin is how long after the begin of its term a leader has opened the record of each task
// that it has registered.
const knownWithin = time.Minute

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
		return fmt.Errorf("%w: nobody has led for %v, so that nobody knows whether task %q is registered", ErrNoLeader, knownWithin, name)
	}
	return nil
}
