package lease

import "time"

const (
	hintSpacing = 25 * time.Millisecond   // between requests that hints cause: a flood of them costs no flood of requests
	maxTries    = 8                       // of one release
	gathering   = 250 * time.Millisecond  // the longest that candidates are given to answer an open offer
	wakeLag     = time.Millisecond        // Redis counts whole milliseconds
	wakeSpread  = 2 * time.Millisecond    // so that followers do not ask in step
	past        = time.Duration(-1 << 61) // before every reading: a monotonic clock may start below zero
	maxStep     = time.Second             // of Redis's clock, beyond what is explained by the round trip
	leastBack   = time.Second             // stands back after failed work, doubled with each further failure
	lastFor     = 20                      // after many failures others are preferred for so many of the longest stand-back
	heirFirst   = 50 * time.Millisecond   // the heir of a transfer is left so long to ask first
	kept        = 4                       // a TTL that was seen is remembered for so many times its length
)

// Candidate is the state of one candidate of one role. It is a plain value with one owner and is
// not safe for concurrent use.
type Candidate struct {
	timing Timing
	random func() float64 // in [0, 1)
	secret func() string  // a fresh nonce

	state  State
	reason Reason // of the last end of a term
	ready  bool   // may campaign

	uncertain bool // an acquire of the nonce had no answer: it may hold a lease without knowing
	nonce     string
	doubt     time.Duration // monotonic: until then an acquire may have been granted whose answer was lost, or came too late
	silent    time.Duration // monotonic: the first acquire in a row without a usable answer was sent then; past: none
	floor     int64
	seen      struct { // TTLs of others, in answers
		last      time.Duration // in the last one
		longest   time.Duration
		longestAt time.Duration // monotonic: the last answer with it
	}
	clock struct {
		redis int64
		at    Reading
		known bool
	}
	step time.Duration // last step of Redis's clock that was seen; zero: none since StepSeen

	seq     uint64
	flight  Request
	flying  bool
	hinted  bool          // a hint came while a request was in flight
	called  bool          // and that was a roll-call
	queued  bool          // a hint is heeded at wake, which is later since others follow too
	paced   bool          // an acquire is due at regular, and for no other reason than that time
	stale   bool          // the last answer was Stale
	wake    time.Duration // monotonic: the next acquire or renew is due
	drawn   time.Duration // monotonic: the next regular renewal, as it was drawn
	back    time.Duration // monotonic: standing back until then, whatever hints say
	heeded  time.Duration // monotonic: the last request that a hint has caused, or will
	regular time.Duration // monotonic: the next acquire is due then, however soon the lease ends; past: at a time that others may share
	crowd   int           // others that follow
	beats   Beats         // of this process
	unknown int           // answers in a row that were Unknown

	lease    Lease
	token    int64
	since    int64
	origin   string
	keep     bool          // draining: renew
	begun    time.Duration // monotonic: the term began
	ended    time.Duration // monotonic: the last one ended
	failures int           // terms whose work failed, since one that lasted for the longest penalty
	last     time.Duration // monotonic: others are preferred until then, since its work failed

	heir    string               // the instance that the lease is offered to, or Anyone; while the work drains: that it is reserved for
	opened  time.Duration        // monotonic: an open offer was noted; past: not yet
	offered time.Duration        // monotonic: the offer ends then, and the term goes on
	prefer  Rank                 // own
	trip    time.Duration        // of the last usable answer
	rival   string               // a better candidate, which asks
	rivalAt time.Duration        // monotonic: since then, or since an offer to it was not taken up
	turn    func(fewer int) bool // may it give way now? nil: it may
	yields  bool                 // the offer is its own, to a better candidate
	coming  bool                 // following: by the last answer the lease is offered to this candidate
	polite  bool                 // stands back after a resignation: an offer ends that

	stopping bool
	releases []release
}

// NewCandidate returns a candidate that asks at once. random yields numbers in [0, 1); secret a
// fresh nonce at each call.
func NewCandidate(timing Timing, random func() float64, secret func() string) *Candidate {
	c := &Candidate{timing: timing, random: random, secret: secret, ready: true}
	c.wake, c.back, c.heeded, c.regular, c.last, c.doubt = past, past, past, past, past, past
	return c
}

// State, Reason, Lease, Token, Since and Origin say where the candidate stands. Lease, Token and
// Since are those of the term that is on or was the last.
func (c *Candidate) State() State   { return c.state }
func (c *Candidate) Reason() Reason { return c.reason }
func (c *Candidate) Lease() Lease   { return c.lease }
func (c *Candidate) Token() int64   { return c.token }
func (c *Candidate) Since() int64   { return c.since }
func (c *Candidate) Floor() int64   { return c.floor }

// Awaited returns the acquire or renewal whose answer is waited for.
func (c *Candidate) Awaited() (Request, bool) { return c.flight, c.flying }

// Unanswered counts the requests in a row that had no usable answer.
func (c *Candidate) Unanswered() int { return c.unknown }

// Releasing reports whether a lease is still being given back.
func (c *Candidate) Releasing() bool { return len(c.releases) > 0 }

// Finished reports whether a stopped candidate has nothing left to do.
func (c *Candidate) Finished() bool { return c.state == Stopped && !c.flying && len(c.releases) == 0 }

// Resting reports whether this candidate follows, and nothing of it is on its way to Redis.
func (c *Candidate) Resting() bool {
	return c.state == Following && !c.flying && len(c.releases) == 0
}

// StandsBack is how much longer the candidate will not campaign.
func (c *Candidate) StandsBack(now Reading) time.Duration { return max(c.back-now.Mono, 0) }

// Keeps reports whether the lease of a term that has ended is still renewed while its work drains.
func (c *Candidate) Keeps() bool { return c.state == Draining && c.keep }

// StepSeen returns the last unexplained step of Redis's clock once, and zero after that.
func (c *Candidate) StepSeen() time.Duration {
	step := c.step
	c.step = 0
	return step
}

// Tick notices what time alone has done: a term whose cancel point has passed, a request that was
// waited for long enough.
func (c *Candidate) Tick(now Reading) Change {
	if c.flying && now.Mono-c.flight.Sent.Mono >= c.flight.Bound {
		c.flying = false
		c.failed(now, c.flight)
	}
	for i := range c.releases {
		if r := &c.releases[i]; r.flying && now.Mono-r.request.Sent.Mono >= r.request.Bound {
			r.flying = false
			c.retryRelease(now, r)
		}
	}
	c.dropReleases(now)
	if c.stopping && c.state == Following && !c.flying {
		c.giveUp(now)
	}
	if c.Keeps() && c.lease.CancelIn(now) <= 0 {
		c.keep = false
	}
	if c.state == Leading && c.lease.CancelIn(now) <= 0 {
		return c.End(now, Expired)
	}
	if c.state == Leading && c.heir != "" && now.Mono >= c.offered { // it does not ask: a renewal takes the offer back
		c.heir, c.rival = "", ""
		c.hint(now)
	}
	return Nothing
}

// Next returns a request that is due now, if there is one. It is to be called until it returns
// false.
func (c *Candidate) Next(now Reading) (Request, bool) {
	for i := range c.releases {
		if r := &c.releases[i]; !r.flying && now.Mono >= r.due {
			r.flying = true
			r.tries++
			r.request.Seq, r.request.Sent, r.request.Floor = c.number(), now, c.floor
			return r.request, true
		}
	}
	if c.flying || now.Mono < c.wake {
		return Request{}, false
	}
	request := Request{
		Nonce:   c.nonce,
		Floor:   c.floor,
		HoldOff: c.holdOff(now),
		Sent:    now,
		Bound:   c.timing.Attempt(),
	}
	switch {
	case c.state == Following && c.ready && !c.stopping:
		if c.nonce == "" {
			c.nonce, c.silent = c.secret(), past
		}
		request.Kind, request.Nonce = Acquire, c.nonce
		request.Rides = c.rides(now)
		request.Rank, request.Mute, request.Slice, request.Counts = c.Rank(now), c.unknown > 0, c.slice(), c.timing.Counts() // rule hears
	case c.state == Leading, c.Keeps() && c.lease.Leading(now):
		request.Kind = Renew
		request.Token, request.Origin, request.Since = c.token, c.origin, c.since
		request.Draining, request.Heir = c.state == Draining, c.heir
		request.Bound = min(request.Bound, c.lease.EndsIn(now))
	default:
		return Request{}, false
	}
	if c.clock.known {
		request.NotAfter = c.clock.redis + (now.Mono - c.clock.at.Mono + request.Bound).Milliseconds()
	}
	request.Seq = c.number()
	if c.queued {
		c.queued, c.heeded = false, now.Mono
	}
	c.flying, c.flight, c.hinted, c.called = true, request, false, false
	return request, true
}

// Leeway is how much earlier and later a turn that Wait asks for may be. It is 0 unless that is for
// a regular renewal and nothing else: no earlier than half of the mean interval before it, and no
// later than that interval after the last one.
func (c *Candidate) Leeway() (early, late time.Duration) {
	if c.wake != c.drawn || c.state != Leading || c.flying || c.heir != "" || len(c.releases) > 0 {
		return 0, 0
	}
	return c.timing.Renew / 2, max(c.lease.Sent.Mono+c.timing.Renew-c.wake, 0)
}

// Hasten has a renewal made now that may be so early: see Leeway.
func (c *Candidate) Hasten(now Reading) {
	if early, _ := c.Leeway(); early > 0 && c.wake-now.Mono <= early {
		c.wake = min(c.wake, now.Mono)
	}
}

// Wait is how long the driver may sleep when nothing else wakes it: until then Tick and Next have
// nothing to say.
func (c *Candidate) Wait(now Reading) time.Duration {
	wait := MaxTTL
	sooner := func(at time.Duration) { wait = min(wait, at-now.Mono) }
	for _, r := range c.releases {
		if r.flying {
			sooner(r.request.Sent.Mono + r.request.Bound)
		} else {
			sooner(r.due)
		}
	}
	switch {
	case c.flying:
		sooner(c.flight.Sent.Mono + c.flight.Bound)
	case c.state == Following && c.ready, c.state == Leading, c.Keeps():
		sooner(c.wake)
	}
	if c.state == Leading || c.Keeps() {
		wait = min(wait, c.lease.CancelIn(now))
	}
	if c.state == Leading && c.heir != "" {
		sooner(c.offered)
	}
	return max(wait, 0)
}

// Answer takes the reply to a request, however late it is. One that is no answer to it is taken for
// Unknown.
func (c *Candidate) Answer(now Reading, r Request, a Answer) Change {
	if !a.Answers(r) {
		a = Answer{}
	}
	c.learn(now, r, a)
	if r.Kind == Release {
		c.released(now, r, a)
		return Nothing
	}
	if !c.flying || c.flight.Seq != r.Seq { // late: it changes nothing, but what a dead campaign was granted goes back
		over := r.Nonce != c.nonce || c.state == Stopped
		if over && (a.Verdict == Won || a.Verdict == Kept) {
			c.giveBack(now, r.Nonce, max(r.Token, a.Token))
		}
		return Nothing
	}
	c.flying = false
	if a.Verdict == Unknown {
		c.failed(now, r)
		return c.Tick(now)
	}
	c.unknown, c.silent, c.trip = 0, past, now.Mono-r.Sent.Mono
	again := a.Verdict == Stale && c.stale // once more at once, then as after an error
	c.stale = a.Verdict == Stale
	switch {
	case again:
		c.failed(now, r)
	case c.stale:
		c.wake = now.Mono
	case r.Kind == Acquire:
		return c.acquired(now, r, a)
	default:
		return c.renewed(now, r, a)
	}
	return c.Tick(now)
}

func (c *Candidate) acquired(now Reading, r Request, a Answer) Change {
	switch a.Verdict {
	case Won:
		won := Lease{Sent: r.Sent, Life: c.timing.Life(), Guard: c.timing.Guard()}
		if c.stopping || won.CancelIn(now) <= 0 {
			c.uncertain, c.doubt = true, now.Mono+c.timing.TTL
			c.wake = now.Mono // adopts it, from a later reading
			return c.Tick(now)
		}
		c.state, c.lease, c.token, c.since, c.origin = Leading, won, a.Token, a.Since, a.Origin
		c.uncertain, c.begun, c.rival, c.regular, c.coming = false, now.Mono, "", past, false
		c.renewAfter(r)
		if c.called { // it may have come before the reply that says that the lease is ours
			c.hint(now)
		}
		return Began
	case Held, RollCall:
		wait := a.Wait + wakeLag + c.apart()
		c.regular = c.meeting(now, now.Mono+c.pace(r))
		c.wake = min(now.Mono+wait, c.regular)
		c.paced, c.coming = !a.Offered, a.Offered
		if a.Offered { // asking on is how it accepts
			c.wake = min(c.wake, now.Mono+c.timing.TTL/20)
			c.regular = c.wake
		}
		if c.hinted {
			c.hint(now)
		}
	}
	return c.Tick(now)
}

// pace is how long a follower sleeps at most once r is answered. If it was not yet time to ask, the
// others may have asked at the same moment: their next questions lie further apart.
func (c *Candidate) pace(r Request) time.Duration {
	spread := c.timing.Retry / 20
	if r.Sent.Mono < c.regular || c.regular == past {
		spread = c.timing.Retry / 2
	}
	return c.timing.Retry - spread + c.part(spread)
}

func (c *Candidate) renewed(now Reading, r Request, a Answer) Change {
	c.renewAfter(r)
	if c.hinted {
		c.hint(now)
	}
	if a.Verdict == Lost {
		c.keep = false
		if c.state == Leading {
			return c.End(now, Refused)
		}
		return Nothing
	}
	if c.state == Leading && c.lease.CancelIn(now) <= 0 { // the answer came, but too late: a term is never revived
		return c.End(now, Expired)
	}
	if c.elsewhere(a) && c.lease.EndsIn(now) <= c.timing.Margin {
		return c.Tick(now) // the old master may grant our lease when it ends there, and then a term must not be on
	}
	c.lease = Lease{Sent: r.Sent, Life: c.timing.Life(), Guard: c.timing.Guard()}
	if a.Origin != "" { // the last that is known: INFO may be refused for a moment
		c.origin = a.Origin
	}
	if c.state != Leading {
		return Nothing
	}
	if c.heir == Anyone {
		c.choose(now, r, a)
	} else if a.Ready && c.heir == r.Heir && c.yields && (a.Best != c.heir || !a.BestIs.Above(c.prefer)) { // rule confirm
		c.heir, c.rival = "", ""
		c.hint(now)
	} else if a.Ready && c.heir != "" && c.heir == r.Heir { // rule offer: it is there, may lead, and hears
		return c.End(now, Transferred)
	}
	c.consider(now, a)
	return Renewed
}

// End ends the term. It is also how the driver reports a deadline that a reader or the timer has
// noticed first.
func (c *Candidate) End(now Reading, why Reason) Change {
	if c.state != Leading {
		return Nothing
	}
	c.state, c.reason, c.keep = Draining, why, why.voluntary()
	c.ended = now.Mono
	if why != Transferred {
		c.heir = ""
	}
	if now.Mono-c.begun >= c.timing.Penalty { // the work can do it: earlier failures are forgotten
		c.failures = 0
		c.last = past
	}
	if why == Failed {
		c.failures++
	}
	if !c.flying {
		c.wake = min(c.wake, c.lease.Sent.Mono+c.timing.Renew)
	}
	return Ended
}

// Abandon stops the renewals of a term whose work does not end: the lease is left to lapse.
func (c *Candidate) Abandon() {
	if c.state == Draining {
		c.keep = false
	}
}

// Drained reports that the work of the term that ended has returned: the lease goes back, the
// campaign is over.
func (c *Candidate) Drained(now Reading) {
	if c.state != Draining {
		return
	}
	c.giveBack(now, c.nonce, c.token)
	c.nonce, c.heir, c.flying, c.uncertain = "", "", false, false
	if c.stopping {
		c.state = Stopped
		return
	}
	c.state = Following
	pause := c.backoff(1)
	if c.reason == Transferred { // it does not stand back: the heir asks first
		c.wake = now.Mono + min(pause, max(heirFirst, 2*c.trip))
		return
	}
	c.polite = c.reason == Resigned
	switch c.reason {
	case Resigned:
		pause = c.timing.Retry + c.part(c.timing.Retry/10)
	case Failed:
		pause = Backoff(leastBack, c.failures, c.timing.Penalty)
		pause += c.part(pause / 10)
		c.last = now.Mono + Backoff(c.timing.Penalty, c.failures, lastFor*c.timing.Penalty)
	}
	c.back = now.Mono + pause
	c.wake = c.back
}

// Stop ends the term, if one is on, and all campaigning for good.
func (c *Candidate) Stop(now Reading) Change {
	c.stopping = true
	if c.state == Following && !c.flying {
		c.giveUp(now)
	}
	return c.End(now, Shutdown)
}

// giveUp ends a campaign that has not won. What an unanswered acquire may have been granted goes
// back.
func (c *Candidate) giveUp(now Reading) {
	if c.uncertain {
		c.giveBack(now, c.nonce, 0)
	}
	c.nonce, c.uncertain, c.state = "", false, Stopped
}

// Ready says whether this candidate may campaign; a term that is on is not touched.
func (c *Candidate) Ready(now Reading, ready bool) {
	if ready && !c.ready {
		c.wake, c.regular = max(now.Mono, c.back), past
	}
	c.ready = ready
	if !c.flying {
		c.retreat(now)
	}
}

// retreat ends a campaign that does not go on: what an unanswered acquire may have been granted
// goes back, so that others need not wait for its end.
func (c *Candidate) retreat(now Reading) {
	if c.state != Following || c.ready || !c.uncertain {
		return
	}
	c.giveBack(now, c.nonce, 0)
	c.nonce, c.uncertain, c.hinted = "", false, false
}

// RollCall takes the hint that leaders should renew now. A candidate that keeps its lease while its
// work drains heeds it too. So does one that may have been granted the lease by a reply that is
// still under way.
func (c *Candidate) RollCall(now Reading) {
	switch {
	case c.state == Leading, c.Keeps():
		c.hint(now)
	case c.flying:
		c.called = true
	}
}

func (c *Candidate) hint(now Reading) {
	if c.flying {
		c.hinted = true
		return
	}
	if at := max(now.Mono, c.heeded+hintSpacing); at < c.wake {
		c.wake, c.heeded = at, at
	}
}

// failed takes note of a request of the campaign that had no usable answer.
func (c *Candidate) failed(now Reading, r Request) {
	if r.Kind == Acquire {
		c.uncertain, c.doubt = true, now.Mono+c.timing.TTL
		if c.silent == past { // the first in a row: a suspension while it was under way does not count
			c.silent = max(r.Sent.Mono, now.Mono-r.Bound)
		}
		if now.Mono-c.silent >= c.timing.TTL {
			c.despair(now)
		}
	}
	c.retreat(now)
	c.unknown++
	c.wake, c.regular = max(now.Mono+c.backoff(c.unknown), c.back), past
	if c.hinted { // leaders are asked to renew now: a broken connection must not delay that
		c.hint(now)
	}
}

// despair ends a campaign whose requests have had no answer for a TTL. They may arrive all the
// same, and each would prolong a lease that it does not know of: what it was granted goes back, and
// it stands back so that another may have it.
func (c *Candidate) despair(now Reading) {
	c.giveBack(now, c.nonce, 0)
	c.nonce, c.uncertain, c.hinted = "", false, false
	c.back, c.polite = now.Mono+c.timing.Retry+c.part(c.timing.Retry/10), false
}

// backoff is the pause after n unknown answers in a row: TTL/20, doubled up to TTL/6, less up to a
// quarter of it.
func (c *Candidate) backoff(n int) time.Duration {
	pause := Backoff(c.timing.TTL/20, n, c.timing.TTL/6)
	return pause - c.part(pause/4)
}

// renewAfter draws when the next renewal is due.
func (c *Candidate) renewAfter(r Request) {
	c.drawn = r.Sent.Mono + c.timing.Renew*9/10 + c.part(c.timing.Renew/5)
	c.wake = c.drawn
}

// part is a random part of d.
func (c *Candidate) part(d time.Duration) time.Duration {
	return time.Duration(c.random() * float64(d))
}

func (c *Candidate) number() uint64 {
	c.seq++
	return c.seq
}

// learn keeps what any reply says: the highest token, the longest TTL and Redis's time.
func (c *Candidate) learn(now Reading, r Request, a Answer) {
	if a.Verdict == Unknown {
		return
	}
	if SaneToken(a.Token, a.Now) {
		c.floor = max(c.floor, a.Token)
	}
	if a.TTL > 0 && a.TTL <= MaxTTL {
		c.seen.last = a.TTL
		if a.TTL >= c.remembered(now) {
			c.seen.longest, c.seen.longestAt = a.TTL, now.Mono
		}
	}
	trip := now.Mono - r.Sent.Mono
	if c.clock.known && r.Sent.Mono >= c.clock.at.Mono {
		passed := time.Duration(a.Now-c.clock.redis) * time.Millisecond // by Redis's clock, since the last estimate
		slack := maxStep + (r.Sent.Mono-c.clock.at.Mono)/20
		if ahead := passed - r.Sent.Since(c.clock.at); ahead > trip+slack {
			c.step = ahead
		} else if behind := passed - (r.Sent.Mono - c.clock.at.Mono); behind < -(slack + c.timing.Attempt()) {
			c.step = behind
		}
	}
	// A reply that took long says little about when it was made: it is used only if nothing
	// better is known. After a suspension, or a step of Redis's clock, a prompt one that is Stale
	// sets the estimate right.
	if !c.clock.known || trip <= c.timing.Attempt() && r.Sent.Mono >= c.clock.at.Mono {
		c.clock.redis, c.clock.at, c.clock.known = a.Now, r.Sent, true
	}
}

// holdOff is the longest TTL known: our own, or the HoldOff option if that is longer, and those of
// others.
func (c *Candidate) holdOff(now Reading) time.Duration {
	return max(c.timing.TTL, c.timing.HoldOff, c.seen.last, c.remembered(now))
}

// remembered is the longest TTL seen, unless it has not been seen for so long that no lease of it
// can be on any more: one that was a mistake must not lengthen every hold-off for the life of the
// process.
func (c *Candidate) remembered(now Reading) time.Duration {
	if now.Mono-c.seen.longestAt > kept*c.seen.longest {
		return 0
	}
	return c.seen.longest
}
