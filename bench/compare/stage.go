//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/bench/internal/contender"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	leaseTTL = 3 * time.Second
	// storeAge is how old a redis-server is before a scenario begins: tenure grants nothing on a
	// younger one.
	storeAge = 5
	// startBound bounds what must happen before a scenario can begin.
	startBound = 20 * time.Second
	// stopBound is how long a candidate may take to end; one that does not is left behind.
	stopBound = 10 * time.Second
)

// stage is one run of one scenario: a store, and two candidates that reach it each through a proxy
// of its own.
type stage struct {
	redistest.TB
	contender contender.Contender
	store     contender.Store
	proxies   [2]*redistest.Proxy
	lines     [2]*line
	stops     [2]func()
	requests  [2]atomic.Int64
	phase     time.Duration // random, up to one renew interval: where in it the fault falls
}

func newStage(t redistest.TB, c contender.Contender, phase time.Duration) *stage {
	s := &stage{TB: t, contender: c, store: c.NewStore(t), phase: phase}
	for i := range s.proxies {
		s.proxies[i] = redistest.NewProxy(t, s.store.Addr())
		s.lines[i] = new(line)
	}
	return s
}

func (s *stage) id(i int) string { return string(rune('a' + i)) }

func (s *stage) config(i int) contender.Config {
	return contender.Config{Addr: s.proxies[i].Addr(), ID: s.id(i), TTL: leaseTTL}
}

// age waits until the store is old enough for every contender.
func (s *stage) age() { s.store.WaitAge(storeAge) }

// join connects a candidate and lets it campaign.
func (s *stage) join(i int) { s.connect(i, s.config(i))() }

// connect connects a candidate, which campaigns when the returned function is called.
func (s *stage) connect(i int, cfg contender.Config) (campaign func()) {
	ctx, cancel := context.WithCancel(context.Background())
	candidate, err := s.contender.New(ctx, cfg)
	if err != nil {
		cancel()
		s.Fatalf("connect %s: %v", s.contender.Name, err)
	}
	return func() {
		ended, stopWatch := make(chan struct{}), make(chan struct{})
		var watching sync.WaitGroup
		go func() { // ends with ctx; stop waits for it, not for ever
			defer close(ended)
			candidate.Run(ctx)
		}()
		watching.Go(func() { watch(s.lines[i], candidate, stopWatch) }) // ends with stopWatch, in stop
		s.stops[i] = sync.OnceFunc(func() {
			cancel()
			select {
			case <-ended:
			case <-time.After(stopBound):
			}
			close(stopWatch)
			watching.Wait()
		})
		s.Cleanup(s.stops[i])
	}
}

// joinChild is join in a process of its own, which can be killed and frozen.
func (s *stage) joinChild(i int) *redistest.Child {
	cfg := s.config(i)
	child := redistest.StartChild(s.TB, childName,
		envContender+"="+s.contender.Name, envAddr+"="+cfg.Addr, envID+"="+cfg.ID)
	var reading sync.WaitGroup
	reading.Go(func() { // ends with the child's output, at the latest when the child is killed
		for text := range child.Lines() {
			if at, b, err := parseReport(text); err == nil {
				s.lines[i].add(at, b)
			}
		}
	})
	s.Cleanup(func() {
		child.Kill(s.TB)
		reading.Wait()
	})
	return child
}

// lead has the first candidate lead and the second follow, for a while.
func (s *stage) lead() {
	s.age()
	s.join(0)
	s.must("first leads", func() bool { return both(s.lines[0].last()) })
	s.join(1)
	s.wait(leaseTTL/2 + s.phase)
}

// until looks at a condition again and again.
func (s *stage) until(bound time.Duration, cond func() bool) bool {
	for end := time.Now().Add(bound); ; s.wait(lookInterval) {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func (s *stage) must(what string, cond func() bool) {
	if !s.until(startBound, cond) {
		s.Fatalf("%s: not within %v", what, startBound)
	}
}

func (s *stage) wait(d time.Duration) { time.Sleep(d) }

func both(b contender.Belief) bool    { return b.Own && b.Work }
func neither(b contender.Belief) bool { return !b.Own && !b.Work }

// overlaps returns for how long both believed to lead since a time, by each of the two beliefs.
func (s *stage) overlaps(from time.Time) readings {
	now := time.Now()
	return readings{
		overlapOwn:  ms(overlap(s.lines[0].spans(own, now), s.lines[1].spans(own, now), from)),
		overlapWork: ms(overlap(s.lines[0].spans(work, now), s.lines[1].spans(work, now), from)),
	}
}

// endAfter returns when a belief of the first candidate, held at a time, ended; now if it did not.
func (s *stage) endAfter(is belief, at time.Time) time.Time {
	for _, x := range s.lines[0].spans(is, time.Now()) {
		if x.to.After(at) && !x.from.After(at) {
			return x.to
		}
	}
	return at
}

// startAfter returns when a candidate first led after a time.
func (s *stage) startAfter(i int, at time.Time) (time.Time, bool) {
	for _, x := range s.lines[i].spans(own, time.Now()) {
		if x.from.After(at) {
			return x.from, true
		}
	}
	return time.Time{}, false
}

const (
	childName    = "candidate"
	envContender = "TENURE_COMPARE_CONTENDER"
	envAddr      = "TENURE_COMPARE_ADDR"
	envID        = "TENURE_COMPARE_ID"
)

// stall is a pause between two looks that shows that the process was frozen: the look after it is
// reported, changed or not.
const stall = 500 * time.Millisecond

func report(at time.Time, b contender.Belief) string {
	return fmt.Sprintf("belief %d %t %t", at.UnixNano(), b.Own, b.Work)
}

func parseReport(text string) (time.Time, contender.Belief, error) {
	var b contender.Belief
	fields := strings.Fields(text)
	if len(fields) != 4 || fields[0] != "belief" {
		return time.Time{}, b, fmt.Errorf("not a report: %q", text)
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	b.Own, b.Work = fields[2] == "true", fields[3] == "true"
	return time.Unix(0, ns), b, err
}
