package memstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// Commands keeps the commands for a coordinator without Redis. It is safe for concurrent use.
type Commands struct {
	// Wake is called when a command waits. It is set before the first one is sent, and must not
	// block.
	Wake func()

	mu      sync.Mutex
	inbox   []string
	asked   map[string]*asked
	entries []store.CommandEntry // newest first
}

// asked is what is known of a command.
type asked struct {
	until   time.Time
	lasts   time.Duration // for which it is executed at most
	taker   string
	outcome store.CommandOutcome
}

// NewCommands returns a store without commands.
func NewCommands() *Commands { return &Commands{Wake: func() {}, asked: make(map[string]*asked)} }

// SendCommand has no use for NotAfter: nothing delays a call.
func (s *Commands) SendCommand(_ context.Context, c store.Command, bound time.Duration) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inbox) == store.MaxWaiting {
		return store.CommandFull, nil
	}
	s.inbox = append(s.inbox, c.Entry())
	s.asked[c.ID] = &asked{until: time.Now().Add(bound), outcome: store.CommandOutcome{State: store.CommandAsked}}
	s.audit(store.CommandEntry{Event: "asked", Command: c})
	s.Wake()
	return store.CommandSent, nil
}

func (s *Commands) ReadCommands(_ context.Context, _ string, remove []string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inbox = slices.DeleteFunc(s.inbox, func(entry string) bool { return slices.Contains(remove, entry) })
	return slices.Clone(s.inbox), nil
}

func (s *Commands) StartCommand(_ context.Context, c store.Command, entry, incarnation string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inbox = slices.DeleteFunc(s.inbox, func(waits string) bool { return waits == entry })
	command := s.asked[c.ID]
	switch {
	case command == nil || command.outcome.State != store.CommandAsked:
		return store.CommandGone, nil
	case s.expire(c, command):
		return store.CommandLate, nil
	}
	command.taker, command.lasts, command.outcome.State = incarnation, c.Lasts, store.CommandTaken
	return store.CommandStarted, nil
}

func (s *Commands) EndCommand(_ context.Context, c store.Command, _ string, o store.CommandOutcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if command := s.asked[c.ID]; command != nil && command.outcome.State == store.CommandTaken {
		s.over(c, command, o, c.Instance)
	}
	return nil
}

func (s *Commands) LookCommand(_ context.Context, c store.Command, hint bool) (store.CommandOutcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	command := s.asked[c.ID]
	if command == nil {
		return store.CommandOutcome{}, nil
	}
	if command.outcome.State == store.CommandAsked && !s.expire(c, command) && hint {
		s.Wake()
	}
	return command.outcome, nil
}

func (s *Commands) NoteCommand(_ context.Context, c store.Command, o store.CommandOutcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audit(store.CommandEntry{Event: "noted", Command: c, CommandOutcome: o})
	return nil
}

func (s *Commands) CommandLog(context.Context) ([]store.CommandEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries), nil
}

// expire ends a command whose time is over, and reports whether it is.
func (s *Commands) expire(c store.Command, command *asked) bool {
	late := time.Now().After(command.until)
	if late {
		s.over(c, command, store.CommandOutcome{State: store.CommandExpired, Code: store.CommandExpired}, "")
	}
	return late
}

func (s *Commands) over(c store.Command, command *asked, o store.CommandOutcome, taker string) {
	command.outcome = o
	s.audit(store.CommandEntry{Event: "ended", Taker: taker, Command: store.Command{ID: c.ID}, CommandOutcome: o})
}

// audit keeps the youngest entries. What became of older commands is forgotten with them.
func (s *Commands) audit(e store.CommandEntry) {
	e.At = time.Now().UTC()
	s.entries = slices.Insert(s.entries, 0, e)
	if len(s.entries) > store.MaxCommandLog {
		s.entries = s.entries[:store.MaxCommandLog]
	}
	for id, command := range s.asked {
		if time.Since(command.until) > command.lasts+10*time.Minute {
			delete(s.asked, id)
		}
	}
}
