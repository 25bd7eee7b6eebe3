package lease

import "time"

// State is where a candidate stands.
type State int

const (
	Following State = iota // no term: asking, waiting or standing back
	Leading                // a term is on
	Draining               // the term is over, its work is not
	Stopped                // no campaign any more
)

func (s State) String() string {
	return [...]string{"following", "leading", "draining", "stopped"}[s]
}

// Reason is why a term ended.
type Reason int

const (
	Expired     Reason = iota // no renewal succeeded in time
	Refused                   // Redis said that the lease is not ours
	Resigned                  // given up by our own will, campaigning goes on
	Failed                    // given up because its work or its health check failed
	Shutdown                  // given up because the process stops
	Transferred               // given up for the candidate that the lease was offered to
	numReason                 // not a reason
)

func (r Reason) String() string {
	return [numReason]string{"expired", "lost", "resigned", "failed", "stopped", "transferred"}[r]
}

// voluntary reports whether the term ended by our own decision: its lease is then kept while the
// work drains.
func (r Reason) voluntary() bool { return r >= Resigned }

// Unheard is why a term ended that only Redis knew of: what a campaign was granted without hearing
// of it goes back.
const Unheard = "unheard"

// Kind is what a request asks of Redis.
type Kind int

const (
	Acquire Kind = iota
	Renew
	Release
)

// Request is one question for Redis. It is a value: the driver sends it and hands it back with the
// answer.
type Request struct {
	Seq      uint64
	Kind     Kind
	Nonce    string        // secret of the campaign
	Token    int64         // of the term; 0 in a release: whatever this campaign was granted
	Floor    int64         // highest token this candidate ever saw
	HoldOff  time.Duration // longest TTL known, own one and HoldOff option included
	NotAfter int64         // Redis time (ms) after which it must not take effect; 0: unknown yet
	Origin   string        // replication id that the lease was last confirmed under; "": unknown
	Since    int64         // Unix seconds at which the term began
	Heir     string        // renew: the instance that the lease is offered to, or Anyone; release: that it is reserved for; "": none
	Reserve  time.Duration // release: for how long
	Why      string        // release: why the term ended; see Reason and Unheard
	Ago      time.Duration // release: how long ago
	Rank     Rank          // acquire: higher is preferred
	Slice    time.Duration // acquire: for how long a vacancy is left to the best candidate
	Counts   time.Duration // acquire: for how long the asker counts as a candidate
	Draining bool          // the term is over: keep the lease, never reclaim it
	Mute     bool          // acquire: the last request had no usable answer, so that this one does not count as a candidate's
	Rides    bool          // acquire: one of a crowd asks because it is time, and for no other reason: it may travel with a heartbeat
	Sent     Reading       // before it was handed to the client
	Bound    time.Duration // longest that an answer is waited for
}

// Verdict is what Redis answered.
type Verdict int

const (
	Unknown  Verdict = iota // an error, or no answer in time: nothing is known
	Won                     // acquire: the lease is ours
	Held                    // acquire: not now; Wait says for how long
	RollCall                // acquire: empty history, leaders were asked to renew; Wait as above
	Stale                   // acquire, renew: it came too late and changed nothing
	Kept                    // renew: done
	Lost                    // renew: the lease is not ours
	Done                    // release: it is not ours now
)

// Answer is a typed reply of a lease script.
type Answer struct {
	Verdict   Verdict
	Now       int64         // Redis time in ms; 0 if Verdict is Unknown
	Token     int64         // stored token, after a win ours
	TTL       time.Duration // TTL in the term hash
	Wait      time.Duration // until a refusal may be different
	Since     int64         // Unix seconds at which the term began
	Origin    string        // replication id; "": unknown
	Offered   bool          // a refused acquire: the leader offers its lease to the asker
	Ready     bool          // renew: the instance that the lease is offered to asks for it
	Reclaimed bool          // renew: Redis had lost the lease, and it was taken back
	Best      string        // renew: the candidate of the highest rank that asks; "": none is known
	BestIs    Rank          // its rank
}

// Answers reports whether a is an answer to r at all. A verdict on another kind of request, a
// renewal of another term and a win under a token that cannot be one say nothing: they can only
// come from a mix-up, and mean that nothing is known.
func (a Answer) Answers(r Request) bool {
	switch a.Verdict {
	case Won:
		return r.Kind == Acquire && SaneToken(a.Token, a.Now)
	case Held, RollCall:
		return r.Kind == Acquire
	case Kept:
		return r.Kind == Renew && a.Token == r.Token
	case Lost:
		return r.Kind == Renew
	case Stale:
		return r.Kind != Release
	case Done:
		return r.Kind == Release
	default:
		return false
	}
}

// Forgot reports whether the answer to a renewal says that Redis may have forgotten what this term
// has written: it had lost the lease, or has another history than the one that the lease was last
// confirmed under, after a failover or a restart.
func (a Answer) Forgot(r Request) bool {
	return a.Verdict == Kept && (a.Reclaimed || a.Origin != "" && r.Origin != "" && a.Origin != r.Origin)
}

// Change is what an input did to the term. The driver acts on it; everything else it asks for with
// Next and Wait.
type Change int

const (
	Nothing Change = iota
	Began          // a term began: Lease and Token are its
	Renewed        // Lease is a later one
	Ended          // the term ended: Reason says why, work is to be drained
)
