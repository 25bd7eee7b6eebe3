package lease

import "time"

// Rank is what the candidates of a role are compared by: the highest is preferred. One that says
// nothing has the rank 0. It is one number, so that Redis compares it, and exact in Lua.
type Rank int64

// Preference is what a rank is made of, the most important first.
type Preference struct {
	Priority int           // as the option: between -1000 and 1000
	Others   int           // how many other roles its process leads, if they are to be spread: fewer are preferred
	Newer    time.Duration // by how much later it started than the leader, if it is of another version; else 0
	Order    int           // between 1 and MaxOrder, the highest is preferred; 0: it has none
}

// MaxOrder is the highest Order.
const MaxOrder = 999

// The parts of a rank: decimal digits, so that it can be read.
const (
	othersSpan = 500
	newerSpan  = 10_000_000 // seconds, 115 days
	levelSpan  = newerSpan * (MaxOrder + 1)
)

// Rank is the preference as one number.
func (p Preference) Rank() Rank {
	level := Rank(p.Priority)*othersSpan - Rank(min(max(p.Others, 0), othersSpan-1))
	newer := Rank(min(max(p.Newer/time.Second, 0), newerSpan-1))
	return (level*newerSpan+newer)*(MaxOrder+1) + Rank(min(max(p.Order, 0), MaxOrder))
}

// lowest is the rank of a candidate that comes last.
var lowest = Preference{Priority: -1000, Others: othersSpan - 1}.Rank()

// Rank is that which an acquire carries. A candidate whose work has failed comes last for a while,
// longer with each failure: else a leader whose work is sound would give way to it again and again.
// It still leads if nobody else asks, or if the lease is transferred to it.
func (c *Candidate) Rank(now Reading) Rank {
	if now.Mono < c.last { // rule sound-first
		return min(c.prefer, lowest)
	}
	return c.prefer
}

// Above reports whether a rank is higher by more than what only decides between equals: a leader
// gives way to no other.
func (r Rank) Above(other Rank) bool { return r.level() > other.level() }

func (r Rank) level() Rank {
	if r < 0 {
		return (r+1)/levelSpan - 1
	}
	return r / levelSpan
}

// Anyone stands for the best candidate in an offer. It is no ID of an instance.
const Anyone = "*"

// choose turns an open offer into one to the best candidate that has asked since it was noted. It
// gives all of them a moment to ask.
func (c *Candidate) choose(now Reading, r Request, a Answer) {
	if r.Heir != Anyone {
		return
	}
	if c.opened == past {
		c.opened = now.Mono
	}
	moment := min(c.timing.TTL/20, gathering)
	switch {
	case now.Mono-c.opened < moment:
		c.wake = min(c.wake, c.opened+moment)
	case a.Best == "":
		c.wake = min(c.wake, now.Mono+c.timing.TTL/20)
	default:
		c.heir = a.Best
		c.hint(now)
	}
}

// consider offers the lease to a better candidate, if Preempt says so: one that has been there for
// that long, and not soon after the term began. If it is no better any more when it asks (it may
// have come to lead another role since), the term goes on.
func (c *Candidate) consider(now Reading, a Answer) {
	if a.Best == "" || !a.BestIs.Above(c.prefer) {
		c.rival = ""
		return
	}
	if a.Best != c.rival {
		c.rival, c.rivalAt = a.Best, now.Mono
	}
	if patience := c.timing.Preempt; patience > 0 && c.heir == "" && now.Mono-c.rivalAt >= patience { // rule patience
		if c.turn == nil || c.turn(int(a.BestIs.level()-c.prefer.level())) { // rule pace
			c.yields = c.Offer(now, c.token, c.rival)
		}
	}
}

// Insist makes an offer to a better candidate one that somebody has asked for.
func (c *Candidate) Insist() { c.yields = false }

// Turns has this candidate give way only if turn says that it may, to one that is better by so many
// other roles that it leads fewer; a level of priority is more than any number of them. It is asked
// when everything else is fulfilled, and counts on an offer if it says so.
func (c *Candidate) Turns(turn func(fewer int) bool) { c.turn = turn }

// Pace is how fast a process gives roles away to those that lead fewer. Its zero value has given
// none.
type Pace struct {
	begun bool
	last  time.Duration // monotonic: the last one was given then, once it has begun
	next  time.Duration // monotonic: the next one may be, at the pace of that
}

// Turn reports whether a role may be offered at a time of the monotonic clock to a process that
// leads so many fewer, and counts that it is. Within Preempt that is a quarter of them, so that
// several processes give one no more than its share, and at least one role. A role that may go
// faster than the last one, since the difference is larger or its Preempt is shorter, does not wait
// for the pace of that. Many roles ask after one renewal: they get what has come together since the
// one before.
func (p *Pace) Turn(now time.Duration, t Timing, fewer int) bool {
	pace := t.Preempt / time.Duration(max(fewer/4, 1))
	if !p.begun {
		p.begun, p.last, p.next = true, now, now
	}
	next := min(p.next, p.last+pace) // rule own-pace
	if now < next {
		return false
	}
	p.last = now
	if pace <= t.Renew {
		p.last -= min(t.Renew, now-next)
	}
	p.next = p.last + pace
	return true
}

// slice is for how long a vacancy is left to the best candidate that asks: at least two round
// trips, but no more than an attempt takes.
func (c *Candidate) slice() time.Duration {
	return max(c.timing.Slice(), min(2*c.trip, c.timing.Attempt()))
}

// Prefer sets the rank of this candidate. The next request carries it; a term that is on is not
// touched.
func (c *Candidate) Prefer(rank Rank) { c.prefer = rank }

// elsewhere reports whether an answer comes from another history than the one that the lease was
// last confirmed under.
func (c *Candidate) elsewhere(a Answer) bool {
	return a.Origin != "" && c.origin != "" && a.Origin != c.origin
}

// Reserved takes the hint that the lease is free, and reserved for another for so long: to ask
// earlier would be in vain.
func (c *Candidate) Reserved(now Reading, wait time.Duration) {
	at := now.Mono + max(wait, hintSpacing) + wakeLag + c.apart()
	if c.state == Following && !c.flying && at >= c.back && at < c.wake {
		c.wake = at
	}
}

// Named takes the hint that the lease is offered to, or reserved for, this instance. It ends the
// stand-back after a resignation, never a penalty.
func (c *Candidate) Named(now Reading) {
	c.Called(now)
	if c.state == Following && now.Mono >= c.back {
		c.hint(now)
	}
}

// Called takes the hint that the lease is offered to whoever may lead: it ends the stand-back after
// a resignation, never a penalty. When to ask is left to Vacant.
func (c *Candidate) Called(now Reading) {
	if c.state == Following && c.polite && now.Mono < c.back {
		c.back = now.Mono
	}
}

// Offer offers the lease of the term with that token to another instance, or to Anyone, and reports
// whether that term is on and nothing is offered yet. Of those that ask since an open offer, the
// best becomes the one that it is for. Renewals carry the offer. If that instance asks for the
// lease within the longest sleep of a candidate and two attempts, the term ends as Transferred, and
// the lease is reserved for it when the work has drained. Otherwise the offer is taken back, and
// the term goes on.
func (c *Candidate) Offer(now Reading, token int64, to string) bool {
	if c.state != Leading || token != c.token || c.heir != "" { // rule transfer-token
		return false
	}
	c.heir, c.yields, c.opened, c.offered = to, false, past, now.Mono+c.timing.Offer()
	c.hint(now)
	return true
}

// Heir is the instance that the lease is offered to, or will be reserved for; "": none. Anyone: it
// is not known yet.
func (c *Candidate) Heir() string { return c.heir }

// Coming reports whether the lease is offered to this candidate, which asks for it: it leads soon,
// or once the work of the leader has drained.
func (c *Candidate) Coming() bool {
	return c.coming && c.state == Following && c.ready && !c.stopping
}
