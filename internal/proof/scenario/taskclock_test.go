//go:build unix

package scenario

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
)

// Redis's clock is set back by ten minutes, and then ahead by an hour, on a real server: the
// leader's tasks go on, each slot once. A slot that comes again with the clock would be another
// one.
func TestTasksGoOnWhenTheClockOfRedisIsSet(t *testing.T) {
	s := newParallelStage(t, 4*time.Second)
	server, clock := s.withClock()
	var mu sync.Mutex
	runs, slots := make(map[string]int), make(map[string]int)
	count := func(name string) int {
		mu.Lock()
		defer mu.Unlock()
		return runs[name]
	}
	opts := tenure.Options{Namespace: namespace, InstanceID: "i", Election: tenure.ElectionOptions{LeaseTTL: s.ttl}}
	young(&opts)
	c, err := tenure.New(server.Client(t), opts)
	s.must(err)
	tasks := map[string]tenure.Schedule{"fast": tenure.Every(300 * time.Millisecond), "slow": tenure.Every(2 * time.Second)}
	for name, schedule := range tasks {
		s.must(c.Tasks().Register(tenure.Task{Name: name, Schedule: schedule, Run: func(_ context.Context, run tenure.TaskRun) error {
			mu.Lock()
			defer mu.Unlock()
			runs[name]++
			slots[fmt.Sprint(name, " ", run.Slot.UnixMilli())]++
			return nil
		}}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }() // awaited below
	goOn := func(when string) {
		began := time.Now()
		fast, slow := count("fast"), count("slow")
		for count("fast") <= fast+5 || count("slow") <= slow+2 {
			if time.Since(began) > 3*patience { // a step ahead ends the lease too, and a busy machine is slow to win the next
				t.Fatalf("the tasks do not go on %s: %d and %d runs, %+v", when, count("fast")-fast, count("slow")-slow, c.Elector().Status())
			}
			<-time.After(look)
		}
		t.Logf("both tasks have gone on %v: 5 and 2 runs in %v", when, round(time.Since(began)))
	}
	goOn("at first")
	for _, step := range []time.Duration{-10 * time.Minute, -time.Hour, time.Hour} {
		clock.Step(t, step)
		goOn(fmt.Sprint("after a step of ", step))
	}
	cancel()
	s.must(<-ran)
	mu.Lock()
	defer mu.Unlock()
	for slot, n := range slots {
		if n > 1 {
			t.Errorf("slot %s ran %d times", slot, n)
		}
	}
}
