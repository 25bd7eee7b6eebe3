//go:build unix

package redisstore

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// leaseCase is one question and its answer. Times are relative to the moment of the question;
// "here" is the history of the server.
type leaseCase struct {
	name   string
	data   oracle.Data
	facts  oracle.Facts // zero: history "here", never promoted, old
	asker  oracle.Asker // zero fields: candidate a, TTL 1 s, roll-call 250 ms, no restart guard
	ask    lease.Request
	want   lease.Verdict
	reason string
	token  int64 // of the reply; askNow: Redis's time
	wait   int64 // of the reply, on the miniredis
	mini   bool  // only there: another INFO, or a matter of one millisecond
}

const askNow = -1

var (
	aLease   = oracle.Lease{Holder: "a", Expires: 600}
	bLease   = oracle.Lease{Holder: "b", Expires: 600}
	foreign  = oracle.Lease{Holder: "cron-7", Expires: 600}
	since    = oracle.Since{There: true, Unix: 1_699_999_000, Expires: 600}
	aTerm    = oracle.Term{Token: 41, Nonce: "na", Holder: "a", Until: 600, TTL: 1000, Origin: "here", Hold: -5000}
	bTerm    = oracle.Term{Token: 41, Nonce: "nb", Holder: "b", Until: 600, TTL: 1000, Origin: "here", Hold: -5000}
	released = oracle.Term{Token: 41, Nonce: "nb", Holder: "b", TTL: 1000, Released: true, Origin: "here"}
	offered  = with(bTerm, func(t *oracle.Term) { t.Heir = "a" })
	reserved = with(released, func(t *oracle.Term) { t.Heir, t.Reserved = "c", 300 })
	wanted   = with(released, func(t *oracle.Term) { t.Until, t.Best = -50, oracle.Best{ID: "c", Rank: 3, Until: 500} })
	lapsed   = oracle.Term{Token: 41, Nonce: "nb", Holder: "b", Until: -10, TTL: 1000, Origin: "here"}
)

func held(l oracle.Lease, t oracle.Term) oracle.Data {
	return oracle.Data{Lease: l, Since: since, Term: t}
}

func with(t oracle.Term, change func(*oracle.Term)) oracle.Term {
	change(&t)
	return t
}

func acquiring(change func(*lease.Request)) lease.Request {
	r := lease.Request{Kind: lease.Acquire, Nonce: "na", HoldOff: store.Milliseconds(1000)}
	if change != nil {
		change(&r)
	}
	return r
}

func renewing(change func(*lease.Request)) lease.Request {
	r := lease.Request{Kind: lease.Renew, Nonce: "na", Token: 41, HoldOff: store.Milliseconds(1000), Origin: "here", Since: 1_699_999_000}
	if change != nil {
		change(&r)
	}
	return r
}

// handing is a release of a's lease at the end of a transfer to c.
func handing(reserve int64) lease.Request {
	return lease.Request{Kind: lease.Release, Nonce: "na", Token: 41, Heir: "c", Reserve: store.Milliseconds(reserve)}
}

// prefers asks with a rank, for a slice of 100 ms.
func prefers(rank lease.Rank) lease.Request {
	return acquiring(func(r *lease.Request) {
		r.Rank, r.Slice, r.Counts = rank, store.Milliseconds(100), store.Milliseconds(1200)
	})
}

func mute(rank lease.Rank) lease.Request {
	r := prefers(rank)
	r.Mute = true
	return r
}

func offering(heir string) lease.Request { return renewing(func(r *lease.Request) { r.Heir = heir }) }

func releasing(nonce string, token int64) lease.Request {
	return lease.Request{Kind: lease.Release, Nonce: nonce, Token: token}
}

func floor(token int64) lease.Request {
	return acquiring(func(r *lease.Request) { r.Floor = token })
}

var acquireCases = []leaseCase{
	{name: "grant after a release", data: oracle.Data{Term: released}, ask: acquiring(nil), want: lease.Won, token: askNow},
	{name: "grant after the lease lapsed", data: oracle.Data{Term: lapsed}, ask: acquiring(nil), want: lease.Won, reason: "lapsed", token: askNow},
	{name: "grant after a loss of data", data: oracle.Data{Term: with(lapsed, func(t *oracle.Term) { t.Nonce = "" })}, ask: acquiring(nil),
		want: lease.Won, reason: "forgotten", token: askNow},
	{name: "not one ms before the end of the lease", data: held(oracle.Lease{Holder: "b", Expires: 1}, with(bTerm, func(t *oracle.Term) { t.Until = 1 })),
		ask: acquiring(nil), want: lease.Held, reason: "lease", token: 41, wait: 1, mini: true},
	{name: "grant beyond the floor", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Token = 3_000_000_000_000 })}, ask: acquiring(nil),
		want: lease.Won, token: 3_000_000_000_001},
	{name: "adopt our own", data: held(aLease, aTerm), ask: floor(41), want: lease.Won, token: 41},
	{name: "adopt our own without a since key", data: oracle.Data{Lease: aLease, Term: aTerm}, ask: acquiring(nil), want: lease.Won, token: 41},
	{name: "not our own while a hold runs", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Hold = 300 })), ask: acquiring(nil),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "not our own of an older snapshot", data: held(aLease, aTerm), ask: floor(42), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "not the same ID of another campaign", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Nonce = "other" })), ask: acquiring(nil),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "held by another", data: held(bLease, bTerm), ask: acquiring(nil), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "held by a foreign client", data: oracle.Data{Lease: foreign}, ask: acquiring(nil), want: lease.Held, reason: "foreign", wait: 600},
	{name: "held by a foreign client without expiry", data: oracle.Data{Lease: oracle.Lease{Holder: "cron-7"}, Term: released}, ask: acquiring(nil),
		want: lease.Held, reason: "foreign", token: 41, wait: 1000},
	{name: "held by a foreign client for longer than any of ours", data: oracle.Data{Lease: oracle.Lease{Holder: "cron-7", Expires: 90_000}}, ask: acquiring(nil),
		want: lease.Held, reason: "foreign", wait: 90_000},
	{name: "until: deleted by an operator", data: oracle.Data{Term: bTerm}, ask: acquiring(nil), want: lease.Held, reason: "until", token: 41, wait: 600},
	{name: "until: to its very end", data: oracle.Data{Term: with(bTerm, func(t *oracle.Term) { t.Until = 1 })}, ask: acquiring(nil),
		want: lease.Held, reason: "until", token: 41, wait: 1, mini: true},
	{name: "clamp: until", data: oracle.Data{Term: with(bTerm, func(t *oracle.Term) { t.Until = 500_000 })}, ask: acquiring(nil),
		want: lease.Held, reason: "until", token: 41, wait: 1000},
	{name: "clamp: hold", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold = 500_000 })}, ask: acquiring(nil),
		want: lease.Held, reason: "hold", token: 41, wait: 2000},
	{name: "clamp: hold, with margin and restart guard", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold = 500_000 })},
		asker: oracle.Asker{Margin: 100, RestartGuard: 4000}, ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 5000},
	{name: "clamp: lease", data: held(oracle.Lease{Holder: "b", Expires: 500_000}, bTerm), ask: acquiring(nil), want: lease.Held, reason: "lease", token: 41, wait: 1000},
	{name: "clamp: lease without expiry", data: held(oracle.Lease{Holder: "b"}, bTerm), ask: acquiring(nil), want: lease.Held, reason: "lease", token: 41, wait: 1000},
	{name: "hold", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold = 700 })}, ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 700},
	{name: "memory: counter lost", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Token, t.Nonce = 40, "na" })}, ask: floor(41),
		want: lease.Held, reason: "hold", token: 41, wait: 1000},
	{name: "memory: everything lost", ask: floor(41), want: lease.Held, reason: "hold", token: 41, wait: 1000},
	{name: "memory: arms once", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Nonce, t.Hold = "", -1 })}, ask: floor(41), want: lease.Won, token: askNow},
	{name: "memory: a lease of another stays", data: held(oracle.Lease{Holder: "b", Expires: 600}, bTerm), ask: floor(99),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "memory: of somebody else", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Floor = 3_000_000_000_000 })}, ask: acquiring(nil),
		want: lease.Won, token: 3_000_000_000_001},
	{name: "memory: not our own below it", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Floor = 99 })), ask: acquiring(nil),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "rollcall", ask: acquiring(nil), want: lease.RollCall, reason: "empty", wait: 250},
	{name: "rollcall goes on", data: oracle.Data{Term: oracle.Term{Origin: "here", Hold: 200, Asked: -50}}, ask: acquiring(nil), want: lease.Held, reason: "empty", wait: 200},
	{name: "rollcall is over", data: oracle.Data{Term: oracle.Term{Origin: "here", Hold: -1, Asked: -251}}, ask: acquiring(nil), want: lease.Won, token: askNow},
	{name: "rollcall: another waits for longer", data: oracle.Data{Term: oracle.Term{Origin: "here", Hold: 200, Asked: -50}},
		asker: oracle.Asker{EmptyWait: 1000}, ask: acquiring(nil), want: lease.Held, reason: "empty", wait: 950},
	{name: "rollcall: another waits for less", data: oracle.Data{Term: oracle.Term{Origin: "here", Hold: 950, Asked: -50}},
		ask: acquiring(nil), want: lease.Held, reason: "hold", wait: 950},
	{name: "rollcall: clock set back", data: oracle.Data{Term: oracle.Term{Origin: "here", Hold: 500_250, Asked: 500_000}},
		ask: acquiring(nil), want: lease.Held, reason: "hold", wait: 2000},
	{name: "rollcall is off", asker: oracle.Asker{EmptyWait: askNow}, ask: acquiring(nil), want: lease.Won, token: askNow},
	{name: "guard: another history", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Origin = "0d" })}, ask: acquiring(nil),
		want: lease.Held, reason: "hold", token: 41, wait: 1000},
	{name: "guard: margin", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Origin = "0d" })}, asker: oracle.Asker{Margin: 250}, ask: acquiring(nil),
		want: lease.Held, reason: "hold", token: 41, wait: 1250},
	{name: "guard: margin of another", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Origin, t.Margin = "0d", oracle.Named{Length: 250, At: -100_000} })},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 1250},
	{name: "guard: an older margin than another has armed is not clamped", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Margin = 9000, oracle.Named{Length: 8000, At: -3000} })},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 9000},
	{name: "guard: margin that was not named for long", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Margin = 9000, oracle.Named{Length: 8000, At: -4001} })},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 2000, mini: true},
	{name: "guard: longer for another on a young server", facts: oracle.Facts{Origin: "here", Uptime: 2000},
		data:  oracle.Data{Term: oracle.Term{Origin: "here", Hold: 1000, Asked: -100}},
		asker: oracle.Asker{RestartGuard: 5000}, ask: acquiring(nil), want: lease.Held, reason: "young", wait: 4000, mini: true},
	{name: "guard: the same for another on a young server", facts: oracle.Facts{Origin: "here", Uptime: 2000},
		data:  oracle.Data{Term: oracle.Term{Origin: "here", Hold: 3400, Asked: -100}},
		asker: oracle.Asker{RestartGuard: 5000}, ask: acquiring(nil), want: lease.Held, reason: "young", wait: 3400, mini: true},
	{name: "guard: noted by whole seconds, on a server that is old enough by now", facts: oracle.Facts{Origin: "here", Uptime: 6000},
		data:  oracle.Data{Term: oracle.Term{Origin: "here", Hold: 300, Asked: -100}},
		asker: oracle.Asker{RestartGuard: 5000}, ask: acquiring(nil), want: lease.Held, reason: "young", wait: 300, mini: true},
	{name: "guard: longer for another on a promoted server", facts: oracle.Facts{Origin: "here", Promoted: true, Uptime: 100_000},
		data:  oracle.Data{Term: oracle.Term{Origin: "here", Hold: 900, Asked: -100}},
		asker: oracle.Asker{Margin: 3000}, ask: acquiring(nil), want: lease.Held, reason: "hold", wait: 3900, mini: true},
	{name: "guard: not our own in another history", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Origin = "0d" })), ask: acquiring(nil),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "guard: promoted without history", facts: oracle.Facts{Origin: "here", Promoted: true, Uptime: 100_000}, ask: acquiring(nil),
		want: lease.RollCall, reason: "empty", wait: 1000, mini: true},
	{name: "guard: young", facts: oracle.Facts{Origin: "here"}, asker: oracle.Asker{RestartGuard: 0, EmptyWait: 1}, ask: acquiring(nil),
		want: lease.RollCall, reason: "young", wait: 2000, mini: true},
	{name: "guard: own restart guard", facts: oracle.Facts{Origin: "here", Uptime: 2000}, asker: oracle.Asker{RestartGuard: 5000}, ask: acquiring(nil),
		want: lease.RollCall, reason: "young", wait: 4000, mini: true},
	{name: "guard: perhaps not old enough", facts: oracle.Facts{Origin: "here", Uptime: 5000}, asker: oracle.Asker{RestartGuard: 5000}, ask: acquiring(nil),
		want: lease.RollCall, reason: "young", wait: 1000, mini: true},
	{name: "guard: over before the rollcall", facts: oracle.Facts{Origin: "here", Uptime: 5000}, asker: oracle.Asker{RestartGuard: 4100}, ask: acquiring(nil),
		want: lease.RollCall, reason: "empty", wait: 250, mini: true},
	{name: "guard: old enough", facts: oracle.Facts{Origin: "here", Uptime: 6000}, asker: oracle.Asker{RestartGuard: 5000}, ask: acquiring(nil),
		want: lease.RollCall, reason: "empty", wait: 250, mini: true},
	{name: "guard: off", facts: oracle.Facts{Origin: "here"}, ask: acquiring(nil), want: lease.RollCall, reason: "empty", wait: 250, mini: true},
	{name: "unknown history is not compared", data: oracle.Data{Term: released}, asker: oracle.Asker{NoInfo: true}, ask: acquiring(nil), want: lease.Won, token: askNow, mini: true},
	{name: "longest TTL: term hash", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Origin, t.TTL = "0d", 9000 })}, ask: acquiring(nil),
		want: lease.Held, reason: "hold", token: 41, wait: 9000},
	{name: "longest TTL: named", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Origin, t.Longest = "0d", oracle.Named{Length: 9000, At: -100_000} })},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 9000},
	{name: "longest TTL: named on this history", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Longest = oracle.Named{Length: 9000, At: -35_000} })},
		ask: floor(42), want: lease.Held, reason: "hold", token: 42, wait: 9000},
	{name: "longest TTL: not named for long", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Longest = oracle.Named{Length: 9000, At: -37_000} })},
		ask: floor(42), want: lease.Held, reason: "hold", token: 42, wait: 1000},
	{name: "longest TTL: named long ago by a clock that was set back", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Longest = oracle.Named{Length: 9000, At: 900_000} })},
		ask: floor(42), want: lease.Held, reason: "hold", token: 42, wait: 1000},
	{name: "longest TTL: HoldOff of another counts", asker: oracle.Asker{HoldOff: 4000}, data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Longest = oracle.Named{Length: 4000, At: -5000} })},
		ask: floor(42), want: lease.Held, reason: "hold", token: 42, wait: 4000},
	{name: "longest TTL: absurd", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Longest = oracle.Named{Length: 90_000_000, At: -1} })},
		ask: floor(42), want: lease.Held, reason: "hold", token: 42, wait: 1000},
	{name: "hold grows: a longer TTL is told while it runs", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Armed = 500, 400 })},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 1100},
	{name: "hold grows: told after its end", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Armed = -100, 400 })},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 500},
	{name: "hold grows: the longer one is over too", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Armed = -600, 400 })},
		ask: acquiring(nil), want: lease.Won, token: askNow},
	{name: "hold grows: margin", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Armed = 500, 1000 })}, asker: oracle.Asker{Margin: 250},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 750},
	{name: "hold grows: learned", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Armed = 500, 1000 })},
		ask: acquiring(func(r *lease.Request) { r.HoldOff = store.Milliseconds(7000) }), want: lease.Held, reason: "hold", token: 41, wait: 6500},
	{name: "hold grows: beside a lease", data: held(oracle.Lease{Holder: "b", Expires: 600}, with(bTerm, func(t *oracle.Term) { t.Hold, t.Armed = 500, 400 })),
		ask: acquiring(nil), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "hold does not grow: as long", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold, t.Armed = 500, 1000 })},
		ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 500},
	{name: "longest TTL: learned", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Origin = "0d" })},
		ask: acquiring(func(r *lease.Request) { r.HoldOff = store.Milliseconds(7000) }), want: lease.Held, reason: "hold", token: 41, wait: 7000},
	{name: "offered: the heir counts as ready", data: held(bLease, offered), ask: acquiring(nil), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "offered: the heir asks again", data: held(bLease, with(offered, func(t *oracle.Term) { t.Ready = 20 })), ask: acquiring(nil),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "offered to another", data: held(bLease, with(offered, func(t *oracle.Term) { t.Heir = "c" })), ask: acquiring(nil),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "offered, then taken by a foreign client", data: held(foreign, offered), ask: acquiring(nil), want: lease.Held, reason: "foreign", token: 41, wait: 600},
	{name: "offered: the grant ends it", data: oracle.Data{Term: with(lapsed, func(t *oracle.Term) { t.Heir, t.Ready = "c", 100 })}, ask: acquiring(nil),
		want: lease.Won, reason: "lapsed", token: askNow},
	{name: "reserved for another", data: oracle.Data{Term: reserved}, ask: acquiring(nil), want: lease.Held, reason: "reserved", token: 41, wait: 300},
	{name: "reserved for the heir", data: oracle.Data{Term: with(reserved, func(t *oracle.Term) { t.Heir = "a" })}, ask: acquiring(nil), want: lease.Won, token: askNow},
	{name: "reserved until now", data: oracle.Data{Term: with(reserved, func(t *oracle.Term) { t.Reserved = -1 })}, ask: acquiring(nil), want: lease.Won, token: askNow},
	{name: "reserved, to its very end", data: oracle.Data{Term: with(reserved, func(t *oracle.Term) { t.Reserved = 1 })}, ask: acquiring(nil),
		want: lease.Held, reason: "reserved", token: 41, wait: 1, mini: true},
	{name: "reserved: the heir waits for holds", data: oracle.Data{Term: with(reserved, func(t *oracle.Term) { t.Heir, t.Hold = "a", 700 })}, ask: acquiring(nil),
		want: lease.Held, reason: "hold", token: 41, wait: 700},
	{name: "reserved: the heir waits for lost leases", data: oracle.Data{Term: with(bTerm, func(t *oracle.Term) { t.Heir, t.Reserved = "a", 300 })}, ask: acquiring(nil),
		want: lease.Held, reason: "until", token: 41, wait: 600},
	{name: "reserved: every other reason comes first", data: oracle.Data{Term: with(reserved, func(t *oracle.Term) { t.Hold = 100 })}, ask: acquiring(nil),
		want: lease.Held, reason: "hold", token: 41, wait: 100},
	{name: "reserved: clamp", data: oracle.Data{Term: with(reserved, func(t *oracle.Term) { t.Reserved = 500_000 })}, ask: acquiring(nil),
		want: lease.Held, reason: "reserved", token: 41, wait: 333},
	{name: "reserved: clamp of a long hold-off", data: oracle.Data{Term: with(reserved, func(t *oracle.Term) { t.Reserved, t.TTL = 500_000, 60_000 })}, ask: acquiring(nil),
		want: lease.Held, reason: "reserved", token: 41, wait: 5000},
	{name: "yield: to the best that asks", data: oracle.Data{Term: wanted}, ask: prefers(1), want: lease.Held, reason: "yield", token: 41, wait: 50},
	{name: "yield: the slice begins after the hold", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Hold = -10 })}, ask: prefers(1),
		want: lease.Held, reason: "yield", token: 41, wait: 90},
	{name: "yield: the slice is over", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Until = -100 })}, ask: prefers(1), want: lease.Won, token: askNow},
	{name: "yield: the best", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Best.ID = "a" })}, ask: prefers(3), want: lease.Won, token: askNow},
	{name: "yield: the best, less preferred since", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Best.ID = "a" })}, ask: prefers(0), want: lease.Won, token: askNow},
	{name: "yield: as good", data: oracle.Data{Term: wanted}, ask: prefers(3), want: lease.Won, token: askNow},
	{name: "yield: better", data: oracle.Data{Term: wanted}, ask: prefers(4), want: lease.Won, token: askNow},
	{name: "yield: not to one that asks no more", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Best.Until = -1 })}, ask: prefers(1), want: lease.Won, token: askNow},
	{name: "yield: not to one from before a clock was set back", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Best.Until = 500_000 })}, ask: prefers(1),
		want: lease.Won, token: askNow},
	{name: "yield: a clock that was set back in the slice", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Until = 500_000 })}, ask: prefers(1),
		want: lease.Held, reason: "yield", token: 41, wait: 100},
	{name: "yield: every other reason comes first", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Heir, t.Reserved = "b", 300 })}, ask: prefers(1),
		want: lease.Held, reason: "reserved", token: 41, wait: 300},
	{name: "yield: not by the heir of a reservation", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Heir, t.Reserved = "a", 300 })}, ask: prefers(1),
		want: lease.Won, token: askNow},
	{name: "yield: by the heir of one that is over", data: oracle.Data{Term: with(wanted, func(t *oracle.Term) { t.Heir, t.Reserved = "a", -1 })}, ask: prefers(1),
		want: lease.Held, reason: "yield", token: 41, wait: 50},
	{name: "yield: one that does not hear is nobody's candidate, and waits for none", data: oracle.Data{Term: wanted}, ask: mute(1), want: lease.Won, token: askNow},
	{name: "best: noted beside a lease", data: held(bLease, bTerm), ask: prefers(1), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: zero is not noted", data: held(bLease, bTerm), ask: prefers(0), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: zero is better than less", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Best = oracle.Best{ID: "c", Rank: -2, Until: 500} })),
		ask: prefers(0), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: a better one stays", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Best = oracle.Best{ID: "c", Rank: 2, Until: 500} })),
		ask: prefers(1), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: anyone, to an open offer", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Heir = lease.Anyone })), ask: prefers(0),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: to an open offer, one that does not hear", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Heir = lease.Anyone })), ask: mute(0),
		want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: by the last digit of long numbers", data: held(bLease, with(bTerm, func(t *oracle.Term) {
		t.Best = oracle.Best{ID: "c", Rank: 8_999_999_999_999_998, Until: 500}
	})), ask: prefers(8_999_999_999_999_999), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: likewise below zero", data: held(bLease, with(bTerm, func(t *oracle.Term) {
		t.Best = oracle.Best{ID: "c", Rank: -8_999_999_999_999_998, Until: 500}
	})), ask: prefers(-8_999_999_999_999_999), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "best: does not hear", data: held(bLease, bTerm), ask: mute(5), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "memory: late", data: oracle.Data{Term: released}, ask: acquiring(func(r *lease.Request) { r.NotAfter, r.Floor = -1, 99 }), want: lease.Stale},
	{name: "stale, on a token past belief", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Token = 9_000_000_000_000_000 })},
		ask: acquiring(func(r *lease.Request) { r.NotAfter = -1 }), want: lease.Unknown, reason: "BADTERM"},
	{name: "stale", data: oracle.Data{Term: released}, ask: acquiring(func(r *lease.Request) { r.NotAfter = -1 }), want: lease.Stale},
	{name: "not yet stale", data: oracle.Data{Term: released}, ask: acquiring(func(r *lease.Request) { r.NotAfter = 5000 }), want: lease.Won, token: askNow},
	{name: "token past belief", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Token = 9_000_000_000_000_000 })}, ask: acquiring(nil), want: lease.Unknown, reason: "BADTERM"},
}

var renewCases = []leaseCase{
	{name: "kept", data: held(aLease, aTerm), ask: renewing(nil), want: lease.Kept, token: 41},
	{name: "kept, since key lost", data: oracle.Data{Lease: aLease, Term: aTerm}, ask: renewing(nil), want: lease.Kept, token: 41},
	{name: "kept while draining", data: held(aLease, aTerm), ask: renewing(func(r *lease.Request) { r.Draining = true }), want: lease.Kept, token: 41},
	{name: "kept under another history: arms the hold-off", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Origin = "0d" })),
		asker: oracle.Asker{Margin: 200}, ask: renewing(func(r *lease.Request) { r.Origin = "0d" }), want: lease.Kept, token: 41},
	{name: "stale", data: held(aLease, aTerm), ask: renewing(func(r *lease.Request) { r.NotAfter = -1 }), want: lease.Stale},
	{name: "taken by another", data: held(bLease, bTerm), ask: renewing(nil), want: lease.Lost, reason: "taken", token: 41},
	{name: "taken by a foreign client", data: held(foreign, aTerm), ask: renewing(nil), want: lease.Lost, reason: "foreign", token: 41},
	{name: "taken by a foreign client under the ID of the last leader", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Released = true })),
		ask: renewing(nil), want: lease.Lost, reason: "foreign", token: 41},
	{name: "taken by another campaign under our ID", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Nonce = "other" })), ask: renewing(nil),
		want: lease.Lost, reason: "taken", token: 41},
	{name: "memory: refused", data: held(foreign, with(aTerm, func(t *oracle.Term) { t.Token = 40 })), ask: renewing(nil), want: lease.Lost, reason: "foreign", token: 40},
	{name: "memory: refused, of a token seen before", data: held(bLease, bTerm), ask: renewing(func(r *lease.Request) { r.Floor = 99 }),
		want: lease.Lost, reason: "taken", token: 41},
	{name: "memory: late", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Token = 40 })), ask: renewing(func(r *lease.Request) { r.NotAfter = -1 }), want: lease.Stale},
	{name: "memory: late, of a token seen before", data: held(aLease, aTerm), ask: renewing(func(r *lease.Request) { r.NotAfter, r.Floor = -1, 99 }), want: lease.Stale},
	{name: "memory: kept", data: held(aLease, aTerm), ask: renewing(func(r *lease.Request) { r.Floor = 99 }), want: lease.Kept, token: 41},
	{name: "relic: an older lease is taken back", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Token = 40 })), ask: renewing(nil), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "relic: an older lease of another campaign under our ID", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Nonce, t.Token = "other", 40 })),
		ask: renewing(nil), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "relic: not while draining", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Token = 40 })),
		ask: renewing(func(r *lease.Request) { r.Draining = true }), want: lease.Lost, reason: "taken", token: 40},
	{name: "relic: not from a foreign client", data: held(foreign, with(bTerm, func(t *oracle.Term) { t.Token = 40 })), ask: renewing(nil),
		want: lease.Lost, reason: "foreign", token: 40},
	{name: "relic: not one that was released, then taken by a foreign client", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Token, t.Released = 40, true })),
		ask: renewing(nil), want: lease.Lost, reason: "foreign", token: 40},
	{name: "relic: not a later one", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Token, t.Origin = 42, "0d" })),
		ask: renewing(func(r *lease.Request) { r.Origin = "0d" }), want: lease.Lost, reason: "taken", token: 42},
	{name: "released", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Released, t.Until = true, 0 })}, ask: renewing(nil), want: lease.Lost, reason: "released", token: 41},
	{name: "vanished: deleted by an operator", data: oracle.Data{Term: aTerm}, ask: renewing(nil), want: lease.Lost, reason: "vanished", token: 41},
	{name: "vanished: a newer token", data: oracle.Data{Term: with(bTerm, func(t *oracle.Term) { t.Token = 42 })}, ask: renewing(nil), want: lease.Lost, reason: "vanished", token: 42},
	{name: "kept: hears of the best", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Best = oracle.Best{ID: "c", Rank: -2, Until: 60_000} })),
		ask: renewing(nil), want: lease.Kept, token: 41},
	{name: "kept: not of one that asks no more", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Best = oracle.Best{ID: "c", Rank: 7, Until: -1} })),
		ask: renewing(nil), want: lease.Kept, token: 41},
	{name: "offers to anyone", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Best = oracle.Best{ID: "c", Rank: 7, Until: 60_000} })),
		ask: offering(lease.Anyone), want: lease.Kept, token: 41},
	{name: "offers to anyone, and one has asked", data: held(aLease, with(aTerm, func(t *oracle.Term) {
		t.Heir, t.Best = lease.Anyone, oracle.Best{ID: "c", Until: 60_000}
	})), ask: offering(lease.Anyone), want: lease.Kept, token: 41},
	{name: "offers to the one that has asked", data: held(aLease, with(aTerm, func(t *oracle.Term) {
		t.Heir, t.Best = lease.Anyone, oracle.Best{ID: "c", Until: 60_000}
	})), ask: offering("c"), want: lease.Kept, token: 41},
	{name: "offers", data: held(aLease, aTerm), ask: offering("c"), want: lease.Kept, token: 41},
	{name: "offers again, and the heir is ready", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", 60_000 })), ask: offering("c"),
		want: lease.Kept, token: 41},
	{name: "offers again, the heir has asked long ago", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", -1 })), ask: offering("c"),
		want: lease.Kept, token: 41},
	{name: "offers to another", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "b", 60_000 })), ask: offering("c"), want: lease.Kept, token: 41},
	{name: "offers no more", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "b", 60_000 })), ask: offering(""), want: lease.Kept, token: 41},
	{name: "offers while it drains", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", 60_000 })),
		ask: renewing(func(r *lease.Request) { r.Heir, r.Draining = "c", true }), want: lease.Kept, token: 41},
	{name: "offers after a reclaim", ask: offering("c"), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "offers what is another's", data: held(bLease, bTerm), ask: offering("c"), want: lease.Lost, reason: "taken", token: 41},
	{name: "reclaim: everything lost", ask: renewing(nil), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "reclaim: an older token", data: oracle.Data{Term: with(bTerm, func(t *oracle.Term) { t.Token, t.Until = 40, 0 })}, ask: renewing(nil), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "reclaim: an older token, released", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Token = 40 })}, ask: renewing(nil), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "reclaim: nonce lost", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Nonce = "" })}, ask: renewing(nil), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "reclaim: term hash evicted", data: oracle.Data{Lease: aLease}, ask: renewing(nil), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "kept under another history: the longest TTL and margin that were named", ask: renewing(func(r *lease.Request) { r.Origin = "0d" }), want: lease.Kept, token: 41,
		data: held(aLease, with(aTerm, func(t *oracle.Term) {
			t.Origin, t.Longest, t.Margin = "0d", oracle.Named{Length: 9000, At: -100_000}, oracle.Named{Length: 700, At: -100_000}
		}))},
	{name: "kept: names its TTL again", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Longest = oracle.Named{Length: 1000, At: -1001} })),
		ask: renewing(nil), want: lease.Kept, token: 41, mini: true},
	{name: "kept: named a while ago", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Longest = oracle.Named{Length: 1000, At: -1000} })),
		ask: renewing(nil), want: lease.Kept, token: 41, mini: true},
	{name: "reclaim: another history", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Origin = "0d" })},
		ask: renewing(func(r *lease.Request) { r.Origin = "0d" }), want: lease.Kept, reason: "reclaimed", token: 41},
	{name: "no reclaim: history was not known", data: oracle.Data{Term: aTerm}, ask: renewing(func(r *lease.Request) { r.Origin = "" }), want: lease.Lost, reason: "vanished", token: 41},
	{name: "no reclaim while draining", ask: renewing(func(r *lease.Request) { r.Draining = true }), want: lease.Lost, reason: "vanished"},
	{name: "no reclaim after a release", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Released, t.Origin = true, "0d" })},
		ask: renewing(func(r *lease.Request) { r.Origin = "0d" }), want: lease.Lost, reason: "released", token: 41},
	{name: "no reclaim of another's token", data: oracle.Data{Term: with(bTerm, func(t *oracle.Term) { t.Origin = "0d" })},
		ask: renewing(func(r *lease.Request) { r.Origin = "0d" }), want: lease.Lost, reason: "vanished", token: 41},
	{name: "no reclaim from another", data: oracle.Data{Lease: bLease}, ask: renewing(nil), want: lease.Lost, reason: "foreign"},
	{name: "token past belief", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Token = 9_000_000_000_000_000 })), ask: renewing(nil), want: lease.Unknown, reason: "BADTERM"},
}

var releaseCases = []leaseCase{
	{name: "by nonce and token", data: held(aLease, aTerm), ask: releasing("na", 41), want: lease.Done, token: 41},
	{name: "never won", data: held(aLease, aTerm), ask: releasing("na", 0), want: lease.Done, token: 41},
	{name: "wrong nonce", data: held(aLease, aTerm), ask: releasing("nb", 41), want: lease.Done, token: 41},
	{name: "wrong nonce, never won", data: held(aLease, aTerm), ask: releasing("nb", 0), want: lease.Done, token: 41},
	{name: "wrong token", data: held(aLease, aTerm), ask: releasing("na", 40), want: lease.Done, token: 41},
	{name: "repeated", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Released, t.Until = true, 0 })}, ask: releasing("na", 41), want: lease.Done, token: 41},
	{name: "late: another leads", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Token = 42 })), ask: releasing("na", 41), want: lease.Done, token: 42},
	{name: "late: the lease has lapsed", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Until = -5 })}, ask: releasing("na", 41), want: lease.Done, token: 41},
	{name: "a foreign client holds the key", data: held(foreign, aTerm), ask: releasing("na", 41), want: lease.Done, token: 41},
	{name: "nothing there", ask: releasing("na", 41), want: lease.Done},
	{name: "reserves for an heir that asks", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", 60_000 })), ask: handing(333), want: lease.Done, token: 41},
	{name: "reserves for five seconds at most", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", 60_000 })), ask: handing(60_000),
		want: lease.Done, token: 41},
	{name: "reserves nothing for an heir that asks no more", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", -1 })), ask: handing(333),
		want: lease.Done, token: 41},
	{name: "reserves nothing for another", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "b", 60_000 })), ask: handing(333), want: lease.Done, token: 41},
	{name: "reserves nothing again", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready, t.Reserved, t.Released, t.Until = "c", 60_000, -100, true, 0 })},
		ask: handing(333), want: lease.Done, token: 41},
	{name: "reserves, and the key was deleted", data: oracle.Data{Term: with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", 60_000 })}, ask: handing(333),
		want: lease.Done, token: 41},
	{name: "reserves nothing of another's", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Heir, t.Ready = "c", 60_000 })), ask: handing(333), want: lease.Done, token: 41},
	{name: "plain, and forgets the offer", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Heir, t.Ready, t.Reserved = "c", 60_000, 500 })), ask: releasing("na", 41),
		want: lease.Done, token: 41},
	{name: "memory: of a grant that was lost", data: held(bLease, with(bTerm, func(t *oracle.Term) { t.Token = 40 })), ask: releasing("na", 41), want: lease.Done, token: 40},
	{name: "memory: never won", data: held(bLease, bTerm), ask: lease.Request{Kind: lease.Release, Nonce: "na", Floor: 99}, want: lease.Done, token: 41},
	{name: "token past belief", data: held(aLease, with(aTerm, func(t *oracle.Term) { t.Token = 9_000_000_000_000_000 })), ask: releasing("na", 0), want: lease.Unknown, reason: "BADTERM"},
}

var leaderCases = []leaseCase{
	{name: "nobody", data: oracle.Data{Term: lapsed}, want: lease.Unknown},
	{name: "a leader", data: held(aLease, aTerm), want: lease.Held, reason: "lease", token: 41, wait: 600},
	{name: "a foreign client", data: oracle.Data{Lease: foreign, Term: released}, want: lease.Held, reason: "foreign", wait: 600},
	{name: "a foreign client without expiry", data: oracle.Data{Lease: oracle.Lease{Holder: "cron-7"}}, want: lease.Held, reason: "foreign", wait: -1},
	{name: "a foreign client under the ID of the last leader", data: oracle.Data{Lease: bLease, Term: released}, want: lease.Held, reason: "foreign", wait: 600},
}

func TestLeaseScripts(t *testing.T) {
	clusters := map[string]func(t *testing.T) *leaseCluster{
		"miniredis": func(t *testing.T) *leaseCluster { return miniLease(t) },
		"redis": func(t *testing.T) *leaseCluster {
			if testing.Short() {
				t.Skip("starts a redis-server")
			}
			return realLease(t, redistest.Start(t))
		},
	}
	for where, open := range clusters {
		t.Run(where, func(t *testing.T) {
			w := open(t)
			for kind, cases := range map[string][]leaseCase{"acquire": acquireCases, "renew": renewCases, "release": releaseCases, "leader": leaderCases} {
				for _, tt := range cases {
					if kind == "leader" {
						tt.ask.Kind = askLeader
					}
					t.Run(kind+"/"+tt.name, func(t *testing.T) {
						if w.mini == nil && tt.mini {
							return // its INFO, or its clock, cannot be set
						}
						tt.check(t.Context(), t, w)
					})
				}
			}
		})
	}
}

// check asks a Redis and the oracle, twice: running a script again, with the same question, is
// running it once.
func (tt leaseCase) check(ctx context.Context, t *testing.T, w *leaseCluster) {
	t.Helper()
	now, err := w.clock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	model := tt.model(w, now)
	if w.mini != nil {
		w.set(now, model.Facts, tt.asker.NoInfo)
	}
	if err := w.load(ctx, model.Data); err != nil {
		t.Fatal(err)
	}
	question, first := tt.request(w, now), oracle.Reply{}
	for _, again := range []bool{false, true} {
		got, err := w.asker(tt.asking()).ask(ctx, question)
		if err != nil {
			t.Fatal(err)
		}
		if got.Now != 0 {
			now = got.Now
		}
		want := predict(&model, now, tt.asking(), question)
		data, err := w.dump(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.same(got, want, data, model.Data); err != nil {
			t.Fatalf("again %v: %v", again, err)
		}
		if told, err := w.told(ctx); err != nil || told != model.Told {
			t.Fatalf("again %v: the history of terms gets %+v, %v, want %+v", again, told, err, model.Told)
		}
		if again {
			if got.Verdict != first.Verdict || first.Verdict == lease.Won && got.Token != first.Token {
				if first.Verdict != lease.RollCall { // then the roll-call is on
					t.Errorf("asked again: %+v, at first %+v", got, first)
				}
			}
			return
		}
		first = got
		token := tt.token
		if token == askNow {
			token = now
		}
		if got.Verdict != tt.want || got.Reason != tt.reason || got.Token != token {
			t.Errorf("verdict %d reason %q token %d, want %d %q %d", got.Verdict, got.Reason, got.Token, tt.want, tt.reason, token)
		}
		if w.mini != nil && got.Wait.Milliseconds() != tt.wait {
			t.Errorf("wait %v, want %d ms", got.Wait, tt.wait)
		}
	}
}

// asking completes the asker of a case.
func (tt leaseCase) asking() oracle.Asker {
	a := oracle.Asker{ID: "a", TTL: 1000, HoldOff: tt.asker.HoldOff, EmptyWait: 250, Margin: tt.asker.Margin, RestartGuard: -1, NoInfo: tt.asker.NoInfo}
	switch {
	case tt.asker.EmptyWait == askNow:
		a.EmptyWait = 0
	case tt.asker.EmptyWait > 1:
		a.EmptyWait = tt.asker.EmptyWait
	case strings.HasPrefix(tt.name, "guard: young"):
		a.RestartGuard = 0
	}
	if tt.asker.RestartGuard > 0 {
		a.RestartGuard = tt.asker.RestartGuard
	}
	return a
}

func (tt leaseCase) request(w *leaseCluster, now int64) lease.Request {
	r := tt.ask
	if r.NotAfter != 0 {
		r.NotAfter += now
	}
	if r.Origin == "here" {
		r.Origin = w.here()
	}
	return r
}

func (w *leaseCluster) here() string {
	if w.mini != nil {
		return "beef"
	}
	return w.history
}

// model makes the times of a case absolute.
func (tt leaseCase) model(w *leaseCluster, now int64) oracle.Redis {
	m := oracle.Redis{Rules: oracle.All, Facts: tt.facts, Data: tt.data}
	if m.Facts == (oracle.Facts{}) {
		m.Facts = oracle.Facts{Origin: "here", Uptime: 100_000}
	}
	for _, at := range []*int64{&m.Lease.Expires, &m.Since.Expires, &m.Term.Until, &m.Term.Hold, &m.Term.Asked, &m.Term.Longest.At, &m.Term.Margin.At,
		&m.Term.Ready, &m.Term.Reserved, &m.Term.Best.Until} {
		if *at != 0 {
			*at += now
		}
	}
	for _, origin := range []*string{&m.Facts.Origin, &m.Term.Origin} {
		if *origin == "here" {
			*origin = w.here()
		}
	}
	return m
}
