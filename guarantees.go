package tenure

import (
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Guarantees are the bounds of one election, computed from its options alone: they cost no round
// trip and do not change while Run goes on. They hold under the conditions of P1 and P7 in
// docs/guarantees.md: processes that are scheduled, clocks whose rates differ by less than
// ClockRate, a Redis that answers. Each grows by a round trip. Without Redis (NewStandalone) all
// but Role are zero: the term never ends by itself.
type Guarantees struct {
	Role     string        `json:"role"`
	LeaseTTL time.Duration `json:"-"` // what the others are computed from
	// Belief is how long after a renewal was sent IsLeader may still be true:
	// LeaseTTL − DriftMargin − 2 ms.
	Belief time.Duration `json:"-"`
	// Cancel is how long after a renewal was sent the context of the term ends, if no other one
	// succeeds: Belief − max(50 ms, LeaseTTL/50).
	Cancel time.Duration `json:"-"`
	// OutageTolerance is how long Redis may refuse every request, or leave it without an answer,
	// without the end of a term, whenever that begins. Some longer outages end no term either; an
	// outage of Cancel or longer always does.
	OutageTolerance time.Duration `json:"-"`
	// CrashFailover is how long a role may be without a leader after its leader has crashed:
	// LeaseTTL + 50 ms. If more than 50 processes follow, they ask one after the other, the first
	// of them within milliseconds. If nearly all of n followers have died too, or may not lead,
	// CrashFailover, HandOver and FirstElection may last longer by up to LeaseTTL/100 · ln(1 + 100
	// · n · max(1 ms, n · 0.4 µs)/LeaseTTL): 1.5 s for 10,000 at a LeaseTTL of 30 s.
	CrashFailover time.Duration `json:"-"`
	// HandOver is how long after a release a role may be without a leader: 20 ms, and
	// HandOverUnheard if the hint of the release is lost: the longest sleep of a follower,
	// RetryInterval + 10 %.
	HandOver        time.Duration `json:"-"`
	HandOverUnheard time.Duration `json:"-"`
	// Yield is by how much CrashFailover, HandOver and HandOverUnheard grow if candidates differ in
	// Priority, Spread, version or ByInstanceID, or the work of one has failed, and the best one
	// asks, but does not come: min(LeaseTTL/10, 1 s), or two round trips if that is more.
	Yield time.Duration `json:"-"`
	// TransferWait is how long Elector.Transfer waits for an instance that does not ask for the
	// lease, before it returns ErrNotReady and the term goes on: RetryInterval + 2/3 · LeaseTTL.
	TransferWait time.Duration `json:"-"`
	// LossFailover is how long a role may be without a leader if its leader dies while Redis loses
	// data or fails over, counted from when Redis answers again: HandOverUnheard, then the
	// hold-off, the longer of LeaseTTL and HoldOff, with FailoverMargin and 2 s (Redis says its age
	// in whole seconds). Candidates with longer leases lengthen it.
	LossFailover time.Duration `json:"-"`
	// FirstElection is how old a Redis that knows nothing of the role must be before it grants a
	// lease: RestartGuard + 2 s, or EmptyHistoryWait if that is longer or RestartGuard is off.
	FirstElection time.Duration `json:"-"`
	// ClockRate is by how much Redis's clock may run faster than that of a leader, as a part of
	// one: DriftMargin/LeaseTTL. Redis's clock must not jump ahead within a lease either.
	ClockRate float64 `json:"clock_rate"`
	// Leading and Following are the commands a second that this election sends to Redis at rest.
	// Those of the default role of a Coordinator, and of an Elector that stands alone, include what
	// the process sends once: checks of its subscription, heartbeats, and, if it leads, sweeps.
	// Tasks are not counted: each run costs two commands.
	Leading   float64 `json:"leading_commands_per_second"`
	Following float64 `json:"following_commands_per_second"`
}

// attrs are the bounds as the log has them; nil if there are none.
func (g Guarantees) attrs() *logAttrs {
	if g.LeaseTTL == 0 {
		return nil
	}
	return &logAttrs{
		slog.Duration("lease_ttl", g.LeaseTTL), slog.Duration("outage_tolerance", g.OutageTolerance),
		slog.Duration("crash_failover", g.CrashFailover), slog.Duration("hand_over", g.HandOver),
		slog.Duration("loss_failover", g.LossFailover), slog.Float64("clock_rate", g.ClockRate),
	}
}

// roundedAge is by how much a wait for the age of a server may be too long: Redis reports the age
// in whole seconds, so that a second is added to it, and it may be one more than that.
const roundedAge = 2 * time.Second

// guaranteesOf computes the bounds.
func guaranteesOf(o ElectionOptions, t lease.Timing, also commands) Guarantees {
	if also.none {
		return Guarantees{Role: o.Role}
	}
	hold := max(t.TTL, t.HoldOff)
	first := max(o.Safety.EmptyHistoryWait, 0)
	if guard := o.Safety.RestartGuard; guard >= 0 {
		first = max(first, orDefault(guard, hold)+roundedAge)
	}
	unheard := t.Retry + t.Retry/10
	return Guarantees{
		Role: o.Role, LeaseTTL: t.TTL,
		Belief: t.Life(), Cancel: t.Life() - t.Guard(), OutageTolerance: t.OutageTolerance(),
		CrashFailover: t.TTL + 50*time.Millisecond,
		HandOver:      20 * time.Millisecond, HandOverUnheard: unheard, Yield: t.Slice(), TransferWait: t.Offer(),
		LossFailover: unheard + hold + t.Margin + roundedAge, FirstElection: first,
		ClockRate: t.Drift.Seconds() / t.TTL.Seconds(),
		Leading:   perSecond(t.Renew) + also.everywhere + also.leading,
		Following: perSecond(t.Retry) + also.everywhere,
	}
}

// commands are what a process sends a second beside the requests of an election.
type commands struct {
	everywhere float64 // by each process
	leading    float64 // by the leader alone
	none       bool    // it has no server
}

// commands are those of a coordinator: checks of its subscription, heartbeats, sweeps.
func (o Options) commands() (everywhere, leading float64) {
	everywhere = checksPerSecond(o.Election.LeaseTTL) + perSecond(o.Registry.HeartbeatInterval)
	leading = perSecond(o.Registry.SweepInterval)
	if o.Tasks.MinInstances > 1 {
		leading += perSecond(o.Registry.beat()) // counts
	}
	return everywhere, leading
}

// checksPerSecond are the commands of one subscription: its checks, and the counts of who listens.
func checksPerSecond(ttl time.Duration) float64 {
	return perSecond(store.CheckInterval(ttl)) * (1 + 1.0/store.ChecksPerCount)
}

// perSecond is how often a second something happens that happens once in an interval; never, if
// that is negative: it is switched off.
func perSecond(interval time.Duration) float64 {
	if interval < 0 {
		return 0
	}
	return 1 / interval.Seconds()
}
