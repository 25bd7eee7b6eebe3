// Package hook is how tenuretest, tenurehttp, the metrics and the proof reach into package tenure
// without public names for it. Package tenure sets the variables when it is loaded.
package hook

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/redisstore"
)

// Control switches what grants the leases of a coordinator without Redis, and says which of its
// roles lead. It is safe for concurrent use.
type Control interface {
	Grant(roles ...string)
	Refuse(leader string)
	// Yield is Refuse, but that other coordinators of the memory lead, if anybody does.
	Yield()
	// Leading reports whether every one of these roles leads and no other does, without any whether
	// every role does; and whether there are such roles.
	Leading(roles ...string) (so, known bool)
	// Following reports whether no role leads, and each knows of that leader.
	Following(leader string) bool

	// Disconnect has all calls of the coordinator to its memory fail. Terms that are on end by
	// themselves, and then their leases. Reconnect has them pass again.
	Disconnect()
	Reconnect()
	Connected() bool
	// Free reports whether no lease of the coordinator lasts.
	Free() bool
	// Refusing reports whether nothing is granted.
	Refusing() bool
	// Settled reports whether no role leads, and each knows who does, as Refuse or Yield had it.
	Settled() bool

	// Ending returns a channel that is closed when Run has ended, if Run goes on though its context
	// is done. Otherwise it returns nil.
	Ending() <-chan struct{}

	// RetryAt is when the next attempt of the last run of a task is due, if that run was left with
	// a pause before it.
	RetryAt(task string) time.Time
	// RunsOnElection reports whether a task of that name is registered with RunOnElection.
	RunsOnElection(task string) bool
}

// NewControlled makes a *tenure.Coordinator out of tenure.Options whose leases are granted only
// while its Control says so. It shares its memory, the records of tasks and the last tokens, with
// the coordinator of another Control; nil: with none.
var NewControlled func(opts any, beside Control) (coordinator any, control Control, err error)

// NewTerm makes a context of a term with this token, which is valid until end is called with a
// cause, or parent is done.
var NewTerm func(parent context.Context, token int64) (ctx context.Context, end func(cause error))

// ElectionEnded is when a *tenure.Elector ended to take part in its election, and whether it has.
var ElectionEnded func(elector any) (at time.Time, ended bool)

// ElectionDown reports whether Redis gives a *tenure.Elector no usable answer, as the last of its
// events of that says.
var ElectionDown func(elector any) bool

// Beside returns what fill has returned first for a *tenure.Elector, which keeps it for as long as
// it lives. What fill returns in calls at the same moment is thrown away.
var Beside func(elector any, fill func() any) any

// TaskNames are the tasks that a *tenure.Coordinator has registered. It asks nobody.
var TaskNames func(coordinator any) []string

// What the proof needs, to repeat a history and to break the scripts.
var (
	// Repeatable returns the tenure.Options or tenure.ElectorOptions with these sources of jitter,
	// in [0, 1), and of nonces. Both may be called by any goroutine.
	Repeatable func(opts any, random func() float64, secret func() string) any

	// Scripts returns those that package tenure runs on Redis. It must not be exchanged while a
	// store is being made.
	Scripts *func() *redisstore.Scripts
)
