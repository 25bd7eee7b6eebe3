// Package tenureasynq has the schedulers of asynq (github.com/hibiken/asynq) enqueue on the leader
// only. asynq itself runs one scheduler for each process that starts one, and each of them enqueues
// every periodic task.
//
//	err := coordinator.Run(ctx, tenureasynq.Lead(func(context.Context) (tenureasynq.Scheduler, error) {
//		scheduler := asynq.NewScheduler(redisOpt, nil)
//		_, err := scheduler.Register("@hourly", asynq.NewTask("report", nil))
//		return scheduler, err
//	}))
package tenureasynq

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/tenure-go/tenure"
)

// Scheduler is what runs in a term: an *asynq.Scheduler or an *asynq.PeriodicTaskManager.
type Scheduler interface {
	Start() error
	Shutdown()
}

var (
	_ Scheduler = (*asynq.Scheduler)(nil)
	_ Scheduler = (*asynq.PeriodicTaskManager)(nil)
)

// Lead is leader work that runs a scheduler for as long as the term lasts: register it with
// ElectionOptions.Lead, or hand it to Coordinator.Run. build makes and fills a new scheduler in
// each term, since none can be started twice; ctx is that of the term. If build or Start fails, the
// term fails with that error, and this process stands back for a while.
//
// asynq closes the Redis client that it has made for a scheduler only if that has started: a term
// whose build or Start fails leaves one open, with two goroutines. If that may happen again and
// again, as with an *asynq.PeriodicTaskManager whose provider may be away, give each scheduler one
// client of yours (RedisUniversalClient, asynq.NewSchedulerFromRedisClient). asynq then logs as an
// error at each Shutdown that it does not close that, which is harmless.
//
// Shutdown waits for what is being enqueued, so that a lease is not released before. It ignores the
// context, and asks Redis once for each entry: one that is away, or hangs, makes it last for the
// time-outs of asynq's client as many times. asynq keeps its times in the process: "@every 1h"
// counts from the beginning of the term, so that terms of less than an hour never enqueue it. A
// slot that is due while nobody leads is lost. Both leaders may enqueue one at a hand-over, and one
// that passed while the process of a leader stood still: a scheduler that wakes asks nobody. If
// that matters give its task asynq.TaskID or asynq.Unique, or enqueue it from a task of tenure,
// whose slots live in Redis and are claimed once.
func Lead(build func(ctx context.Context) (Scheduler, error)) tenure.LeadFunc {
	return func(ctx context.Context, _ tenure.Term) error {
		s, err := build(ctx)
		if err != nil {
			return fmt.Errorf("tenureasynq: building the scheduler: %w", err)
		}
		if err := s.Start(); err != nil {
			return fmt.Errorf("tenureasynq: starting the scheduler: %w", err)
		}
		defer s.Shutdown()
		<-ctx.Done()
		return nil
	}
}
