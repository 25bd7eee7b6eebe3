//go:build unix

package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/bench/internal/contender"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

func TestMain(m *testing.M) {
	redistest.ChildMain(childName, candidateMain)
	if redistest.RunChild() {
		return
	}
	redistest.Silence()
	os.Exit(m.Run())
}

func needRedis(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts redis-server and takes real seconds")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
}

// withAll runs fn with each contender that is named (none: with all), at once: they wait, they do
// not work.
func withAll(t *testing.T, fn func(*stage), names ...string) {
	t.Helper()
	needRedis(t)
	var all sync.WaitGroup
	for _, c := range contender.All() {
		if len(names) > 0 && !slices.Contains(names, c.Name) {
			continue
		}
		all.Go(func() { // bounded by the bounds of its stage; waited for below
			if err := redistest.Do(func(tb redistest.TB) { fn(newStage(tb, c, 0)) }); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		})
	}
	all.Wait()
}

// Each contender leads, gives its lease back when it is told to stop, and the next one leads.
func TestContendersLeadAndRelease(t *testing.T) {
	t.Parallel()
	withAll(t, func(s *stage) {
		s.warm()
		s.join(0)
		s.must("first leads", func() bool { return both(s.lines[0].last()) })
		if s.store.Expiry().IsZero() {
			s.Errorf("it leads and the store knows of no lease")
		}
		s.stops[0]()
		if !neither(s.lines[0].last()) {
			s.Errorf("it was stopped and believes to lead")
		}
		s.must("the lease is given back", func() bool { return s.store.Expiry().IsZero() })
	})
}

// A store that is far away keeps no contender from leading.
func TestContendersLeadFromAfar(t *testing.T) {
	t.Parallel()
	withAll(t, func(s *stage) {
		s.proxies[1].DelayReplies(100*time.Millisecond, 0)
		s.warm()
	})
}

// The scenario finds belief and overlap: redislock's extend loop knows of no deadline, tenure does.
func TestPartitionTellsApart(t *testing.T) {
	t.Parallel()
	withAll(t, func(s *stage) {
		r := partition(s)
		if safe := r[overlapOwn] == 0 && r[overlapWork] == 0; safe != (s.contender.Name == "tenure") {
			s.Errorf("two holders at once: %v", r)
		}
	}, "tenure", "redislock")
}

func TestOverlap(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	a := []span{{at(0), at(4)}, {at(6), at(9)}}
	b := []span{{at(3), at(7)}}
	if got := overlap(a, b, at(0)); got != 2*time.Second {
		t.Errorf("overlap %v, want 2s", got)
	}
	if got := overlap(a, b, at(5)); got != time.Second {
		t.Errorf("overlap from 5: %v, want 1s", got)
	}
	if got := covered(a, b, at(1), at(10)); got != 8*time.Second {
		t.Errorf("covered %v, want 8s", got)
	}
}

func TestSpansOfALine(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	l := new(line)
	l.add(at(1), contender.Belief{Own: true})
	l.add(at(2), contender.Belief{Own: true, Work: true}) // one span of Own
	l.add(at(3), contender.Belief{Work: true})
	if got := l.spans(own, at(9)); len(got) != 1 || got[0] != (span{at(1), at(3)}) {
		t.Errorf("own: %v", got)
	}
	if got := l.spans(work, at(9)); len(got) != 1 || got[0] != (span{at(2), at(9)}) {
		t.Errorf("work, still on at the end: %v", got)
	}
}

func TestReportSurvivesThePipe(t *testing.T) {
	want := contender.Belief{Work: true}
	at, got, err := parseReport(report(time.Unix(3, 7), want))
	if err != nil || got != want || !at.Equal(time.Unix(3, 7)) {
		t.Errorf("got %v %v %v", at, got, err)
	}
	if _, _, err := parseReport("belief"); err == nil {
		t.Error("half a line was taken for a report")
	}
}

// A figure that was never measured is no zero, and one that did not happen is no number.
func TestPageShowsWhatIsMissing(t *testing.T) {
	c := comparison{runs: 1, results: map[cell][]readings{
		{"Hand-over", "tenure"}: {{takeover: 1.2}},
	}}
	page := c.page()
	if !strings.Contains(page, "| "+takeover+" | 1 (1) | – |") {
		t.Errorf("page:\n%s", page)
	}
	if strings.Contains(page, "## FLUSHALL") {
		t.Error("a scenario that was not played has a section")
	}
}
