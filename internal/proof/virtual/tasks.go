package virtual

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure"
)

// task is a task of every coordinator of a world, in virtual time.
type task struct {
	name    string
	every   time.Duration
	work    time.Duration // a run takes up to so long
	missed  tenure.MissedPolicy
	failing int // one run in so many fails
}

// taskState is what the checker knows of a task. The mutex of the checker guards it.
type taskState struct {
	task
	running     *life // whose run is on; nil: none
	runs        int
	interrupted int
	slot        time.Time // of the last run that began
	began       time.Time // when that was, by Redis's clock
}

// task honours its context, and fails now and then.
func (l *life) task(t task) tenure.Task {
	random := newRand(l.seed, l.name+" "+t.name, l.number) // a task never overlaps itself
	return tenure.Task{
		Name: t.name, Schedule: tenure.Every(t.every), Missed: t.missed, Retry: tenure.RetryPolicy{Attempts: 2},
		Run: func(ctx context.Context, run tenure.TaskRun) error {
			l.check.taskBegins(ctx, l, run)
			defer l.check.taskEnds(ctx, l, run)
			work := time.NewTimer(time.Duration(random.Int64N(int64(t.work))))
			defer work.Stop()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-work.C:
			}
			if random.IntN(t.failing) == 0 {
				return fmt.Errorf("the work of %v failed", run.Slot)
			}
			return nil
		},
	}
}

// taskBegins holds the start of a run against P10.
func (c *checker) taskBegins(ctx context.Context, l *life, run tenure.TaskRun) {
	if l.dead.Load() {
		return
	}
	c.cluster.note(l.name, "run "+run.Task, fmt.Sprint(run.Slot.UnixMilli(), " attempt ", run.Attempt), run.Token)
	now := c.cluster.redis.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tasks[run.Task]
	if term, ok := tenure.TermFrom(ctx); !ok || !term.Valid() || term.Token != run.Token {
		c.failed("P10: a run of %s began in %s in a term that is over", run.Task, l.name)
	}
	if t.running != nil && !t.running.dead.Load() {
		c.failed("P10: a run of %s began in %s while one in %s was on", run.Task, l.name, t.running.name)
	}
	if run.Slot.After(now) {
		c.failed("P10: slot %v of %s began at %v", run.Slot, run.Task, now)
	}
	if c.cluster.setup.kept && run.Trigger == "" && run.Slot.Before(t.slot) {
		c.failed("P10: slot %v of %s began after %v", run.Slot, run.Task, t.slot)
	}
	if c.runOfATrigger(run); run.Trigger == "" {
		t.slot = run.Slot
	}
	t.running, t.began = l, now
	t.runs++
}

func (c *checker) taskEnds(ctx context.Context, l *life, run tenure.TaskRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tasks[run.Task]
	if t.running == l {
		t.running = nil
	}
	if l.dead.Load() {
		return
	}
	if ctx.Err() != nil {
		t.interrupted++
	}
	if c.vacant != 0 && c.token == run.Token { // the hand-over begins when the last run of the term has ended
		c.vacant = c.cluster.net.Elapsed()
	}
}
