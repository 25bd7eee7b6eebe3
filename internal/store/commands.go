package store

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Commands keeps what is asked of instances from elsewhere. Each method is one decision there,
// which may be asked for again if its answer was lost. They are bounded by ctx only as far as the
// client heeds it, and safe for concurrent use.
type Commands interface {
	// SendCommand leaves a command for its instance, which must take it within bound. It says
	// CommandSent, CommandFull or CommandLate: too many wait there, or it is later than c.NotAfter.
	SendCommand(ctx context.Context, c Command, bound time.Duration) (verdict string, err error)
	// ReadCommands reads the entries of the inbox of an instance, oldest first, and removes those
	// that are no commands. All are untrusted.
	ReadCommands(ctx context.Context, instance string, remove []string) (entries []string, err error)
	// StartCommand claims a command for one incarnation of its instance, and takes the entry out of
	// the inbox. Nobody else may execute the command if it says CommandStarted. CommandOverdue: it
	// was claimed before, and is too old to be begun now. CommandLate or CommandGone: it is not
	// this incarnation's.
	StartCommand(ctx context.Context, c Command, entry, incarnation string) (verdict string, err error)
	// EndCommand says what became of a command that this incarnation has started.
	EndCommand(ctx context.Context, c Command, incarnation string, o CommandOutcome) error
	// LookCommand says how a command stands, and sends its hint again.
	LookCommand(ctx context.Context, c Command, hint bool) (CommandOutcome, error)
	// NoteCommand notes what was done without an instance that takes it.
	NoteCommand(ctx context.Context, c Command, o CommandOutcome) error
	// CommandLog reads the audit stream, newest first. All of it is untrusted.
	CommandLog(ctx context.Context) ([]CommandEntry, error)
}

// Command is one thing that is asked of an instance.
type Command struct {
	ID       string `json:"id"`
	Instance string `json:"instance"`
	Kind     string `json:"kind"`
	Role     string `json:"role,omitempty"`
	Token    int64  `json:"token,omitempty"`       // of the term that it is meant for
	Process  string `json:"incarnation,omitempty"` // that it is meant for
	Argument string `json:"argument,omitempty"`
	By       string `json:"by,omitempty"` // who asks
	NotAfter int64  `json:"-"`            // by Redis's clock, ms: it is not left in the inbox later
	// Lasts is for how long the process that starts it may execute it: until then it is known.
	Lasts time.Duration `json:"-"`
}

// How a command stands.
const (
	CommandAsked   = "asked"
	CommandTaken   = "taken"
	CommandDone    = "done"
	CommandFailed  = "failed"
	CommandExpired = "expired"
)

// What is said to who sends a command, or starts it.
const (
	CommandSent    = "sent"
	CommandFull    = "full"
	CommandStarted = "started"
	CommandOverdue = "overdue"
	CommandLate    = "late"
	CommandGone    = "gone"
)

// The sizes of commands.
const (
	MaxCommandBytes = 4096 // of an entry in an inbox
	MaxCommandText  = 512  // of what became of it
	MaxWaiting      = 100  // commands in an inbox
	MaxCommandLog   = 1000 // entries of the audit stream
)

// CommandOutcome is what became of a command. Code is a word for the error, Text is for people.
type CommandOutcome struct{ State, Code, Text string }

// CommandEntry is an entry of the audit stream.
type CommandEntry struct {
	At    time.Time
	Event string // asked, ended or noted
	Taker string
	Command
	CommandOutcome
}

// ParseCommand reads an entry of an inbox, which anybody with the right to send may have written.
func ParseCommand(entry, instance string) (c Command, ok bool) {
	if len(entry) > MaxCommandBytes || !utf8.ValidString(entry) {
		return c, false
	}
	strict := json.NewDecoder(bytes.NewReader([]byte(entry)))
	strict.DisallowUnknownFields()
	if strict.Decode(&c) != nil || strict.More() || !CommandIDPattern.MatchString(c.ID) || c.Instance != instance {
		return Command{}, false
	}
	named := (c.Role == "" || RolePattern.MatchString(c.Role)) && (c.Argument == "" || IDPattern.MatchString(c.Argument))
	return c, named && c.Token >= 0 && (c.Process == "" || IncarnationPattern.MatchString(c.Process))
}

// Entry is the command as it waits in an inbox.
func (c Command) Entry() string {
	entry, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts and a number
	}
	return string(entry)
}

// CommandText is as much of a text as is kept, or read back.
func CommandText(text string) string { return cutText(text, MaxCommandText) }
