package membership

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// A sweep marks instances that have been silent for DriftedAfter and removes those that have been
// for DownAfter. Redis's clock decides, and the script that removes looks again (P9). Three rules
// keep it from marking or removing crowds that are silent because they cannot send heartbeats:
//
//   - Grace. A leader that begins to sweep has not seen whether anybody could send heartbeats
//     before: after an outage of Redis, whose end begins a new term if it was longer than a lease,
//     all are silent. Nobody is marked before the sweeper has watched for two heartbeats, and nobody
//     is removed before it has watched for DriftedAfter. The watch begins anew if Redis's clock
//     jumped, or if the last look that succeeded is so far back that an outage since then could
//     have kept somebody silent for DriftedAfter: a SweepInterval and a heartbeat at most, and a
//     SweepInterval and a third of a heartbeat at least, so that a slow look is no outage.
//     So it does whenever the silent cannot be judged: a Redis that refuses writes answers
//     looks, and takes no heartbeats.
//   - Cap. Of n instances at most max(1, n/4) are removed within two heartbeats, longest silent
//     first. Redis keeps the count (<ns>:beats:removed), so that sweeps may be as frequent as they
//     like, and so that it holds across leaders and repeated requests.
//   - Hold. If somebody is down, and more are silent for DriftedAfter than may still be removed, the
//     rest is held: nobody else is removed for another DownAfter (<ns>:beats:hold). DriftedAfter,
//     since the last heartbeats of a crowd that died at once lie up to an interval apart: those who
//     are about to be down are of the crowd. When the hold ends the same rules apply again, so that
//     of a crowd that stays silent at least one instance, and as a rule a quarter of all, goes each
//     DownAfter.
//
// Grace is decided here, the other two by the script sweep, which sees and decides in one step.

const (
	maxPages  = 100         // that one pass judges; the next one goes on from there
	maxScans  = 500         // pages of records that one pass reads
	maxAdopt  = 100         // records of one call: a millisecond of Redis
	clockStep = time.Second // by how much Redis's clock may be ahead of what it should read before that is a step
)

// SweepTiming holds the durations of a sweep, all above zero.
type SweepTiming struct {
	Interval  time.Duration // between two passes
	Heartbeat time.Duration // a living instance sends a heartbeat within it
	TTL       time.Duration // of a heartbeat key
	Drifted   time.Duration // silence after which an instance is marked
	Down      time.Duration // silence after which it is removed
}

// SweepKind is what a question of a sweep asks.
type SweepKind int

// The questions of a sweep.
const (
	Look  SweepKind = iota // who has been silent? One page
	Judge                  // mark and remove the silent ones among IDs
	Scan                   // which records did other programs write? One page
	Adopt                  // take up those among IDs
)

// Question is one call that a sweep asks for. The driver sends it and hands it back with its
// answer.
type Question struct {
	Seq  uint64
	Kind SweepKind
	Sent time.Duration // monotonic, before it was handed to the client

	From string // Look: the score to go on from; "": the first page
	Skip int64  // Look: entries of that score to pass over

	IDs          []string // Judge, Adopt
	Mark, Remove bool     // Judge: what may be done about the silent
	// Unwatched is the longest silence that a foreign instance is charged with whose heartbeat key
	// nobody has watched; 0: they were watched. Judge only.
	Unwatched time.Duration

	Cursor string // Scan: "0": the first page
}

// Page is one page of the silent instances.
type Page struct {
	Now            int64 // Redis time in ms
	Records, Beats int   // how many records there are, and how many last heartbeats
	From           string
	Skip           int64 // where the next page begins; From "": there is none
	IDs            []string
}

// Sweep decides what the leader asks about the instances during one term. It is a plain value with
// one owner and is not safe for concurrent use. All times are readings of one monotonic clock.
type Sweep struct {
	timing SweepTiming

	seq      uint64
	flying   Question  // that is out; Seq 0: none
	ask      *Question // the next one; nil: the next pass is not due
	due      time.Duration
	failures int // in a row

	// The watch.
	seen     bool
	redis    int64         // Redis's clock at the last look that succeeded
	sent     time.Duration // before that look
	watching time.Duration // since then without a gap
	gap      bool          // not every silent instance was looked at since

	// The pass.
	stage  stage
	pages  int           // that are still judged
	began  time.Duration // the watch as it was when the pass began
	excess int           // records beyond last heartbeats, then
	page   Page          // that is judged
	resume place         // where the last pass ended, if this one has not gone on from there yet
	from   place         // where the next pass goes on

	// Records of other programs.
	scanned bool // all that can be adopted were, at the time scanAt
	scanAt  time.Duration
	strange int      // records beyond last heartbeats after that
	scans   int      // pages of records that are still read
	adopt   []string // of the page that was read
	cursor  string   // of the next one; "0": there is none
}

// stage is what the next answer to a Look means.
type stage int

const (
	first stage = iota // the pass begins
	paged              // one more page of the silent
	last               // every record was read: the pass ends
)

// place is where a listing of the silent goes on.
type place struct {
	from string // "": at the beginning
	skip int64
}

// NewSweep returns a Sweep whose first pass is due at once.
func NewSweep(now time.Duration, timing SweepTiming) *Sweep {
	return &Sweep{timing: timing, due: now}
}

// Next returns the question that is due now, if there is one. Only one is out at a time: the driver
// hands it back with its answer, or with its failure.
func (s *Sweep) Next(now time.Duration) (q Question, due bool) {
	if s.flying.Seq != 0 {
		return Question{}, false
	}
	if s.ask == nil {
		if now < s.due {
			return Question{}, false
		}
		s.stage, s.pages = first, maxPages
		s.ask = &Question{Kind: Look}
	}
	q, s.ask = *s.ask, nil
	s.seq++
	q.Seq, q.Sent = s.seq, now
	if q.Kind == Judge {
		q.Mark, q.Remove = s.Marks(now), now-s.watching >= s.timing.Drifted && !s.gap // rule grace
		if s.gap {                                                                    // a heartbeat key that is gone says no more: a foreign instance is not taken for silent any longer than that
			q.Unwatched = s.timing.TTL
		}
	}
	s.flying = q
	return q, true
}

// Marks reports whether the sweep has watched for long enough to mark the silent.
func (s *Sweep) Marks(now time.Duration) bool { return now-s.watching >= 2*s.timing.Heartbeat }

// Hurry makes the next pass due now, if none is under way.
func (s *Sweep) Hurry(now time.Duration) { s.due = min(s.due, now) }

// Wait is how long the driver may sleep if nothing else wakes it: until then Next has nothing to
// ask, or the answer that is waited for may still come.
func (s *Sweep) Wait(now time.Duration) time.Duration {
	switch {
	case s.flying.Seq != 0:
		return max(s.flying.Sent+MaxBound-now, 0)
	case s.ask != nil:
		return 0
	}
	return max(s.due-now, 0)
}

// Silence is how long an instance has to be silent to be listed: DriftedAfter/2. A foreign instance
// has to be looked at before it seems drifted.
func (s *Sweep) Silence() time.Duration { return s.timing.Drifted / 2 }

// Window is the time over which removals are counted against the cap: two heartbeats.
func (s *Sweep) Window() time.Duration { return 2 * s.timing.Heartbeat }

// Looked takes the answer to a Look. done says that the pass is over.
func (s *Sweep) Looked(now time.Duration, q Question, p Page) (done bool) {
	if !s.takes(q) {
		return false
	}
	s.watch(q.Sent, now, p.Now)
	switch {
	case s.stage == last:
		s.scanned, s.scanAt, s.strange = true, now, p.Records-p.Beats
		return s.over(now)
	case s.stage == first:
		s.stage = paged
		s.began, s.resume, s.excess = s.watching, s.from, p.Records-p.Beats
	case s.watching != s.began: // a gap: the pages before this one are to be judged again
		return s.foreign(now)
	}
	s.page = p
	if len(p.IDs) == 0 {
		return s.onward(now, 0)
	}
	s.ask = &Question{Kind: Judge, IDs: p.IDs}
	return false
}

// Judged takes the answer to a Judge: how many instances it removed.
func (s *Sweep) Judged(now time.Duration, q Question, removed int) (done bool) {
	return s.takes(q) && s.onward(now, removed)
}

// onward goes on after a page was judged. The longest silent always come first: the dead are among
// them. If the last pass did not come to the end, this one then goes on from there.
func (s *Sweep) onward(now time.Duration, removed int) (done bool) {
	next := place{s.page.From, s.page.Skip}
	if s.resume.from != "" && removed == 0 {
		next = s.resume
	}
	s.resume, s.from = place{}, next
	if next.from == "" {
		s.gap = false
		return s.foreign(now)
	}
	if s.pages--; s.pages == 0 {
		return s.foreign(now)
	}
	s.ask = &Question{Kind: Look, From: next.from, Skip: next.skip}
	return false
}

// watch keeps account of how long this sweeper has watched without a gap. It hears of every look.
func (s *Sweep) watch(sent, received time.Duration, redis int64) {
	unseen := received - s.sent
	step := time.Duration(redis-s.redis)*time.Millisecond - unseen
	if !s.seen || unseen >= s.outage() || step >= unseen/100+clockStep {
		s.unwatched(received)
	}
	s.seen, s.redis, s.sent = true, redis, sent
}

// unwatched begins the watch anew.
func (s *Sweep) unwatched(now time.Duration) {
	s.watching, s.gap = now, true
	s.from = place{}
}

// outage is the time without a look from which on an outage may have silenced who lives.
func (s *Sweep) outage() time.Duration {
	return min(s.timing.Interval+s.timing.Heartbeat, max(s.timing.Drifted-silence(s.timing.Heartbeat), s.timing.Interval+s.timing.Heartbeat/3))
}

// foreign takes up the records that other programs wrote. All are read when the sweeper begins,
// when their number has changed against that of the last heartbeats, and each DownAfter.
func (s *Sweep) foreign(now time.Duration) (done bool) {
	if s.scanned && s.excess == s.strange && now-s.scanAt < s.timing.Down {
		return s.over(now)
	}
	s.scanned, s.scans, s.cursor = false, maxScans, "0"
	s.scan()
	return false
}

func (s *Sweep) scan() {
	s.scans--
	s.ask = &Question{Kind: Scan, Cursor: s.cursor}
}

// Scanned takes the answer to a Scan: the IDs of records that may be adopted, and the cursor of the
// next page; "0": there is none.
func (s *Sweep) Scanned(q Question, ids []string, next string) {
	if s.takes(q) {
		s.adopt, s.cursor = ids, next
		s.goOn()
	}
}

// Adopted takes the answer to an Adopt.
func (s *Sweep) Adopted(q Question) {
	if s.takes(q) {
		s.goOn()
	}
}

// goOn adopts what is left of a page of records, reads the next page, or ends with a last look.
func (s *Sweep) goOn() {
	switch n := min(len(s.adopt), maxAdopt); {
	case n > 0:
		s.ask = &Question{Kind: Adopt, IDs: s.adopt[:n]}
		s.adopt = s.adopt[n:]
	case s.cursor != "0" && s.scans > 0:
		s.scan()
	default:
		s.stage, s.ask = last, &Question{Kind: Look}
	}
}

// over ends the pass.
func (s *Sweep) over(now time.Duration) (done bool) {
	s.failures, s.due = 0, now+s.timing.Interval
	return true
}

// Failed takes the failure of a question, an error or no answer in time: the pass is given up. The
// next one begins after SweepInterval/10, doubled with each failure in a row up to SweepInterval/2.
func (s *Sweep) Failed(now time.Duration, q Question) {
	if !s.takes(q) {
		return
	}
	if q.Kind == Judge {
		s.unwatched(now)
	}
	s.ask, s.adopt = nil, nil
	s.failures++
	s.due = now + lease.Backoff(s.timing.Interval/10, s.failures, s.timing.Interval/2)
}

// takes reports whether a question is the one that is out, and takes it back.
func (s *Sweep) takes(q Question) bool {
	if q.Seq == 0 || q.Seq != s.flying.Seq {
		return false
	}
	s.flying = Question{}
	return true
}
