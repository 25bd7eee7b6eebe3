//go:build unix

package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/hostclock"
)

const (
	probeLeading   = time.Millisecond
	probeFollowing = 5 * time.Millisecond
)

// probe asks without end whether this process leads, and writes on the page for how long it
// believed to.
func (m *member) probe() {
	last := hostclock.Now()
	for {
		pause := probeFollowing
		if m.look() {
			pause = probeLeading
		}
		wait(context.Background(), pause)
		now := hostclock.Now()
		m.stalls.saw(now, now-last-pause)
		last = now
	}
}

// look asks once. A belief is never taken for longer than it was: it counts from after the first
// answer to before the last.
func (m *member) look() (leads bool) {
	m.looking.Lock()
	defer m.looking.Unlock()
	if m.concluded {
		return false
	}
	e := m.coordinator.Elector()
	before := hostclock.Now()
	term, leads := e.Term()
	leads = leads && e.IsLeader() && term.Valid() // the answers are of one term: once false it stays false
	after := hostclock.Now()
	token := m.page.token.Load()
	if token != 0 && (!leads || term.Token != token) {
		m.tell()
	}
	switch {
	case !leads:
		return false
	case term.Token != token || m.page.told.Load() == token: // the latter must not be: a term that ended is believed in again
		m.page.told.Store(0)
		m.page.begin(term.Token, after, after)
	default:
		m.page.last.Store(int64(before))
	}
	if s := e.Status(); s.State == tenure.ElectionLeading && s.Token == term.Token {
		m.page.deadline.Store(int64(hostclock.Of(s.Deadline)))
	}
	return true
}

// tell reports a term that is over, once. looking is held.
func (m *member) tell() {
	led, untold := m.page.untold()
	if !untold {
		return
	}
	led.Deadline = time.Duration(m.page.deadline.Load())
	m.say(led)
	m.page.told.Store(led.Token)
}

// conclude reports the last term when Run has returned.
func (m *member) conclude() {
	m.look()
	m.looking.Lock()
	defer m.looking.Unlock()
	m.tell()
	m.concluded = true
}

// stalls remembers for how long the process was not scheduled, over the last one to two seconds. It
// is safe for concurrent use.
type stalls struct {
	began   atomic.Int64 // of the current span
	current atomic.Int64
	before  atomic.Int64 // of the span before
}

const stallSpan = time.Second

func (s *stalls) saw(now, stall time.Duration) {
	if now-time.Duration(s.began.Load()) > stallSpan {
		s.before.Store(s.current.Load())
		s.current.Store(0)
		s.began.Store(int64(now))
	}
	s.current.Store(max(s.current.Load(), int64(stall)))
}

func (s *stalls) longest() time.Duration {
	return time.Duration(max(s.before.Load(), s.current.Load()))
}
