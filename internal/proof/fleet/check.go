//go:build unix

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rules say what a log is held against beside the promises that always hold.
type Rules struct {
	LeaseTTL time.Duration
	Guard    time.Duration // between the cancel point and the deadline
	Drift    time.Duration // between the deadline and the end of the lease
	Shutdown time.Duration // of a member
	DownAfter,
	HeartbeatInterval time.Duration
	FailoverMargin time.Duration
	Tasks          map[string]time.Duration // intervals, by name
	Replan         time.Duration            // how long a task may wait after Redis's clock was set back
	Overlaps       bool                     // P1 is not given at all: overlaps are measured
}

// scheduled is how long a process may have stood still at most to be called scheduled. Of one that
// stood longer, times say nothing.
const scheduled = 10 * time.Millisecond

// Violation is a broken promise.
type Violation struct {
	Promise string
	At      time.Duration
	Text    string
	Excerpt []string // of the log around it
}

// Overlap is an instant at which two led, for so long.
type Overlap struct {
	At, For time.Duration
	Fault   string
}

// checker holds one log, in the order of time, against the promises.
type checker struct {
	Rules
	entries []Entry

	terms    []Entry                // Led, by when they began
	strikes  []Entry                // Struck
	work     map[work]*span         // leader work
	runs     []taskRun              // of tasks
	lives    map[process]*life      // when each process lived
	released map[work]time.Duration // leases given back
	found    []Violation
	overlaps []Overlap
	calms    []calmFigures
	asked    askedFigures
	deploys  deployFigures
}

// work is leader work, or a term, of one process.
type work struct {
	process
	token int64
}

// span is when something went on; Until is when its process was gone at the latest, if it never
// ended.
type span struct {
	from, until time.Duration
	end         *Entry // nil: it never ended
}

type life struct {
	from, until time.Duration
	asked       time.Duration // to stop; 0: never
	stopped     *Entry
}

type taskRun struct {
	Entry
	until time.Duration
	end   *Entry
}

// check holds a log against the promises.
func check(rules Rules, entries []Entry) *checker {
	c := &checker{
		Rules: rules, entries: entries, work: map[work]*span{}, lives: map[process]*life{}, released: map[work]time.Duration{},
	}
	c.index()
	c.checkTerms()
	c.checkWrites()
	c.checkCancels()
	c.checkWork()
	c.checkStops()
	c.checkRuns()
	c.checkRemovals()
	c.checkCalms()
	c.checkAsked()
	c.checkDeploys()
	slices.SortStableFunc(c.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return c
}

// index sorts entries by what they are about.
func (c *checker) index() {
	last := time.Duration(0)
	told := map[Entry]bool{}
	open := map[string]int{} // runs without an end, by process and run
	for i := range c.entries {
		e := &c.entries[i]
		last = max(last, e.At, e.Until)
		of := work{e.process(), e.Token}
		switch e.Kind {
		case Led:
			if key := (Entry{Who: e.Who, Life: e.Life, Token: e.Token, At: e.At}); !told[key] { // a process that is killed as it tells is told for
				told[key] = true
				c.terms = append(c.terms, *e)
			}
		case Struck:
			c.strikes = append(c.strikes, *e)
		case Started:
			c.lives[e.process()] = &life{from: e.At, until: -1}
		case Gone:
			c.of(e).until = e.At
		case StopAsked:
			c.of(e).asked = e.At
		case Stopped:
			c.of(e).stopped = e
		case WorkBegan:
			if c.work[of] != nil {
				c.violated("P8", e.At, "%v began its work twice under token %d", e.process(), e.Token)
			}
			c.work[of] = &span{from: e.At, until: -1}
		case WorkEnded:
			if s := c.work[of]; s == nil || s.end != nil {
				c.violated("P8", e.At, "work of %v under token %d ended without having begun", e.process(), e.Token)
			} else {
				s.until, s.end = e.At, e
			}
		case Released:
			c.released[of] = e.At
		case RunBegan:
			open[fmt.Sprint(e.process(), e.Run, e.Attempt)] = len(c.runs)
			c.runs = append(c.runs, taskRun{Entry: *e, until: -1})
		case RunEnded:
			key := fmt.Sprint(e.process(), e.Run, e.Attempt)
			if at, began := open[key]; began {
				c.runs[at].until, c.runs[at].end = e.At, e
				delete(open, key)
			} else {
				c.violated("P10", e.At, "run %s of %s ended without having begun", e.Run, e.Task)
			}
		}
	}
	for _, l := range c.lives {
		if l.until < 0 {
			l.until = last
		}
	}
	for of, s := range c.work { // what never ended ended with its process
		if s.until < 0 {
			s.until = c.endOf(of.process, last)
		}
	}
	for i := range c.runs {
		if r := &c.runs[i]; r.until < 0 {
			r.until = c.endOf(r.process(), last)
		}
	}
}

// of is the life of the process that an entry is of.
func (c *checker) of(e *Entry) *life {
	l := c.lives[e.process()]
	if l == nil {
		l = &life{from: e.At, until: -1}
		c.lives[e.process()] = l
	}
	return l
}

func (c *checker) endOf(p process, otherwise time.Duration) time.Duration {
	if l := c.lives[p]; l != nil {
		return l.until
	}
	return otherwise
}

// struck returns the strikes that may still have an effect at some time, the latest last: its own
// time and a while after it.
func (c *checker) struck(at, after time.Duration) (found []Entry) {
	for _, s := range c.strikes {
		if s.At <= at && at <= s.Until+after {
			found = append(found, s)
		}
	}
	return found
}

// exempt reports whether a strike that takes away a promise may have an effect at that time.
func (c *checker) exempt(at time.Duration, takes func(*Strike) bool) bool {
	for _, s := range c.struck(at, 3*c.LeaseTTL) {
		if takes(s.Strike) {
			return true
		}
	}
	return false
}

func (c *checker) violated(promise string, at time.Duration, format string, args ...any) {
	c.found = append(c.found, Violation{Promise: promise, At: at, Text: fmt.Sprintf(format, args...), Excerpt: c.excerpt(at)})
}

// excerpt is the log around some time; of writes only those that were refused.
func (c *checker) excerpt(at time.Duration) (lines []string) {
	const most = 150
	reach := max(2*c.LeaseTTL, time.Second)
	for i := range c.entries {
		e := &c.entries[i]
		near := e.At >= at-reach && e.At <= at+reach/2 || e.Kind != Wrote && e.At <= at && e.Until >= at
		if near && (e.Kind != Wrote || !e.OK) {
			lines = append(lines, e.line(at))
		}
	}
	if len(lines) > most {
		lines = append(lines[:most/2:most/2], lines[len(lines)-most/2:]...)
	}
	return lines
}
