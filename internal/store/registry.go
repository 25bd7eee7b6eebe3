package store

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
)

// Registry keeps the instances. Each method is one decision there, which may be asked for again if
// its answer was lost. They are bounded by ctx only as far as the client heeds it, and safe for
// concurrent use.
type Registry interface {
	Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error)
	Remove(ctx context.Context, id, incarnation string) (verdict string, err error)
	Instance(ctx context.Context, id string) (e Entry, now int64, err error) // ErrNotFound
	Scan(ctx context.Context, cursor string, onlyNew bool) (ScanReply, error)
	Losses(ctx context.Context) (held, lost int, err error)
	// Count counts the instances without reading them.
	Count(ctx context.Context, drifted, down time.Duration) (CountReply, error)

	// Log reads the log of the namespace, oldest first, at most limit entries behind the one with
	// that ID; "": from the oldest on.
	Log(ctx context.Context, after string, limit int) (LogReply, error)
	LogEnd(ctx context.Context) (id string, err error) // of the newest entry; "": there is none
	// LogTail reads the newest entries of the log, at most limit of them, oldest first.
	LogTail(ctx context.Context, limit int) ([]LogEntry, error)

	Look(ctx context.Context, l Look) (LookReply, error)
	Sweep(ctx context.Context, s Sweep) (SweepReply, error)
	Adopt(ctx context.Context, incarnation string, ids []string) (foreign []string, err error)

	Metrics(ctx context.Context, ids []string) ([][]Metric, error)           // of each, in that order
	Aggregate(ctx context.Context, mark string, entry []MetricSummary) error // adds it to the history; of one mark only once
	Aggregates(ctx context.Context, limit int) ([]Aggregate, error)          // the latest first
}

// Carrier is a Registry whose heartbeats can take an acquire along.
type Carrier interface {
	Registry
	// Carries reports whether those of this lease can travel with them.
	Carries(l Lease) bool
	// HeartbeatWith sends a heartbeat and the acquire of a lease that it carries in one round trip.
	// What one is answered does not depend on the other; a connection that breaks costs both.
	HeartbeatWith(ctx context.Context, h Heartbeat, r *Rider) (HeartbeatReply, error)
}

// Rider is an acquire that travels with a heartbeat.
type Rider struct {
	Lease   Lease
	Request lease.Request
	// Answered is called once when the answer is there, whatever becomes of the heartbeat.
	Answered func()

	// The answer.
	Reply LeaseReply
	Err   error
}

// Answer is the answer to its acquire.
func (r *Rider) Answer() (LeaseReply, error) { return checked(r.Request, r.Reply, r.Err) }

// Heartbeat registers an instance, or keeps it registered. The record comes in pieces: Redis's time
// goes between them.
type Heartbeat struct {
	ID, Incarnation string
	First           bool  // never registered before: the record of another incarnation is replaced
	NotAfter        int64 // by Redis's clock, ms; 0: none
	TTL, TakeOver   time.Duration
	Head, Rest      string // the record up to started_at, and after last_heartbeat
	Started         int64  // Unix seconds; 0: now

	Metrics    []Metric // that ride on it; empty: none do, and those of before are kept
	MetricsTTL time.Duration
}

// HeartbeatReply is the typed reply to a heartbeat.
type HeartbeatReply struct {
	Verdict membership.Verdict
	Now     int64 // by Redis's clock, ms
	Started int64
	Other   string // the other incarnation; untrusted

	Commands  bool // there are some for the instance
	Instances int  // that beat; 0: not counted
}

// Entry is one entry of the registry. All of it is untrusted, but that the ID is one.
type Entry struct {
	ID     string
	Beaten bool
	Last   int64 // heartbeat, by Redis's clock, ms; 0 if there is none
	Record string
}

// ScanReply is one page of a listing.
type ScanReply struct {
	Next      string // cursor of the next page; "0": there is none
	Anew      bool   // it is the first page again: the cursor was another server's
	Now       int64
	Malformed int
	Entries   []Entry
}

// CountReply is how many instances there are. It is right if Exact.
type CountReply struct {
	Records, Beats int
	Drifted, Down  int // by their last heartbeats
	// By the word of those that are neither. Strange have none: only a listing tells what they are.
	Joining, Draining, Other, Strange int
}

// Exact reports that each record has a heartbeat, and each heartbeat a record, so that the words
// are those of all instances.
func (c CountReply) Exact() bool { return c.Records == c.Beats && c.Strange == 0 }

// Active are all others.
func (c CountReply) Active() int {
	return max(c.Beats-c.Drifted-c.Down-c.Joining-c.Draining-c.Other-c.Strange, 0)
}

// Look asks who has been silent, longest first, one page at a time.
type Look struct {
	Silence time.Duration
	From    string // score to go on from; "": the first page
	Skip    int64
}

// LookReply is one page of the silent ones, and what the first one needs to know beside.
type LookReply struct {
	Now            int64
	Records, Beats int
	From           string // of the next page; "": there is none
	Skip           int64
	IDs            []string
}

// Sweep marks, or removes, the silent ones among the given instances.
type Sweep struct {
	Drifted, Down time.Duration
	Window        time.Duration // over which removals are counted against the cap
	Mark, Remove  bool          // what may be done about the silent
	Unwatched     time.Duration // silence of a foreign instance that nobody has watched; 0: it was watched
	Incarnation   string
	IDs           []string
}

// SweepReply has a verdict for each instance of the call.
type SweepReply struct {
	// HeldSince is when the hold that runs began, by Redis's clock in ms, and Held how many it held
	// then. Both are 0 if none runs that this incarnation began.
	HeldSince int64
	Held      int
	Verdicts  []string
}

// Verdicts of a sweep. What changed nothing has none of these.
const (
	SweepDrifted   = "drifted"
	SweepRecovered = "recovered"
	SweepDown      = "down"
	SweepLeft      = "left"
)

// Verdicts of the removal of one's own record.
const (
	RemovedLeft   = "left"
	RemovedAbsent = "absent"
)

// LogEntry is an entry of the log of a namespace. All of it is untrusted.
type LogEntry struct {
	ID        string
	Event     string
	Instances []string
	Role      string
	Token     int64
	Reason    string
	Count     int
}

// LogReply is a part of the log.
type LogReply struct {
	Gone    bool // the entry behind which it should begin is not there any more
	Entries []LogEntry
}

// MaxLog is how many entries the log keeps at least, and about how many at most.
const MaxLog = 10_000

// MaxInstances is how many entries a listing looks at.
const MaxInstances = 100_000

// The sizes of a page.
const (
	ScanCount  = 200 // entries that one page of a listing has, about: a millisecond of Redis
	SweepBatch = 100 // instances that one call sweeps
)
