package tenure

import (
	"context"
	"fmt"
	"time"
)

// virtualTask is a task of every coordinator of a world, in virtual time.
type virtualTask struct {
	name    string
	every   time.Duration
	work    time.Duration // a run takes up to so long
	missed  MissedPolicy
	failing int // one run in so many fails
}

// virtualTaskState is what the checker knows of a task. The mutex of the checker guards it.
type virtualTaskState struct {
	virtualTask
	running     *virtualLife // whose run is on; nil: none
	runs        int
	interrupted int
	slot        time.Time // of the last run that began
	began       time.Time // when that was, by Redis's clock
}

// task honours its context, and fails now and then.
func (l *virtualLife) task(t virtualTask) Task {
	random := virtualRand(l.seed, l.name+" "+t.name, l.number) // a task never overlaps itself
	return Task{
		Name: t.name, Schedule: Every(t.every), Missed: t.missed, Retry: RetryPolicy{Attempts: 2},
		Run: func(ctx context.Context, run TaskRun) error {
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
func (c *virtualChecker) taskBegins(ctx context.Context, l *virtualLife, run TaskRun) {
	if l.dead.Load() {
		return
	}
	c.w.note(l.name, "run "+run.Task, fmt.Sprint(run.Slot.UnixMilli(), " attempt ", run.Attempt), run.Token)
	now := c.w.redis.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tasks[run.Task]
	if term, ok := TermFrom(ctx); !ok || !term.Valid() || term.Token != run.Token {
		c.failed("P10: a run of %s began in %s in a term that is over", run.Task, l.name)
	}
	if t.running != nil && !t.running.dead.Load() {
		c.failed("P10: a run of %s began in %s while one in %s was on", run.Task, l.name, t.running.name)
	}
	if run.Slot.After(now) {
		c.failed("P10: slot %v of %s began at %v", run.Slot, run.Task, now)
	}
	if c.w.setup.kept && run.Slot.Before(t.slot) {
		c.failed("P10: slot %v of %s began after %v", run.Slot, run.Task, t.slot)
	}
	t.running, t.slot, t.began = l, run.Slot, now
	t.runs++
}

func (c *virtualChecker) taskEnds(ctx context.Context, l *virtualLife, run TaskRun) {
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
		c.vacant = c.w.net.Elapsed()
	}
}
