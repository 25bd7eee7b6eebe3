// Package oracle states the rules of the lease scripts a second time, in Go and as a pure value:
// one role on one Redis.
//
// It is written from the design, not from scripts.lua, so that a difference between the two shows a
// mistake in one of them: the tests of package tenure hold the scripts against it on miniredis and
// on a real redis-server, and the simulation in this package drives candidates against it through
// faults. Every rule can be switched off, to show that its absence is noticed.
//
// Times and durations are Redis milliseconds, as in the scripts.
package oracle

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Redis is one role on one server. It is a plain value: a copy is a snapshot.
type Redis struct {
	Rules Rules // in force
	Facts       // of the machine
	Data        // what a replica or a snapshot carries
	Told  Told  // what the last question added to the history of terms
}

// Told are the entries that one question adds to the history of terms: at most an end and a
// beginning. A zero one is none.
type Told struct{ Ended, Began store.TermEntry }

// Facts are what INFO says of a server.
type Facts struct {
	Origin   string // replication id; "": not known
	Promoted bool   // it was a replica once, or came back with its data
	Uptime   int64  // in ms, whole seconds
}

// Data are the three keys of the role.
type Data struct {
	Lease Lease
	Since Since
	Term  Term
}

// Lease is the lease key.
type Lease struct {
	Holder  string // "": there is no key
	Expires int64  // Redis time; 0: never
}

// Since is the key that says when the leadership began.
type Since struct {
	There   bool
	Unix    int64 // seconds
	Expires int64
}

// Term is the term hash. A zero field is an absent one.
type Term struct {
	Token    int64
	Nonce    string
	Holder   string // instance ID that the last lease was granted to
	Until    int64
	TTL      int64
	Released bool
	Origin   string
	Hold     int64
	Armed    int64 // how long the hold-off was that Hold is the end of; 0: a roll-call or a young server holds
	Asked    int64 // when leaders were first asked to speak up, on an empty history
	Longest  Named // TTL
	Margin   Named // FailoverMargin
	Floor    int64 // highest token that an asker named, if it was above those known here
	Heir     string
	Ready    int64 // the heir counts as asking until then
	Reserved int64 // the vacancy is left to the heir until then
	Best     Best
}

// Best is the candidate of the highest rank that asks.
type Best struct {
	ID    string
	Rank  lease.Rank
	Until int64 // it counts until then
}

// Named is the longest of a duration that askers have named, and when it was last named.
type Named struct {
	Length int64
	At     int64
}

// kept says for how many times its length a duration is remembered.
const kept = 4

// name takes note of a duration, and returns the longest that is known. It is forgotten when it was
// not named for long, but for a new history, where the time was another machine's.
func (n *Named) name(now, own, known, period int64, elsewhere bool) int64 {
	overdue := now-n.At > period || n.At-now > period
	if own > known || known > 0 && (elsewhere || own == known && overdue) {
		*n = Named{Length: max(own, known), At: now}
	}
	return max(own, known)
}

func (n *Named) recall(now, period int64, elsewhere bool) int64 {
	late := !elsewhere && (now-n.At > kept*period || n.At-now > kept*period)
	if late || n.Length > lease.MaxTTL.Milliseconds() { // tenure did not write that
		return 0
	}
	return n.Length
}

// Asker is what one candidate says with each of its requests.
type Asker struct {
	ID           string
	TTL          int64
	HoldOff      int64 // the option; 0: no longer than the TTL
	EmptyWait    int64 // 0: none
	Margin       int64 // FailoverMargin
	RestartGuard int64 // 0: the hold-off; negative: off
	NoInfo       bool  // INFO is refused to it
}

// Reply is the reply of a script. The verdict Unknown stands for an error, whose code Reason then
// is.
type Reply struct {
	lease.Answer
	Reason string
	Holder string
}

// second is how far the age of a server, told in whole seconds, may be off.
const second = 1000

// century is how far past Redis's clock a token may lie.
const century = 100 * 365 * 24 * 3600 * second

// Acquire grants the lease if it is free and no witness objects.
func (r *Redis) Acquire(now int64, a Asker, q lease.Request) Reply {
	r.expire(now)
	r.Told = Told{}
	if r.late(now, q) {
		return r.stale(now, q)
	}
	if !r.sane(now) {
		return refusal
	}
	t, facts := &r.Term, r.told(a)
	longest, margin := r.careful(now, a, r.elsewhere(facts))
	ttl := max(t.TTL, longest) // of anybody
	holdOff := r.holdOff(a, q, ttl)
	guard := holdOff + margin
	empty := t.Token == 0
	unasked := empty && t.Asked == 0 // nobody was asked yet who leads
	asked := t.Asked
	if unasked {
		asked = now
	}
	left := r.clamp(now, a, holdOff, guard)
	if empty {
		asked = min(asked, now)
	}
	if r.grow(guard) {
		ttl = r.armed(ttl, holdOff)
	}
	armed, young := r.witness(now, a, facts, guard, unasked)
	if armed {
		ttl = r.armed(ttl, holdOff)
	}
	best := r.best(now, a, q, holdOff)

	answer := reply(lease.Held, now)
	answer.Origin = facts.Origin
	if r.Lease.Holder == a.ID && t.Nonce == q.Nonce && r.adoptable(now, q) {
		if r.Since.Unix == 0 { // lost
			r.Since = Since{There: true, Unix: now / second}
		}
		r.extend(now, a)
		answer.Verdict, answer.Token, answer.TTL, answer.Since, answer.Holder = lease.Won, t.Token, ms(a.TTL), r.Since.Unix, a.ID
		return answer
	}
	if holder := r.Lease.Holder; holder != "" {
		if r.Rules.Has(Memory) { // beside the lease, which is another's; the candidate that remembers may not be the next to ask
			r.named(now, q.Floor)
		}
		answer.Reason, answer.Holder, answer.Wait = "foreign", holder, ms(max(left, 1))
		if r.tenured() {
			answer.Reason = "lease"
		}
		if answer.Offered = r.tenured() && t.Heir == a.ID; answer.Offered {
			t.Ready = now + 3*a.TTL/20
		}
		answer.Token, answer.TTL = t.Token, ms(ttl)
		return answer
	}
	if r.Rules.Has(Memory) && t.Token < q.Floor {
		t.Token, t.Nonce, t.Released = q.Floor, "", false
		t.Hold, t.Armed = max(t.Hold, now+holdOff), guard
		ttl = r.armed(ttl, holdOff)
	}
	answer.Token, answer.TTL = t.Token, ms(ttl)
	reserved := r.Rules.Has(Reserve) && t.Heir != "" && t.Reserved > now
	waits := r.Rules.Has(RollCall) && t.Token == 0 && a.EmptyWait > 0
	if hold := max(t.Hold, asked+a.EmptyWait); waits && (unasked || hold > t.Hold && r.Rules.Has(LongestWait)) {
		t.Hold, t.Asked = hold, asked // a guard that is on may be over sooner, and has asked nobody
	}
	switch {
	case waits && unasked:
		answer.Verdict, answer.Reason, answer.Wait = lease.RollCall, "empty", ms(t.Hold-now)
		if young && t.Hold > asked+a.EmptyWait {
			answer.Reason, answer.Since = "young", (now-facts.Uptime)/second
		}
		return answer
	case t.Hold > now && !(reserved && t.Heir == a.ID && !r.Rules.Has(HeirWaits)):
		answer.Reason, answer.Wait = "hold", ms(t.Hold-now)
		switch {
		case t.Token == 0 && t.Hold <= asked+a.EmptyWait: // nothing but the roll-call holds
			answer.Reason = "empty"
		case t.Token == 0 && young:
			answer.Reason, answer.Since = "young", (now-facts.Uptime)/second
		}
		return answer
	case r.Rules.Has(Until) && !t.Released && t.Until > now:
		answer.Reason, answer.Wait = "until", ms(t.Until-now)
		return answer
	case reserved && t.Heir != a.ID:
		answer.Reason, answer.Wait = "reserved", ms(t.Reserved-now)
		return answer
	}
	if better := best.ID != "" && best.ID != a.ID && best.Rank > q.Rank && !q.Mute; better && r.Rules.Has(Yield) {
		began := max(t.Until, t.Hold)
		if !r.Rules.Has(YieldBound) {
			began = now
		}
		awaited := t.Heir == a.ID && t.Reserved > now
		if ends := began + q.Slice.Milliseconds(); ends > now && !awaited {
			answer.Reason, answer.Wait = "yield", ms(ends-now)
			return answer
		}
	}

	token := max(t.Token, q.Floor, r.known(now)) + 1
	if r.Rules.Has(Time) {
		token = max(token, now)
	}
	r.Since = Since{There: true, Unix: now / second, Expires: now + a.TTL}
	if best.ID == a.ID {
		t.Best = Best{}
	}
	answer.Reason = r.tell(now, a, token)
	r.grant(now, a, q.Nonce, token)
	answer.Verdict, answer.Token, answer.TTL, answer.Since, answer.Holder = lease.Won, token, ms(a.TTL), r.Since.Unix, a.ID
	return answer
}

// Renew keeps the lease of the very term, or takes it back if data were lost.
func (r *Redis) Renew(now int64, a Asker, q lease.Request) Reply {
	r.expire(now)
	r.Told = Told{}
	if r.late(now, q) {
		return r.stale(now, q)
	}
	if !r.sane(now) {
		return refusal
	}
	t, holder, facts := &r.Term, r.Lease.Holder, r.told(a)
	answer := reply(lease.Kept, now)
	answer.Origin = facts.Origin

	keep := func() Reply {
		elsewhere := r.elsewhere(facts)
		longest, margin := r.careful(now, a, elsewhere)
		holdOff := r.holdOff(a, q, max(t.TTL, longest))
		if elsewhere {
			if r.Rules.Has(ArmInRenew) {
				t.Armed = holdOff + margin
				t.Hold = max(t.Hold, now+t.Armed)
			}
			t.Origin = facts.Origin
		}
		if !r.Since.There {
			r.Since = Since{There: true, Unix: q.Since}
		}
		answer.Ready = r.offer(now, q)
		if t.Best.Until > now && t.Best.Until <= now+2*holdOff {
			answer.Best, answer.BestIs = t.Best.ID, t.Best.Rank
		} else {
			t.Best = Best{}
		}
		answer.Token, answer.TTL, answer.Since, answer.Holder = q.Token, ms(a.TTL), q.Since, a.ID
		return answer
	}
	lost := func(reason string) Reply {
		answer.Verdict, answer.Token, answer.TTL, answer.Holder = lease.Lost, t.Token, ms(t.TTL), holder
		answer.Reason = reason
		r.ended(now, q)
		return answer
	}
	if holder == a.ID && t.Nonce == q.Nonce && t.Token == q.Token {
		kept := keep()
		r.extend(now, a)
		r.named(now, q.Floor)
		return kept
	}

	other := t.Nonce != "" && t.Nonce != q.Nonce
	relic := r.Rules.Has(Relic) && r.tenured() && t.Token < q.Token
	if holder != "" && !relic && (holder != a.ID || r.Rules.Has(NonceHolder) && other) {
		if !r.tenured() {
			return lost("foreign")
		}
		return lost("taken")
	}
	newHistory := facts.Origin != q.Origin && r.comparable(facts.Origin) && r.comparable(q.Origin)
	lostData := newHistory || t.Token < q.Token || t.Nonce == ""
	mine := t.Token < q.Token || t.Token == q.Token && !other && !t.Released
	if r.Rules.Has(Reclaim) && lostData && mine && !q.Draining {
		kept := keep() // compares the TTLs from before the loss
		kept.Reason, kept.Reclaimed = "reclaimed", true
		r.hold(now, a, q.Nonce, q.Token)
		r.extend(now, a)
		r.named(now, q.Floor)
		return kept
	}
	switch {
	case t.Released:
		return lost("released")
	case relic:
		return lost("taken")
	default:
		return lost("vanished")
	}
}

// Release gives back what this campaign holds and nothing else.
func (r *Redis) Release(now int64, a Asker, q lease.Request) Reply {
	r.expire(now)
	r.Told = Told{}
	if !r.sane(now) {
		return refusal
	}
	t := &r.Term
	if t.Nonce == q.Nonce && (q.Token == 0 || q.Token == t.Token) {
		if !t.Released {
			t.Until = now // the vacancy begins
			r.Told.Ended = store.TermEntry{
				Event: store.TermEnded, Token: t.Token, Holder: t.Holder, At: max(now-q.Ago.Milliseconds(), 0), Reason: q.Why, Since: r.Since.Unix,
			}
		}
		r.reserve(now, q)
		t.Released = true
		if r.Lease.Holder == a.ID {
			r.Lease, r.Since = Lease{}, Since{}
		}
	}
	r.ended(now, q)
	answer := reply(lease.Done, now)
	answer.Token, answer.TTL = t.Token, ms(t.TTL)
	return answer
}

// offer notes to whom a renewal offers the lease, and reports whether that one asks for it. What an
// earlier offer has left is forgotten.
func (r *Redis) offer(now int64, q lease.Request) (ready bool) {
	t := &r.Term
	if t.Heir != q.Heir {
		t.Heir, t.Ready, t.Reserved = q.Heir, 0, 0
		if q.Heir == lease.Anyone {
			t.Best = Best{}
		}
	}
	return q.Heir != "" && t.Ready > now
}

// best notes a candidate that hears, unless a better one asks, and returns the best.
func (r *Redis) best(now int64, a Asker, q lease.Request, holdOff int64) Best {
	best := r.Term.Best
	if r.Rules.Has(BestExpires) && (best.Until <= now || best.Until > now+2*holdOff) {
		best = Best{}
	}
	known := best.ID != ""
	own := r.Lease.Holder == a.ID && r.Term.Nonce == q.Nonce // a repeated request of the leader
	if !q.Mute && !own && (known && (best.ID == a.ID || q.Rank > best.Rank) || !known && (q.Rank != 0 || r.Term.Heir == lease.Anyone)) {
		best = Best{ID: a.ID, Rank: q.Rank, Until: now + q.Counts.Milliseconds()}
		r.Term.Best = best
	}
	return best
}

// reserve leaves the vacancy that a release makes to its heir, if that has just asked.
func (r *Redis) reserve(now int64, q lease.Request) {
	t := &r.Term
	if t.Released && r.Rules.Has(ReserveOnce) {
		return
	}
	heir := t.Heir
	fresh := t.Ready > now || !r.Rules.Has(ReadyFresh)
	t.Heir, t.Ready, t.Reserved = "", 0, 0
	if q.Heir != "" && q.Heir == heir && fresh {
		t.Heir, t.Reserved = heir, now+q.Reserve.Milliseconds()
		if r.Rules.Has(ReserveBound) {
			t.Reserved = min(t.Reserved, now+longestReserve)
		}
	}
}

// longestReserve is the longest that a vacancy is reserved.
const longestReserve = 5 * second

// stale answers a request that came too late.
func (r *Redis) stale(now int64, q lease.Request) Reply {
	if !r.sane(now) {
		return refusal
	}
	r.ended(now, q)
	return reply(lease.Stale, now)
}

// ended notes the tokens of an asker that may be on its way out, and the only one that knows of
// them.
func (r *Redis) ended(now int64, q lease.Request) {
	if r.Rules.Has(MemoryEnded) {
		r.named(now, max(q.Token, q.Floor))
	}
}

// named notes a token that is higher than all that this server knows.
func (r *Redis) named(now, token int64) {
	if token > max(r.Term.Token, r.known(now)) {
		r.Term.Floor = token
	}
}

// Leader says who leads and changes nothing. Unknown without a reason means that nobody does.
func (r *Redis) Leader(now int64) Reply {
	r.expire(now)
	r.Told = Told{}
	holder := r.Lease.Holder
	if holder == "" {
		return reply(lease.Unknown, now)
	}
	if !r.sane(now) {
		return refusal
	}
	answer := reply(lease.Held, now)
	answer.Reason, answer.Holder, answer.TTL, answer.Origin = "foreign", holder, ms(r.Term.TTL), r.Term.Origin
	if r.tenured() {
		answer.Reason, answer.Token = "lease", r.Term.Token
	}
	answer.Since, answer.Wait = r.Since.Unix, ms(-1)
	if r.Lease.Expires != 0 {
		answer.Wait = ms(r.Lease.Expires - now)
	}
	return answer
}

// expire removes what has ended. A lease is gone in the very millisecond at which it expires.
func (r *Redis) expire(now int64) {
	if r.Lease.Expires != 0 && r.Lease.Expires <= now {
		r.Lease = Lease{}
	}
	if r.Since.Expires != 0 && r.Since.Expires <= now {
		r.Since = Since{}
	}
}

func (r *Redis) late(now int64, q lease.Request) bool {
	return r.Rules.Has(NotAfter) && q.NotAfter != 0 && now > q.NotAfter
}

// sane refuses to build on a token that tenure cannot have written.
func (r *Redis) sane(now int64) bool {
	return r.Term.Token >= 0 && r.Term.Token <= lease.MaxToken && r.Term.Token <= now+century
}

// known is what a refused candidate remembered, unless tenure cannot have written it.
func (r *Redis) known(now int64) int64 {
	if r.Term.Floor > lease.MaxToken || r.Term.Floor > now+century {
		return 0
	}
	return r.Term.Floor
}

func (r *Redis) holdOff(a Asker, q lease.Request, others int64) int64 {
	if !r.Rules.Has(LongestTTL) {
		return a.TTL
	}
	return max(a.TTL, others, q.HoldOff.Milliseconds())
}

// careful is the longest TTL and margin that anybody has named, this asker included.
func (r *Redis) careful(now int64, a Asker, elsewhere bool) (longest, margin int64) {
	t, own := &r.Term, max(a.TTL, a.HoldOff)
	if r.Rules.Has(TTLNamed) {
		longest = t.Longest.recall(now, t.Longest.Length, elsewhere)
	}
	longest = t.Longest.name(now, own, longest, own, elsewhere)
	if r.Rules.Has(MarginNamed) {
		margin = t.Margin.recall(now, longest, elsewhere)
	}
	return longest, t.Margin.name(now, a.Margin, margin, longest, elsewhere)
}

// elsewhere reports whether the term hash was written under another history.
func (r *Redis) elsewhere(facts Facts) bool {
	return facts.Origin != r.Term.Origin && r.comparable(facts.Origin)
}

// clamp pulls back what lies further ahead than it can, and returns what is left of the lease.
func (r *Redis) clamp(now int64, a Asker, holdOff, guard int64) (left int64) {
	lasting := r.Lease.Expires == 0
	left = r.Lease.Expires - now
	if r.Rules.Has(ReserveClamp) {
		r.Term.Reserved = min(r.Term.Reserved, now+min(holdOff/3, longestReserve))
	}
	if r.Rules.Has(Clamp) {
		r.Term.Until = min(r.Term.Until, now+holdOff)
		if r.Term.Released {
			r.Term.Until = min(r.Term.Until, now)
		}
		r.Term.Hold = min(r.Term.Hold, now+max(guard, a.RestartGuard, a.EmptyWait)+second)
		if r.Term.Token == 0 {
			r.Term.Asked = min(r.Term.Asked, now)
		}
		if r.tenured() && (lasting || left > holdOff) {
			r.Lease.Expires = now + holdOff
			return holdOff
		}
	}
	if lasting {
		return holdOff
	}
	return left
}

// grow lengthens a hold-off that was armed by as much as this asker's is longer: it may be the
// first that knows of a lease which was lost.
func (r *Redis) grow(guard int64) bool {
	t := &r.Term
	if !r.Rules.Has(HoldGrows) || t.Armed == 0 || guard <= t.Armed {
		return false
	}
	t.Hold, t.Armed = t.Hold+guard-t.Armed, guard
	return true
}

// witness looks at the history of the server: a new one arms the hold-off, once. While nobody was
// granted anything, each asker adds a longer guard of its own. young: the server is younger than
// that, or was a second ago.
func (r *Redis) witness(now int64, a Asker, facts Facts, guard int64, unasked bool) (armed, young bool) {
	t, elsewhere := &r.Term, r.elsewhere(facts)
	if !r.Rules.Has(Guard) || !elsewhere && (t.Token != 0 || unasked || !r.comparable(facts.Origin)) {
		return false, false
	}
	least := guard
	if a.RestartGuard != 0 {
		least = a.RestartGuard
	}
	arm, length, from := int64(0), int64(0), now
	if !elsewhere {
		from = t.Asked // nothing that is named later moves it
	}
	switch {
	case facts.Promoted, elsewhere && t.Origin != "":
		arm, length = from+guard, guard
	case least >= 0 && facts.Uptime < least+second:
		arm, young = min(now-facts.Uptime, from)+least+second, true
	case least >= 0:
		young = facts.Uptime < least+2*second // what was armed may hold for as much longer
	}
	if elsewhere || arm > t.Hold+second { // by whole seconds the same guard may seem longer
		t.Hold, t.Origin = max(t.Hold, arm), facts.Origin
		if arm > 0 {
			t.Armed = length
		}
		return true, young
	}
	return false, young
}

// armed notes the hold-off that was armed as the TTL of the term, which may be of a lease that is
// lost: a candidate that knows less would shorten the hold.
func (r *Redis) armed(ttl, holdOff int64) int64 {
	if !r.Rules.Has(CarefulClamp) {
		return ttl
	}
	r.Term.TTL = holdOff
	return holdOff
}

// adoptable reports whether a lease of the asker's own campaign may be taken for granted: it is not
// what an older snapshot, or another history, has brought back.
func (r *Redis) adoptable(now int64, q lease.Request) bool {
	return !r.Rules.Has(AdoptGuard) || r.Term.Hold <= now && r.Term.Token >= max(q.Floor, r.known(now))
}

// comparable reports whether a replication id may be compared and stored.
func (r *Redis) comparable(origin string) bool { return origin != "" || !r.Rules.Has(UnknownOrigin) }

// tenured reports whether the lease on the key was granted by tenure, not taken by a foreign
// client.
func (r *Redis) tenured() bool {
	return r.Lease.Holder != "" && r.Lease.Holder == r.Term.Holder && !r.Term.Released
}

// tell has the history say that a term begins, and how the last one ended if its leader has not
// said so.
func (r *Redis) tell(now int64, a Asker, token int64) (last string) {
	t := r.Term
	if t.Token > 0 && !t.Released {
		ended := store.TermEntry{Event: store.TermEnded, Token: t.Token, Reason: store.TermForgotten}
		if t.Nonce != "" {
			ended.Holder, ended.At, ended.Reason = t.Holder, t.Until, store.TermLapsed
		}
		r.Told.Ended, last = ended, ended.Reason
	}
	r.Told.Began = store.TermEntry{Event: store.TermBegan, Token: token, Holder: a.ID, At: now}
	return last
}

// grant begins a term.
func (r *Redis) grant(now int64, a Asker, nonce string, token int64) {
	r.Term.Heir, r.Term.Ready, r.Term.Reserved = "", 0, 0
	r.hold(now, a, nonce, token)
}

// hold makes the lease the asker's.
func (r *Redis) hold(now int64, a Asker, nonce string, token int64) {
	t := &r.Term
	t.Token, t.Nonce, t.Holder, t.Until, t.TTL, t.Released = token, nonce, a.ID, now+a.TTL, a.TTL, false
	r.Lease = Lease{Holder: a.ID, Expires: now + a.TTL}
}

// extend lengthens the lease that stands.
func (r *Redis) extend(now int64, a Asker) {
	r.Lease.Expires, r.Term.Until, r.Term.TTL = now+a.TTL, now+a.TTL, a.TTL
	if r.Since.There {
		r.Since.Expires = now + a.TTL
	}
}

// told is what INFO reports to this candidate.
func (r *Redis) told(a Asker) Facts {
	if a.NoInfo || r.Origin == "" { // INFO is refused as a whole
		return Facts{}
	}
	return r.Facts
}

var refusal = Reply{Reason: "BADTERM"}

func reply(verdict lease.Verdict, now int64) Reply {
	return Reply{Answer: lease.Answer{Verdict: verdict, Now: now}}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
