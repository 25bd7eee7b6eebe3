package schedule

import "time"

// Policy is what a task is registered with, its defaults filled in. It never changes.
type Policy struct {
	Name     string // the jitter of a slot follows from it
	Spec     string // stands for the schedule in the record, see Hash
	Text     string // of the schedule, for people
	Schedule Schedule

	Missed     Missed
	MaxCatchUp int           // of RunAll
	Grace      time.Duration // of SkipMissed; the jitter comes on top
	Jitter     time.Duration // a slot starts up to so much later
	// StartingDeadline is how late a slot may start; 0: any time.
	StartingDeadline time.Duration
	InitialDelay     time.Duration // before the first slot of a task without a record
	Overlap          Overlap
	Abandoned        Abandoned
	RunOnElection    bool // once in each term

	Attempts   int           // of one run, in all
	Backoff    time.Duration // the pause before the second attempt
	MaxBackoff time.Duration // the longest pause
}

// Overlap says what becomes of a slot that is due while the run before it is on.
type Overlap int

const (
	OverlapSkip  Overlap = iota // it is passed over
	OverlapQueue                // one run waits, for the latest such slot
)

// Abandoned says what becomes of a run that its leader did not bring to an end.
type Abandoned int

const (
	AbandonedRerun Abandoned = iota // the next leader runs its slot again, unless Missed then asks for no run
	AbandonedFail                   // it has failed
)

// MaxCrashes is how many leaders may die during runs of a task, in a row, before a run is not
// repeated.
const MaxCrashes = 3

// rules are what the grid needs to know of a task that has a record.
func (p *Policy) rules() Rules {
	return Rules{Schedule: p.Schedule, Missed: p.Missed, MaxCatchUp: p.MaxCatchUp, Grace: p.Grace + p.Jitter}
}
