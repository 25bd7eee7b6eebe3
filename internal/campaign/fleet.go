//go:build unix

package campaign

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/internal/redistest"
)

// fleet is a few children, each with a way of its own to Redis, and what was seen of them.
type fleet struct {
	redistest.TB
	resource *resource
	setup    setup
	members  []*member

	mu      sync.Mutex
	beliefs map[int64]*belief
	endings []ending
	events  map[string]int
	spells  []spell
	wrong   []Finding
	hearing sync.WaitGroup
}

// member is one place of a fleet: its processes follow each other.
type member struct {
	*fleet
	name  string
	setup setup
	proxy *redistest.Proxy // nil: it has none
	proc  *redistest.Child
	up    bool
	cut   bool
	since time.Duration // it has been up and well
}

const members = 3

// newFleet starts the resource and the children; addr: of a single server, each child gets a proxy before it.
func newFleet(t redistest.TB, s setup, addr string) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "campaign-")
	if err != nil {
		t.Fatalf("campaign: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r, err := newResource(dir)
	if err != nil {
		t.Fatalf("campaign: %v", err)
	}
	t.Cleanup(r.close)
	s.Resource = r.addr()
	f := &fleet{TB: t, resource: r, setup: s, beliefs: map[int64]*belief{}, events: map[string]int{}}
	for i := range members {
		m := &member{fleet: f, name: fmt.Sprint("n", i), setup: s}
		m.setup.Name = m.name
		if addr != "" {
			m.proxy = redistest.NewProxy(t, addr)
			m.setup.Addr = m.proxy.Addr()
		}
		f.members = append(f.members, m)
	}
	for _, m := range f.members {
		m.start()
	}
	return f
}

// start starts the process of a member.
func (m *member) start() {
	text, err := json.Marshal(m.setup)
	if err != nil {
		m.Fatalf("campaign: %v", err)
	}
	proc := redistest.StartChild(m, childName, envSetup+"="+string(text))
	m.proc, m.up, m.cut, m.since = proc, true, false, monotonic()
	m.hearing.Go(func() { // ends with the output of the process
		for line := range proc.Lines() {
			m.hear(line)
		}
	})
}

// hear takes a line of a child.
func (m *member) hear(line string) {
	what, rest, _ := strings.Cut(line, " ")
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	switch what {
	case "leads":
		var token int64
		var first, last time.Duration
		if _, err := fmt.Sscan(rest, &token, &first, &last); err != nil {
			return // cut short by a SIGKILL
		}
		b := f.beliefs[token]
		switch {
		case b == nil:
			f.beliefs[token] = &belief{m.name, token, first, last}
		case b.who != m.name:
			f.wrong = append(f.wrong, Finding{"P2", fmt.Sprintf("%s and %s both have token %d", b.who, m.name, token), first})
		default:
			b.last = max(b.last, last)
		}
	case "over":
		var e ending
		if _, err := fmt.Sscan(rest, &e.token, &e.at, &e.deadline); err != nil {
			return
		}
		if strings.Contains(rest, "no renewal succeeded in time") {
			e.cause = "expired"
		}
		f.endings = append(f.endings, e)
	case "event":
		kind, subject, _ := strings.Cut(rest, " ")
		f.events[kind]++
		if kind == "down" {
			f.removed(m, subject)
		}
	case "ended":
		if rest != "<nil>" && !strings.Contains(rest, "still runs") {
			f.events["Run: "+rest[:min(len(rest), 200)]]++
		}
	}
}

// removed holds P9: nobody is removed that has been well for DownAfter and a few beats.
func (f *fleet) removed(by *member, id string) {
	now := monotonic()
	for _, m := range f.members {
		if m.name == id && m.up && !m.cut && now-m.since > 20*time.Second {
			f.wrong = append(f.wrong, Finding{"P9", fmt.Sprintf("%s removed %s, which has been well for %v", by.name, id, now-m.since), now})
		}
	}
}

// leader is who was last seen to lead, and is up; nil: nobody in the last moment.
func (f *fleet) leader() *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := monotonic()
	for _, b := range f.beliefs {
		if now-b.last < 150*time.Millisecond {
			for _, m := range f.members {
				if m.name == b.who && m.up {
					return m
				}
			}
		}
	}
	return nil
}

// settled waits until somebody leads; false: nobody does within the bound.
func (f *fleet) settled(bound time.Duration) bool {
	for end := monotonic() + bound; monotonic() < end; {
		if f.leader() != nil {
			return true
		}
		pause(5 * time.Millisecond)
	}
	return false
}

func pause(d time.Duration) { <-time.After(d) }

// ill notes that a member is not well from now on, until well is called.
func (m *member) ill(stopped bool) (well func()) {
	s := spell{who: m.name, from: monotonic(), stopped: stopped}
	m.mu.Lock()
	m.cut = true
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.to = monotonic()
		m.spells = append(m.spells, s)
		m.cut, m.since = false, s.to
	}
}

// kill is SIGKILL.
func (m *member) kill() {
	m.mu.Lock()
	m.up = false
	m.mu.Unlock()
	m.proc.Kill(m)
}

// stop is SIGTERM: it must end by itself within its shutdown bound (P11).
func (m *member) stop() {
	m.mu.Lock()
	m.up = false
	m.mu.Unlock()
	m.proc.Signal(m, syscall.SIGTERM)
	m.proc.Wait(m, 60*time.Second)
}

// freeze is SIGSTOP for a while.
func (m *member) freeze(d time.Duration) {
	well := m.ill(true)
	m.proc.Pause(m)
	pause(d)
	m.proc.Resume(m)
	well()
}

// history is all that was seen so far.
func (f *fleet) history() *history {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := &history{endings: slices.Clone(f.endings), spells: slices.Clone(f.spells)}
	for _, b := range f.beliefs {
		h.beliefs = append(h.beliefs, *b)
	}
	h.writes, h.runs = f.resource.log()
	return h
}

// end stops every process.
func (f *fleet) end() {
	for _, m := range f.members {
		if m.up {
			m.stop()
		}
	}
	f.hearing.Wait()
}
