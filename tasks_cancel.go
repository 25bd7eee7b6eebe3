package tenure

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

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
	home, _ := s.home(name)
	reply, err := ask(ctx, &s.asked, func(ctx context.Context) (store.TaskReply, error) {
		read, err := s.store.Record(ctx, name)
		r := read.Record
		run := r.Run
		if run == "" && (r.Status == store.RunInterrupted || r.Status == store.RunReturned) {
			run = r.Done
		}
		if err != nil || run == "" {
			return store.TaskReply{Verdict: store.TaskMoved}, err
		}
		return s.store.Cancel(ctx, name, store.TaskCancel{Run: run, For: cancelBound, Lease: cmp.Or(r.Lease, home.lease), Keep: home.keeps(home.find(name)), KeepFor: home.keepFor})
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
