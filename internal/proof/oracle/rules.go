package oracle

import (
	"fmt"
	"strings"
)

// Rules is a set of rules that are in force. Each is named after what it takes care of; DESIGN says
// why it is there.
type Rules uint32

// The rules of the lease scripts.
const (
	Until         Rules = 1 << iota // a lease that vanished is honoured until it would have ended
	Memory                          // a stored token below the asker's floor means lost data
	Guard                           // a new history, or a young server, grants nothing for the hold-off
	RollCall                        // on an empty history nobody is granted anything before leaders were asked
	Reclaim                         // on lost data a living leader takes its lease back with the same token
	Time                            // a token is at least Redis's time
	NotAfter                        // a request that comes too late changes nothing
	ArmInRenew                      // a renewal that stamps a new history arms the hold-off too
	LongestTTL                      // the hold-off is the longest TTL known, not one's own
	Clamp                           // nothing lies further ahead than it can
	UnknownOrigin                   // a history that is not known is never stored and never compared
	NonceHolder                     // a lease under the own ID but of another campaign is another's
	AdoptGuard                      // a lease is adopted only if no hold runs and no data were lost
	MemoryEnded                     // so is what late requests, refused renewals and releases name noted: who remembers may be leaving
	Relic                           // a lease of an older term than the asker's, shown by a promoted replica, is taken back like lost data
	TTLNamed                        // the longest TTL that askers name counts, for as long as it is named and a while after
	MarginNamed                     // so does the longest FailoverMargin
	CarefulClamp                    // what armed a hold-off is known to the next asker, so that it does not shorten it
	LongestWait                     // on an empty history the longest wait of all who ask counts, from the first question on
	HoldGrows                       // a hold-off that was armed grows to the longest that is known to later askers
	Reserve                         // a vacancy is left to the heir that it was released for
	ReserveBound                    // only for a moment
	ReserveOnce                     // only by the release that makes it, not by one that is repeated
	ReserveClamp                    // a reservation lies no further ahead than it can
	ReadyFresh                      // a release whose heir has stopped asking reserves nothing
	HeirWaits                       // the heir is granted nothing that it would not be granted without
	Yield                           // the first slice of a vacancy is left to the best candidate that asks
	YieldBound                      // it begins with the vacancy, not with each refusal
	BestExpires                     // the best candidate is forgotten unless it asks again
	end

	All = end - 1
)

var ruleNames = [...]string{
	"until", "memory", "guard", "rollcall", "reclaim", "time", "not-after", "arm-in-renew", "longest-ttl", "clamp", "unknown-origin",
	"nonce-holder", "adopt-guard", "memory-ended", "relic", "ttl-named", "margin-named", "careful-clamp", "longest-wait", "hold-grows",
	"reserve", "reserve-bound", "reserve-once", "reserve-clamp", "ready-fresh", "heir-waits",
	"yield", "yield-bound", "best-expires",
}

// Has reports whether all of the given rules are in force.
func (r Rules) Has(rules Rules) bool { return r&rules == rules }

// Without is the set less some rules.
func (r Rules) Without(rules Rules) Rules { return r &^ rules }

// Each returns the rules of the set one by one.
func (r Rules) Each() []Rules {
	var each []Rules
	for rule := Rules(1); rule < end; rule <<= 1 {
		if r.Has(rule) {
			each = append(each, rule)
		}
	}
	return each
}

func (r Rules) String() string {
	var names []string
	for i, name := range ruleNames {
		if r.Has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRules reads what String writes.
func ParseRules(text string) (Rules, error) {
	var rules Rules
next:
	for name := range strings.SplitSeq(text, ",") {
		for i, known := range ruleNames {
			if name == known {
				rules |= 1 << i
				continue next
			}
		}
		if name != "" {
			return 0, fmt.Errorf("oracle: no rule %q", name)
		}
	}
	return rules, nil
}
