package sim

import (
	"encoding/json"
	"math"
	"math/bits"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// Tally counts what happened in one or more runs of a profile.
type Tally struct {
	Profile     string
	Runs        int
	Simulated   time.Duration
	Events      int64
	Requests    int64 // sent to Redis
	Terms       int64
	Changes     int64 // of the leader
	Ended       [lease.Transferred + 1]int64
	Transfers   int64 // offered
	Chosen      int64 // terms of candidates with priorities
	PassedOver  int64 // of these: a better candidate was there
	Ghosts      int64 // leases granted to a campaign that was over
	Faults      [numFault]int64
	Messages    Messages
	Beats       int64
	Rides       int64 // questions that travelled with one
	Sweeps      int64
	Removed     int64
	Slots       int64 // claimed
	Skipped     int64 // by policy
	TaskRuns    int64
	Reruns      int64 // of runs that a leader left behind
	Triggers    int64 // that were claimed
	Cancels     int64 // runs that heard of their end
	Crash       Times // from the crash of a leader to the next, in calm profiles
	Handover    Times // from the release to the next leader, in calm profiles
	Overlaps    Times // outside of the conditions of P1
	TokensBack  int64 // outside too: a term began after that of a newer token, whose reply was faster; or see forgotten, the exception of P2
	LongestLost int64 // two led within a profile that is inside of P1: Redis had lost the longest TTL that was named
	Deafened    int64 // subscriptions that died without a sign
	Looks       int64 // at a cluster that had been calm for long enough: was everything in order?
	Violations  int64
}

// Messages counts what went wrong on the wire.
type Messages struct{ Lost, Broken, Delayed, Late, Repeated, Deaf int64 }

// Sum is all of them.
func (m Messages) Sum() int64 { return m.Lost + m.Broken + m.Delayed + m.Late + m.Repeated + m.Deaf }

// FaultsSum is how many faults of machines there were.
func (t *Tally) FaultsSum() (sum int64) {
	for _, n := range t.Faults {
		sum += n
	}
	return sum
}

// FaultsByName are those that happened.
func (t *Tally) FaultsByName() map[string]int64 {
	named := map[string]int64{}
	for f, n := range t.Faults {
		if n > 0 {
			named[Fault(f).String()] = n
		}
	}
	return named
}

// Add adds another run.
func (t *Tally) Add(u *Tally) {
	t.Profile = u.Profile
	t.Runs += max(u.Runs, 1)
	t.Simulated += u.Simulated
	t.Events += u.Events
	t.Requests += u.Requests
	t.Terms += u.Terms
	t.Changes += u.Changes
	for i := range t.Ended {
		t.Ended[i] += u.Ended[i]
	}
	t.Transfers += u.Transfers
	t.Chosen += u.Chosen
	t.PassedOver += u.PassedOver
	t.Ghosts += u.Ghosts
	for i := range t.Faults {
		t.Faults[i] += u.Faults[i]
	}
	t.Messages.Lost += u.Messages.Lost
	t.Messages.Broken += u.Messages.Broken
	t.Messages.Delayed += u.Messages.Delayed
	t.Messages.Late += u.Messages.Late
	t.Messages.Repeated += u.Messages.Repeated
	t.Messages.Deaf += u.Messages.Deaf
	t.Beats += u.Beats
	t.Rides += u.Rides
	t.Sweeps += u.Sweeps
	t.Removed += u.Removed
	t.Slots += u.Slots
	t.Skipped += u.Skipped
	t.TaskRuns += u.TaskRuns
	t.Reruns += u.Reruns
	t.Triggers += u.Triggers
	t.Cancels += u.Cancels
	t.Crash.merge(&u.Crash)
	t.Handover.merge(&u.Handover)
	t.Overlaps.merge(&u.Overlaps)
	t.TokensBack += u.TokensBack
	t.LongestLost += u.LongestLost
	t.Deafened += u.Deafened
	t.Looks += u.Looks
	t.Violations += u.Violations
}

func (t *Tally) overlapped(d time.Duration) { t.Overlaps.add(d) }

// Times is a histogram of durations with a relative error below 3 %.
type Times struct {
	Count   int64
	Max     time.Duration
	buckets [40 << subBits]int64
}

const subBits = 5

// timesJSON is how Times are written: what a reader wants to know, and the buckets that hold
// something.
type timesJSON struct {
	Count   int64         `json:"count"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Max     time.Duration `json:"max"`
	Buckets map[int]int64 `json:"buckets"`
}

// MarshalJSON implements json.Marshaler.
func (t *Times) MarshalJSON() ([]byte, error) {
	j := timesJSON{Count: t.Count, P50: t.Quantile(0.5), P99: t.Quantile(0.99), Max: t.Max, Buckets: map[int]int64{}}
	for i, n := range t.buckets {
		if n > 0 {
			j.Buckets[i] = n
		}
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Times) UnmarshalJSON(text []byte) error {
	var j timesJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*t = Times{Count: j.Count, Max: j.Max}
	for i, n := range j.Buckets {
		if i >= 0 && i < len(t.buckets) {
			t.buckets[i] = n
		}
	}
	return nil
}

func bucket(d time.Duration) int {
	us := uint64(max(d/time.Microsecond, 1))
	exponent := bits.Len64(us) - 1
	part := int(us<<subBits>>exponent) & (1<<subBits - 1)
	return min(exponent<<subBits|part, len(Times{}.buckets)-1)
}

func (t *Times) add(d time.Duration) {
	t.Count++
	t.Max = max(t.Max, d)
	t.buckets[bucket(d)]++
}

func (t *Times) merge(u *Times) {
	t.Count += u.Count
	t.Max = max(t.Max, u.Max)
	for i, n := range u.buckets {
		t.buckets[i] += n
	}
}

// Quantile is the duration that so large a share does not exceed, by the upper end of its bucket.
func (t *Times) Quantile(q float64) time.Duration {
	rest := int64(math.Ceil(q * float64(t.Count)))
	for i, n := range t.buckets {
		if rest -= n; rest <= 0 && n > 0 {
			exponent, part := i>>subBits, i&(1<<subBits-1)
			us := math.Ldexp(1+float64(part+1)/(1<<subBits), exponent)
			return min(time.Duration(us)*time.Microsecond, t.Max)
		}
	}
	return t.Max
}
