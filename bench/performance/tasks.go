//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/bench/internal/contender"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	manyTasks  = 10_000
	tasksEvery = 10 * time.Second
	tasksApart = tasksEvery / manyTasks // between the due times of two tasks
	tasksFor   = 3 * tasksEvery
	elected    = "gocron, elector"
	locked     = "gocron, locker"
)

// measureTasks has a process of its own run 10,000 tasks with each library.
func measureTasks(o options, p *page) error {
	who := []string{floor, "tenure", elected, locked}
	t := p.table("10,000 tasks in one process", "Each is due every ten seconds, one a millisecond, and does nothing; measured from five seconds after the start. The floor is a timer and a goroutine a run. tenure claims each run in Redis "+
		"before it begins, and notes there how it ended. gocron with an elector asks a variable whether this process leads, for which redislock renews a lease; with a locker it takes a lock of redislock for each run. "+
		"Late is behind the due time; gocron's due times begin anew with each process.", who...)
	return redistest.Do(func(tb redistest.TB) {
		for range o.rounds {
			for _, who := range who {
				if err := redistest.Do(func(tb redistest.TB) { runMany(tb, t, who) }); err != nil {
					tb.Fatalf("%s: %v", who, err)
				}
			}
		}
	})
}

func runMany(tb redistest.TB, t *table, who string) {
	u, spent := measureChild(tb, tasksChild, who, tasksFor)
	if due := int(tasksFor / tasksApart); u.Runs < due/2 {
		tb.Fatalf("%d runs, where %d were due", u.Runs, due)
	}
	t.row("processor, % of a core", "%.1f").add(who, 100*u.CPU.Seconds()/tasksFor.Seconds())
	if who != floor {
		t.row("Redis, µs a run", "%.1f").add(who, micro(spent)/float64(u.Runs))
	}
	for i, name := range []string{"late, median, ms", "late, 99 %, ms", "late, longest, ms"} {
		t.row(name, "%.1f").add(who, micro(u.Late[i])/1000)
	}
	t.row("memory, MB", "%.1f").add(who, float64(u.Heap)/(1<<20))
}

// runTasks begins all tasks, and returns when each of them has run twice, on average.
func runTasks(ctx context.Context, who, addr string, late *lateness) error {
	start := time.Now().Add(tasksEvery)
	// behind is called by run n of the task, whose due times are a grid from its start on.
	behind := func(n int) {
		late.add(time.Since(start.Add(time.Duration(n)*tasksApart)) % tasksEvery)
	}
	var err error
	switch who {
	case floor:
		go func() { // lives as long as the process
			for n := 0; ; n++ {
				time.Sleep(time.Until(start.Add(time.Duration(n) * tasksApart)))
				go behind(n)
			}
		}()
	case "tenure":
		err = scheduleTenure(ctx, redis.NewClient(&redis.Options{Addr: addr}), late)
	default:
		err = scheduleGocron(ctx, who, addr, start, behind)
	}
	for err == nil && late.runs() < 2*manyTasks {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func scheduleTenure(ctx context.Context, client *redis.Client, late *lateness) error {
	c, err := tenure.New(client, tenure.Options{
		Namespace: "bench", InstanceID: "bench", Election: tenure.ElectionOptions{Safety: tenure.SafetyOptions{RestartGuard: -1, EmptyHistoryWait: -1}},
	})
	if err != nil {
		return err
	}
	for n := range manyTasks {
		err := c.Tasks().Register(tenure.Task{
			Name: fmt.Sprint("task-", n), Schedule: tenure.Every(tasksEvery), InitialDelay: tasksEvery + time.Duration(n)*tasksApart,
			Run: func(_ context.Context, run tenure.TaskRun) error {
				late.add(time.Since(run.Slot))
				return nil
			},
		})
		if err != nil {
			return err
		}
	}
	go func() { // lives as long as the process
		if err := c.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	return nil
}

// scheduleGocron gives the jobs their names and due times as gocron's documentation has it for
// several processes.
func scheduleGocron(ctx context.Context, who, addr string, start time.Time, behind func(n int)) error {
	var option gocron.SchedulerOption
	switch who {
	case elected:
		candidate, err := contender.Redislock().New(ctx, contender.Config{Addr: addr, ID: "bench", TTL: rolesTTL})
		if err != nil {
			return err
		}
		go candidate.Run(ctx) // lives as long as the process
		option = gocron.WithDistributedElector(elector{candidate})
	case locked:
		option = gocron.WithDistributedLocker(locker{redislock.New(redis.NewClient(&redis.Options{Addr: addr}))})
	default:
		return fmt.Errorf("no library %q", who)
	}
	scheduler, err := gocron.NewScheduler(option)
	if err != nil {
		return err
	}
	for n := range manyTasks {
		at := start.Add(time.Duration(n) * tasksApart)
		_, err := scheduler.NewJob(gocron.DurationJob(tasksEvery), gocron.NewTask(func() { behind(n) }),
			gocron.WithName(fmt.Sprint("task-", n)), gocron.WithStartAt(gocron.WithStartDateTime(at)))
		if err != nil {
			return err
		}
	}
	scheduler.Start()
	return nil
}

// elector lets jobs run while a candidate believes that it leads.
type elector struct{ contender.Candidate }

var errNotLeader = errors.New("another process leads")

// IsLeader implements [gocron.Elector].
func (e elector) IsLeader(context.Context) error {
	if !e.Belief().Own {
		return errNotLeader
	}
	return nil
}

// locker takes a lock for each run.
type locker struct{ locks *redislock.Client }

// Lock implements [gocron.Locker].
func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	held, err := l.locks.Obtain(ctx, key, rolesTTL, nil)
	if err != nil {
		return nil, err
	}
	return lock{held}, nil
}

type lock struct{ *redislock.Lock }

// Unlock implements [gocron.Lock].
func (l lock) Unlock(ctx context.Context) error { return l.Release(ctx) }
