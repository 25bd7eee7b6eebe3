package tenure

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// checkRegistry holds a calm world against P9: everybody is registered and counted, one who dies is
// swept in bounded time and nobody else is, and is taken back. It sleeps in virtual time.
func (w *virtualWorld) checkRegistry() {
	leader := w.leader()
	if leader == nil {
		return // P7 says so
	}
	w.counted(leader, len(w.instances))
	victim := w.instances[(leader.number+1)%len(w.instances)]
	victim.crash()
	options := w.pace.registry
	bound := options.DownAfter + options.DownAfter/50 + 2*options.SweepInterval + options.BeatInterval/10 // the clocks' rates may differ
	w.await(bound, func() bool { return !w.registered(victim) }, "P9: %s died and was not swept within %v", victim.name, bound)
	w.counted(leader, len(w.instances)-1)
	victim.boot()
	bound = options.BeatInterval
	w.await(bound, func() bool { return w.registered(victim) }, "P9: %s came back and was not registered within %v", victim.name, bound)
	time.Sleep(options.BeatInterval)
	w.counted(leader, len(w.instances))
}

// await waits for done, or keeps a violation after bound.
func (w *virtualWorld) await(bound time.Duration, done func() bool, wrong string, args ...any) {
	for end := w.net.Elapsed() + bound; !done(); time.Sleep(bound / 500) {
		if w.net.Elapsed() >= end {
			w.check.fail(wrong, args...)
			return
		}
	}
}

// registered looks past the network.
func (w *virtualWorld) registered(instance *virtualInstance) (there bool) {
	w.redis.Do(func(m *miniredis.Miniredis) { there = m.HGet("tenure:instances", instance.name) != "" })
	return there
}

// counted asks one process for its counts: so many are there, and all of them active.
func (w *virtualWorld) counted(by *virtualInstance, want int) {
	life := by.life.Load()
	if life == nil {
		return
	}
	got, err := life.registry.Counts(context.Background())
	if err != nil || got != (Counts{Total: want, Active: want}) {
		w.check.fail("P9: %s counts %+v (%v), where %d instances are alive", by.name, got, err, want)
	}
}
