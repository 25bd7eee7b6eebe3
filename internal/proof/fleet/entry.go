//go:build unix

package fleet

import (
	"fmt"
	"strings"
	"time"
)

// Kind says what an entry of the log is about.
type Kind string

// The kinds of entries. The first are written by members of a fleet, the others by the cluster.
const (
	Started   Kind = "started"    // a process called Run
	Led       Kind = "led"        // it believed to lead from At to Until: at least so long
	WorkBegan Kind = "work_began" // leader work
	WorkEnded Kind = "work_ended" // it returned; Cancelled is when its context ended and Text why
	Released  Kind = "released"   // Redis confirmed that the lease was given back
	RunBegan  Kind = "run_began"  // of a task
	RunEnded  Kind = "run_ended"
	Removed   Kind = "removed"    // it swept an instance out of the registry: Text
	StopAsked Kind = "stop_asked" // it was told to end
	Stopped   Kind = "stopped"    // Run returned: Text is its error
	Heard     Kind = "heard"      // whether its subscription hears: OK, or Text says why not
	Listed    Kind = "listed"     // the instances that it sees as active: Text, by blanks
	Told      Kind = "told"       // an event of tenure that helps to understand a log

	Wrote  Kind = "wrote"  // the fenced resource was written to: OK says whether it accepted
	Gone   Kind = "gone"   // a process was killed, at the latest then
	Struck Kind = "struck" // a fault, from At to Until: Text is its name
	Calm   Kind = "calm"   // nothing is disturbed, from At to Until
	Asked  Kind = "asked"  // the operator asked, at At, and was answered at Until: Text says what, OK or Err how
	Record Kind = "record" // of a run that was triggered, as Redis has it: Run is the trigger, Text how it ended
	Audit  Kind = "audit"  // of a command, as Redis has it: Run is its ID, Who was asked, OK whether it is over, Text its state
)

// The ends of a term, as [WorkEnded] names them.
const (
	endStopped  = "stopped"
	endResigned = "resigned"
	endLost     = "lost"
)

// Entry is one line of the log. Times are of the monotonic clock of the host.
type Entry struct {
	Kind  Kind          `json:"k"`
	At    time.Duration `json:"t"`
	Until time.Duration `json:"u,omitempty"`
	Who   string        `json:"w,omitempty"` // instance ID
	Life  int           `json:"l,omitempty"` // the how manieth process of that ID
	Token int64         `json:"n,omitempty"`
	Text  string        `json:"x,omitempty"`
	OK    bool          `json:"ok,omitempty"`

	// Of leader work.
	Cancelled time.Duration `json:"c,omitempty"`
	Deadline  time.Duration `json:"d,omitempty"` // the last that was seen of its lease
	Stall     time.Duration `json:"g,omitempty"` // the longest that the process was not scheduled around the end

	// Of a run of a task.
	Task    string `json:"task,omitempty"`
	Run     string `json:"run,omitempty"`
	Slot    int64  `json:"slot,omitempty"` // ms of Redis's clock
	Attempt int    `json:"try,omitempty"`
	Number  string `json:"number,omitempty"` // of a run that was triggered: what the operator gave it

	// Of what the operator asked for.
	ID   string        `json:"id,omitempty"`   // of the command
	Err  string        `json:"err,omitempty"`  // its answer
	Wall time.Duration `json:"wall,omitempty"` // Until, by the wall clock

	// Of a fault.
	Strike *Strike `json:"strike,omitempty"`
}

// Strike says what a fault touches, and which promises are not given while it lasts.
type Strike struct {
	Targets  []string `json:"targets,omitempty"`  // instances whose process or connection it disturbs
	Stopped  bool     `json:"stopped,omitempty"`  // SIGSTOP: what ran there could heed nothing
	All      bool     `json:"all,omitempty"`      // Redis itself, or the whole host
	Overlap  bool     `json:"overlap,omitempty"`  // outside of the conditions of P1: overlaps are measured, no violation
	Records  bool     `json:"records,omitempty"`  // Redis may lose the records of tasks and instances
	Failover bool     `json:"failover,omitempty"` // another server has become the master
	What     string   `json:"what,omitempty"`     // which of several of that name
	Most     int      `json:"most,omitempty"`     // of a deploy: how many changes of the leader it may cost
}

// process is one process of the fleet.
type process struct {
	who  string
	life int
}

func (e *Entry) process() process { return process{e.Who, e.Life} }

func (p process) String() string { return fmt.Sprintf("%s/%d", p.who, p.life) }

// line is an entry as people read it, by a clock that began at zero.
func (e *Entry) line(zero time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12.6f  %-10s", (e.At - zero).Seconds(), e.Kind)
	if e.Who != "" {
		fmt.Fprintf(&b, " %v", e.process())
	}
	if e.Until != 0 {
		fmt.Fprintf(&b, " until %.6f", (e.Until - zero).Seconds())
	}
	if e.Token != 0 {
		fmt.Fprintf(&b, " token %d", e.Token)
	}
	if e.Cancelled != 0 {
		fmt.Fprintf(&b, " cancelled %.6f deadline %.6f stall %v", (e.Cancelled - zero).Seconds(), (e.Deadline - zero).Seconds(), e.Stall)
	}
	if e.Task != "" {
		fmt.Fprintf(&b, " task %s slot %d attempt %d run %s", e.Task, e.Slot, e.Attempt, e.Run)
	}
	if e.Kind == Heard {
		fmt.Fprintf(&b, " %v", e.OK)
	}
	if e.Kind == Wrote {
		fmt.Fprintf(&b, " accepted %v", e.OK)
	}
	if e.Text != "" {
		fmt.Fprintf(&b, " %s", e.Text)
	}
	if e.Number != "" || e.ID != "" {
		fmt.Fprintf(&b, " number %q command %q: %s", e.Number, e.ID, e.Err)
	}
	if e.Strike != nil {
		fmt.Fprintf(&b, " %+v", *e.Strike)
	}
	return b.String()
}
