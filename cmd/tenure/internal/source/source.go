// Package source is where a command gets its answers from, and what it asks instances through:
// Redis itself, or the HTTP API of a program that embeds tenurehttp.
package source

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tenure-go/tenure"
)

// Source answers the commands. What it returns beside a *StaleError or tenure.ErrTruncated counts:
// it is old, or not whole. All other errors come without an answer.
type Source interface {
	// Ready returns an error if nothing can be asked now, so that an error of what comes next is
	// about that.
	Ready(ctx context.Context) error
	// Cluster is all that there is, and the given roles.
	Cluster(ctx context.Context, roles ...string) (Cluster, error)
	Instances(ctx context.Context, states []tenure.InstanceState) ([]tenure.Instance, error)
	Instance(ctx context.Context, id string) (tenure.Instance, error)
	// Leader has the address of the leader, if it says one.
	Leader(ctx context.Context, role string) (tenure.LeaderInfo, error)
	Terms(ctx context.Context, role string, limit int) ([]tenure.TermRecord, error)
	// Tasks are those whose names begin with prefix, by name.
	Tasks(ctx context.Context, prefix string) ([]tenure.TaskStatus, error)
	// Now is the time by which tasks are due: by Redis's clock, or by this machine's if that is not
	// known.
	Now(ctx context.Context) time.Time
	Runs(ctx context.Context, task string, limit int) ([]tenure.RunRecord, error)
	Commands(ctx context.Context, limit int) ([]tenure.CommandRecord, error)
	// Recent are the last changes, oldest first.
	Recent(ctx context.Context, limit int) ([]tenure.Change, error)
	// Follow hands out what changes after the entry of that ID ("": from the oldest that is kept)
	// until ctx is done. say is called, once, with what keeps it from hearing of changes.
	Follow(ctx context.Context, after string, take func([]tenure.Change), say func(problem string))
	// WaitFor returns when at least n instances are active.
	WaitFor(ctx context.Context, n int) error

	// ResignTerm and TransferTerm are for one term, that of token.
	ResignTerm(ctx context.Context, role string, token int64) error
	TransferTerm(ctx context.Context, role string, token int64, instanceID string) error
	Drain(ctx context.Context, instanceID string) error
	Undrain(ctx context.Context, instanceID string) error
	Remove(ctx context.Context, instanceID string) error
	Pause(ctx context.Context, task, reason string) error
	Resume(ctx context.Context, task string) error
	Trigger(ctx context.Context, task string, args ...string) (id string, err error)
	Cancel(ctx context.Context, task string) error
	Forget(ctx context.Context, task string) error
	ForgetRole(ctx context.Context, role string) error

	Close()
}

// Cluster is the state of a namespace.
type Cluster struct {
	Server    Server
	Roles     []tenure.RoleStatus // by name
	Said      map[string]string   // why a role has no leader, by the process that answers, if Redis knows of no reason
	Status    tenure.ClusterStatus
	Instances []tenure.Instance // of those that are active perhaps not all
	Tasks     []tenure.TaskStatus
	Recent    []tenure.Change // oldest first
	At        time.Time       // by this machine's clock
	Unread    []string        // which parts are not there, and why: somebody has to fix something
}

// Server is what is known of Redis.
type Server struct {
	Kind      string  `json:"kind,omitempty"` // redis or valkey; "": not known
	Version   string  `json:"version,omitempty"`
	Address   string  `json:"address,omitempty"`
	Uptime    float64 `json:"uptime_seconds,omitempty"`
	Refuses   string  `json:"refuses,omitempty"`  // why it refuses every new lease; "": nothing is known that would have it do so
	RoundTrip float64 `json:"round_trip_seconds"` // of this program, to Redis or to the API
	API       string  `json:"api,omitempty"`      // that was asked in place of Redis
	Age       float64 `json:"age_seconds,omitempty"`
	Stale     bool    `json:"stale,omitempty"` // Redis gives the API no answer: this is the last one
	Error     string  `json:"error,omitempty"` // why
}

// StaleError says that an answer is the last one of an API that has lost Redis.
type StaleError struct {
	Age  time.Duration
	Text string // why there is no younger one
}

func (e *StaleError) Error() string {
	text := e.Text
	if text == "" {
		text = "there is no younger one"
	}
	return fmt.Sprintf("this is the answer of %v ago: %s", e.Age.Round(time.Second), text)
}

// Unwrap has the error count as ErrUnreachable.
func (e *StaleError) Unwrap() error { return tenure.ErrUnreachable }

// seconds is a number of seconds as a duration.
func seconds(s float64) time.Duration {
	if math.Abs(s) > 1e9 {
		return time.Duration(math.Copysign(1e18, s))
	}
	return time.Duration(s * float64(time.Second))
}
