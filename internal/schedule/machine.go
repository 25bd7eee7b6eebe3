package schedule

import (
	"iter"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

const (
	// CallBound is how long one call to the store is waited for.
	CallBound = 3 * time.Second
	// LongestPause is the longest one between two calls without an answer.
	LongestPause = 5 * time.Second
	// FinishBound is for how long after the term, or the run, has ended its end is reported.
	FinishBound = 5 * time.Second
	// LookEvery is how often a record is looked at that does not change.
	LookEvery = time.Minute
	// SlotStep is the least step of Redis's clock that may leave a slot where it would be waited
	// for too long.
	SlotStep = time.Minute
	// Forever is the Wait of a Step that has nothing to wait for but facts. It is longer than
	// anything that is waited for, and can be added to a time.
	Forever = 100 * 365 * 24 * time.Hour

	// LongestRetry is the longest pause that an attempt may ask for.
	LongestRetry = 30 * 24 * time.Hour

	firstPause  = 100 * time.Millisecond
	reopenPause = 10 * time.Millisecond
	maxDisputed = 10 // wrong answers that the record has moved until that is reported
)

// Term is what the machines of one term share. Its owner sets what is exported before the first
// machine is made, then lets time pass with Tick.
type Term struct {
	Token    int64
	Lease    string         // key of the lease whose leader runs the tasks; "": there is only one
	Instance string         // ID of this process
	NewRun   func() string  // draws the ID of a run
	Random   func() float64 // draws what is taken off a pause between two attempts
	Clock    lease.RedisClock
	Held     bool // no run begins; those that are on go on, with their retries

	now   time.Duration // by the monotonic clock that Clock was taught with
	over  bool
	ended time.Duration // when it was over
	room  []Note        // for the next notes of any task: one that had some of its own would keep it
}

// Tick lets time pass.
func (t *Term) Tick(now time.Duration) { t.now = now }

// End says that the term is over: nothing begins any more, and what has ended is still recorded.
func (t *Term) End() {
	if !t.over {
		t.over, t.ended = true, t.now
	}
}

// Over reports whether the term is over, and since when.
func (t *Term) Over() (over bool, since time.Duration) { return t.over, t.ended }

// redis is what Redis's clock reads.
func (t *Term) redis() int64 { return t.Clock.Read(t.now) }

// Machine decides about one task during one term. It is a plain value with one owner and is not
// safe for concurrent use. Facts go in: an answer of the store, the end of an attempt, the answer
// of a schedule, a step of Redis's clock, and by Term the time and the end of the term. After a
// fact, or when the time of the last Step has come, the owner calls Step and does what it asks for.
// What has happened meanwhile is in Take, in order.
type Machine struct {
	policy Policy
	term   *Term
	memory *Memory

	record        store.TaskRecord  // as it was last heard of
	opened        bool              // it is ours
	checked       bool              // its next slot is one that the schedule may have led to
	changed       bool              // by the last answer
	lost          *store.TaskRecord // the last that had a next slot, if the record has none: it goes on from there
	rerunOf       string            // ID of a run that another leader left behind, to be run again
	asked         bool              // the record was read since it is to be given up, or is being read
	moved         int               // how often in a row the record was not what it was
	disputed      int               // how often in a row that was said though nothing in it had changed
	other         string            // key of the lease that the record says it belongs to, if it is not ours: untrusted
	runOnElection bool              // is still to be done
	news          bool              // somebody says that the record has changed
	triggerHeld   time.Duration     // the trigger that waits is not claimed before
	call          *Call
	queued        *Call // the end of a run, behind what is being asked
	question      *Question
	run           *run
	began         int64 // see slotState
	lastEnded     int64
	backlog
	notBefore time.Duration // nothing is decided before
	disabled  bool          // nothing more in this term
	retired   bool          // likewise: see Retire
	blocked   bool          // no run may begin: see Block
	wants     bool          // one would

	notes []Note
}

// NewMachine returns the machine of a task for a term. memory is what its process knows of the task
// from earlier terms.
func NewMachine(policy Policy, term *Term, memory *Memory) *Machine {
	return &Machine{policy: policy, term: term, memory: memory, runOnElection: policy.RunOnElection}
}

// Step is what a task wants next.
type Step struct {
	// Call is to be sent, as far as the owner lets it: then it calls Sent. Else it is asked for
	// again by the next Step.
	Call *Call
	// Question is to be put to the schedule of the task: see Question.
	Question *Question
	// Wait is how long nothing else is due by the monotonic clock, and Due is when something is by
	// Redis's clock, in Unix ms; 0: nothing.
	Wait time.Duration
	Due  int64
}

func (s *Step) within(wait time.Duration) { s.Wait = min(s.Wait, wait) }

// at asks for a Step at a time of Redis's clock, and what remains of a millisecond behind it.
func (m *Machine) at(s *Step, ms int64, rest time.Duration) {
	due := ms + rest.Milliseconds()
	switch left := m.term.Clock.Until(ms, m.term.now) + rest; {
	case m.term.Clock.Until(due, m.term.now) <= 0:
		s.within(max(left, 0))
	case s.Due == 0 || due < s.Due:
		s.Due = due
	}
}

// Step takes the task as far as it goes without waiting.
func (m *Machine) Step() Step {
	s := Step{Wait: Forever}
	if m.run != nil {
		m.tend(&s)
	}
	if m.call == nil && m.queued != nil {
		queued := m.queued
		m.queued = nil
		m.enqueue(queued)
	}
	switch {
	case m.call != nil:
	case !m.over() && m.question == nil && !m.disabled:
		m.decide(&s)
	case m.news && m.cancelable(): // nothing else is decided: the term is over, say, or its schedule keeps the task
		m.read(store.TaskRead{})
	}
	if m.call != nil {
		m.drive(&s)
	}
	return s
}

// decide finds what is to be asked next.
func (m *Machine) decide(s *Step) {
	t := m.term
	if m.notBefore > t.now && !(m.news && m.opened) {
		s.within(m.notBefore - t.now)
		return
	}
	redis := t.redis()
	delay := m.policy.Delay(m.record.Next)
	starts := t.Clock.Until(m.record.Next, t.now) + delay // the next slot
	held := t.Held || m.blocked && m.wants
	switch {
	case !m.opened:
		m.open()
	case m.news:
		m.read(store.TaskRead{})
	case m.run != nil && m.record.Due != "" && !m.record.Follows(m.policy.Spec) && !(m.owes(redis) && m.waitsForRun()):
		m.plan(s, redis) // what it runs was owed under another schedule
	case m.run != nil && m.waitsForRun():
	case m.wasPaused(redis):
		m.passPause(s)
	case m.run != nil && starts > 0:
		m.at(s, m.record.Next, delay)
	case m.run != nil && m.run.quiet > t.now:
		s.within(m.run.quiet - t.now)
	case m.run != nil:
		m.due(s, redis)
	case held && (m.rerunOf != "" || m.checked && m.record.Follows(m.policy.Spec) || m.owes(redis)): // what is due is missed
	case m.rerunOf != "":
		wait := t.Clock.Until(m.record.RetryAt, t.now)
		if wait <= 0 || wait > m.longestPause() {
			m.rerun(s, redis, 0)
			return
		}
		m.at(s, m.record.RetryAt, 0) // it was about to be retried
		switch {
		case m.record.Next == 0:
		case starts > 0:
			m.at(s, m.record.Next, delay)
		default:
			m.rerun(s, redis, wait) // unless later slots stand for it by then
		}
	case !held && m.record.Due != "" && !m.slotFirst(starts) && m.triggered(s): // a new record gets its first slot before
		m.claim(slotPlan{}, store.ClaimTrigger, m.record.Trigger)
	case m.owes(redis) && starts > 0:
		m.at(s, m.record.Next, delay)
	case m.owes(redis):
		m.owed(s, redis)
	case !m.planned():
		m.plan(s, redis)
	case m.record.Next != 0 && starts <= 0:
		m.due(s, redis)
	case m.runOnElection && m.record.Crashes < MaxCrashes:
		m.claim(slotPlan{}, store.ClaimExtra, strconv.FormatInt(m.record.Finished, 10))
	case m.record.Next != 0:
		m.at(s, m.record.Next, delay)
	}
}

// longestPause is the longest that a rerun may wait for before its next attempt: one that is due
// later was noted before Redis's clock was set back.
func (m *Machine) longestPause() time.Duration {
	return max(m.policy.MaxBackoff, store.Milliseconds(min(m.record.RetryIn, LongestRetry.Milliseconds())))
}

// Busy reports whether something of the task is still under way: a run, or its end that is being
// told.
func (m *Machine) Busy() bool { return m.run != nil || m.call != nil || m.queued != nil }

// Calling is the call that the store has not answered, sent or not; nil: there is none.
func (m *Machine) Calling() *Call { return m.call }

// Next is the next slot, if the machine waits for it; 0: it does not.
func (m *Machine) Next() int64 {
	if !m.Looks() {
		return 0
	}
	return m.record.Next
}

// Looks reports whether Look may be called.
func (m *Machine) Looks() bool {
	able := !m.retired && !m.disabled || m.cancelable()
	return !m.term.over && m.opened && able && m.call == nil && m.queued == nil
}

// Look reads the record, for one machine of a term once in LookEvery: two clocks drift apart, one
// may step, and hints of triggers may be lost. It is for the machine whose Next is the first one,
// or else for any that Looks. of is that of store.TaskRead.
func (m *Machine) Look(of string) { m.read(store.TaskRead{Triggers: true, Of: of}) }

func (m *Machine) read(r store.TaskRead) {
	m.news = false
	m.enqueue(&Call{
		Ask: r,
		take: func(reply store.TaskReply) {
			ours := reply.Record.Token == m.term.Token && reply.Record.Run == "" // or Redis has forgotten the end of a run
			m.opened, m.checked = m.run != nil || ours, false
			if ours && reply.Record.Waiting() != m.rerunOf {
				m.rerunOf = "" // it was canceled
			}
			if m.rerunOf == "" || !m.opened { // what it waited for is over, as far as is known
				m.notBefore = 0
			}
		},
	})
}

// News says that the record has changed, as far as somebody else knows: it is read as soon as
// nothing else is being asked.
func (m *Machine) News() { m.news = true }

// owes reports whether a slot is due under a schedule that has changed since.
func (m *Machine) owes(redis int64) bool {
	return m.record.Due != "" && !m.record.Follows(m.policy.Spec) && m.record.Next != 0 && m.record.Next <= redis
}

// planned reports whether the next slot is known to be one of the schedule of this process.
func (m *Machine) planned() bool {
	return m.checked && m.record.Due != "" && m.record.Follows(m.policy.Spec)
}

// waitsForRun reports whether what is due waits until the run that is on has ended.
func (m *Machine) waitsForRun() bool {
	return m.record.Next <= m.began || m.late || m.policy.Overlap == OverlapQueue
}

// slotFirst reports whether the next slot, which starts in so long, comes before a trigger that
// waits: if it is due, and the last run was triggered. Neither keeps the other from running then.
func (m *Machine) slotFirst(starts time.Duration) bool {
	return m.record.Next != 0 && starts <= 0 && m.record.RunTrigger != ""
}

// triggered reports whether the trigger that waits is to be claimed now, if nothing runs.
func (m *Machine) triggered(s *Step) bool {
	if m.record.Trigger == "" {
		return false
	}
	if wait := m.triggerHeld - m.term.now; wait > 0 {
		s.within(wait)
		return false
	}
	return true
}

// Stepped looks at the task anew after a step of Redis's clock of at least SlotStep, which may have
// left its next slot out of reach.
func (m *Machine) Stepped(by time.Duration) {
	m.checked, m.notBefore = false, 0
	if by < 0 || m.run != nil { // else the slots that the clock was set past came during no run
		m.began += by.Milliseconds()
		m.lastEnded += by.Milliseconds()
	}
	switch {
	case by > 0: // what the clock was set past is missed too: it is all counted anew
		m.until = 0
	case m.until != 0:
		m.until += by.Milliseconds()
	}
	if m.run != nil {
		m.run.retryAt += by.Milliseconds()
	}
}

// Take is what has happened since the last call, in order. What a loop that ends early has not seen
// is lost.
func (m *Machine) Take() iter.Seq[Note] {
	return func(yield func(Note) bool) {
		if len(m.notes) == 0 {
			return
		}
		notes := m.notes
		m.notes = nil
		for _, n := range notes {
			if !yield(n) {
				break
			}
		}
		clear(notes)
		m.term.room = notes[:0]
	}
}

func (m *Machine) note(n Note) {
	if m.notes == nil {
		m.notes, m.term.room = m.term.room, nil
	}
	m.notes = append(m.notes, n)
}

// NoteKind is what a Note is about.
type NoteKind int

// What happens to a task. Each names the fields that it sets.
const (
	Start      NoteKind = iota // an attempt is to begin now: Attempt. Its end goes to Ended
	Skipped                    // slots were passed over: Slot (the first), Count
	Changed                    // the record follows this schedule now, it had another: Slot (the next)
	GivenUp                    // a run that its leader left behind was ended as abandoned, or as canceled: Record, Canceled
	Unanswered                 // the call in flight is waited for no longer
	GoesOn                     // what kept the task from going on is over, if anything did
	Fenced                     // the record is of a later term, the task stands: Record
	Foreign                    // the record is another role's, the task stands: Record
	Disputed                   // the record is said to have changed, and has not: the task stands
	Untold                     // the end of a run could not be recorded within FinishBound
	Forgotten                  // the record does not know a run whose end was reported: Run
	Expired                    // a trigger waited for too long, and is gone: Run (its ID)
	Cancel                     // the attempt that is on is to end: Run
	Returned                   // an attempt has returned, or none is to follow any more: Run, Outcome, Pause (before the next)
)

// Note is something that has happened to a task.
type Note struct {
	Kind    NoteKind
	Attempt Attempt
	Slot    int64
	Count   int
	Run     string
	Outcome Outcome
	Pause   time.Duration
	Record  store.TaskRecord

	Canceled bool
}

// Attempt is one attempt of a run.
type Attempt struct {
	Run    string // ID
	Slot   int64  // when it was due; of a run outside the schedule when that began
	Number int    // counts from 1
	// Trigger is the ID of what triggered the run, with its arguments; "": nothing did.
	Trigger, Args string
	// Slow is how long it may take before that is reported.
	Slow time.Duration
}
