package tenure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const (
	virtualEvery = 10 * time.Second
	virtualTask  = "slots"
)

// virtualTasks is what the checker knows of the runs of the task. The mutex of the checker guards it.
type virtualTasks struct {
	running *virtualLife // whose run is on; nil: none
	runs    int
	slot    time.Time // of the last run that began
}

// task is due every ten seconds and takes up to two; it honours its context, and fails now and then.
func (l *virtualLife) task() Task {
	random := virtualRand(l.seed, l.name+" task", l.number) // a task never overlaps itself
	return Task{Name: virtualTask, Schedule: Every(virtualEvery), Retry: RetryPolicy{Attempts: 2}, Run: func(ctx context.Context, run TaskRun) error {
		l.check.taskBegins(ctx, l, run)
		defer l.check.taskEnds(l)
		work := time.NewTimer(time.Duration(random.Int64N(int64(2 * time.Second))))
		defer work.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-work.C:
		}
		if random.IntN(10) == 0 {
			return fmt.Errorf("the work of %v failed", run.Slot)
		}
		return nil
	}}
}

// taskBegins holds the start of a run against P10.
func (c *virtualChecker) taskBegins(ctx context.Context, l *virtualLife, run TaskRun) {
	if l.dead.Load() {
		return
	}
	c.w.note(l.name, "task", fmt.Sprint(run.Slot.UnixMilli(), " attempt ", run.Attempt), run.Token)
	now := c.w.redis.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.tasks
	if term, ok := TermFrom(ctx); !ok || !term.Valid() || term.Token != run.Token {
		c.failed("P10: a run of %s began in a term that is over", l.name)
	}
	if t.running != nil && !t.running.dead.Load() {
		c.failed("P10: a run of %s began while one of %s was on", l.name, t.running.name)
	}
	if run.Slot.After(now) {
		c.failed("P10: the slot %v began at %v", run.Slot, now)
	}
	if c.w.setup.kept && run.Slot.Before(t.slot) {
		c.failed("P10: the slot %v began after %v", run.Slot, t.slot)
	}
	t.running, t.slot = l, run.Slot
	t.runs++
}

func (c *virtualChecker) taskEnds(l *virtualLife) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks.running == l {
		c.tasks.running = nil
	}
}

// virtualRunRecord is an entry of the history in Redis.
type virtualRunRecord struct {
	run, slot, started, status string
}

// checkTasks holds the history in Redis against P10, where Redis has kept it: no slot succeeded twice, and none is missing but
// where it was overtaken, by policy, by a later one that was due already.
func (w *virtualWorld) checkTasks() {
	var history []virtualRunRecord
	w.redis.Do(func(m *miniredis.Miniredis) {
		stream, _ := m.Stream("tenure:task:" + virtualTask + ":runs")
		for _, entry := range stream {
			field := func(name string) string {
				if at := slices.Index(entry.Values, name); at >= 0 {
					return entry.Values[at+1]
				}
				return ""
			}
			history = append(history, virtualRunRecord{run: field("run"), slot: field("slot"), started: field("started"), status: field("status")})
		}
	})
	if len(history) == 0 {
		w.check.fail("P10: no run was ever finished")
		return
	}
	if !w.setup.kept {
		return
	}
	every := virtualEvery.Milliseconds()
	latest := every // a claim is for the latest slot that is due; the network may hold it up
	if !w.setup.calm {
		latest += 10_000
	}
	succeeded := map[string]string{}
	var last int64
	for _, r := range history {
		if r.status == string(RunSucceeded) {
			if before, twice := succeeded[r.slot]; twice {
				w.check.fail("P10: slot %s succeeded in run %s and in run %s", r.slot, before, r.run)
			}
			succeeded[r.slot] = r.run
		}
		var slot, started int64
		_, _ = fmt.Sscan(r.slot, &slot)
		_, _ = fmt.Sscan(r.started, &started)
		if last != 0 && slot > last {
			switch {
			case (slot-last)%every != 0:
				w.check.fail("P10: slot %d is not in step with %d", slot, last)
			case started-slot >= latest:
				w.check.fail("P10: slot %d was claimed at %d: a later one was due", slot, started)
			case slot-last > every && w.setup.calm:
				w.check.fail("P10: after slot %d came %d: a slot was lost", last, slot)
			}
		}
		last = max(last, slot)
	}
	now := w.redis.Now().UnixMilli()
	if now-last > (virtualEvery + 4*time.Second).Milliseconds() {
		w.check.fail("P10: the last slot that was run is %d, now it is %d", last, now)
	}
}
