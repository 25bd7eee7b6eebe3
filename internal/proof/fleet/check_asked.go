//go:build unix

package fleet

import (
	"fmt"
	"time"
)

// askedFigures is what the operator was answered, and what came of it.
type askedFigures struct {
	asked, done        int
	triggers, ran      int // that were accepted; whose run has begun
	lost               int // of the others: Redis says how their run ended
	pauses, heldSlots  int // that were confirmed; slots that they held up, at least
	listed, unlistable int // commands in the audit stream; older than all that it keeps
	left               int // that a process had taken which was killed
}

func (f *askedFigures) add(o *askedFigures) {
	f.asked, f.done, f.triggers, f.ran, f.lost = f.asked+o.asked, f.done+o.done, f.triggers+o.triggers, f.ran+o.ran, f.lost+o.lost
	f.pauses, f.heldSlots, f.listed, f.unlistable = f.pauses+o.pauses, f.heldSlots+o.heldSlots, f.listed+o.listed, f.unlistable+o.unlistable
	f.left += o.left
}

// AskedReport is what an operator has asked for, and what came of it.
type AskedReport struct {
	Asked, Done       int
	Triggers, Ran     int // accepted; begun once
	Lost              int // accepted, and their run ended before it began: Redis says so
	Pauses, HeldSlots int
	Listed            int // commands that the audit stream has, with their end
	Unlistable        int // older than all that it keeps
	Left              int // taken by a process that was killed then, as the audit stream says
}

func (f *askedFigures) report() *AskedReport {
	if f.asked == 0 {
		return nil
	}
	return &AskedReport{f.asked, f.done, f.triggers, f.ran, f.lost, f.pauses, f.heldSlots, f.listed, f.unlistable, f.left}
}

func (r *AskedReport) String() string {
	return fmt.Sprintf("%d calls, of which %d were done; of %d triggers that were accepted %d ran, once each, and of %d the history says that they were lost; "+
		"%d pauses held up %d slots; %d commands are in the audit stream with their end, %d are older than what it keeps, %d were left as taken by a process that was killed",
		r.Asked, r.Done, r.Triggers, r.Ran, r.Lost, r.Pauses, r.HeldSlots, r.Listed, r.Unlistable, r.Left)
}

// checkAsked holds what the operator asked for against P10, and against what Control promises.
func (c *checker) checkAsked() {
	begun := map[string][]*taskRun{} // by number
	for i := range c.runs {
		if r := &c.runs[i]; r.Task == taskAsked {
			begun[r.Number] = append(begun[r.Number], r)
		}
	}
	records, audits, instances, last := map[string]string{}, map[string]bool{}, map[string]string{}, time.Duration(-1)
	var looks []auditLook
	for i := range c.entries {
		switch e := &c.entries[i]; e.Kind {
		case Record:
			records[e.Run] = e.Text
			last = max(last, e.At)
		case Audit:
			audits[e.Run] = audits[e.Run] || e.OK
			instances[e.Run] = e.Who
			last = max(last, e.At)
			if len(looks) == 0 || e.At-looks[len(looks)-1].at > time.Second {
				looks = append(looks, auditLook{ids: map[string]bool{}})
			}
			looks[len(looks)-1].at = e.At
			looks[len(looks)-1].ids[e.Run] = true
		}
	}
	for number, runs := range begun {
		if len(runs) > 1 {
			c.violated("P10", runs[1].At, "trigger %s of the operator ran in %v and in %v", number, runs[0].process(), runs[1].process())
		}
	}
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind != Asked {
			continue
		}
		c.asked.asked++
		if e.OK {
			c.asked.done++
		}
		if took := e.Until - e.At; took > askBound+noteBound+machine {
			c.violated("Control", e.At, "%s was answered after %v", e.Text, took)
		}
		over, listed := audits[e.ID]
		switch {
		case e.ID == "" || last < e.Until: // nothing was left in Redis, or nobody has looked since
		case !listed && full(looks, e.Until): // it keeps the last 500 or so
			c.asked.unlistable++
		case !listed:
			c.violated("Control", e.At, "the command %s (%s) is not in the audit stream", e.ID, e.Text)
		case !over && c.killed(instances[e.ID], e.At, e.Until): // it had taken it: what nobody takes expires
			c.asked.left++
		case !over:
			c.violated("Control", e.At, "the command %s (%s) has neither ended nor expired", e.ID, e.Text)
		default:
			c.asked.listed++
		}
		switch {
		case e.Text == "trigger" && e.OK && e.Until < last:
			c.triggered(e, len(begun[e.Number]) > 0, records[e.Run])
		case e.Text == "pause" && e.OK:
			c.paused(e)
		case (e.Text == "resign" || e.Text == "transfer") && e.OK:
			c.gaveUp(e)
		case e.Text == "drain" && e.OK:
			c.staysDrained(e)
		case e.Text == "cancel" && e.OK:
			c.canceled(e)
		}
	}
}

// auditLook is one reading of the audit stream.
type auditLook struct {
	at  time.Duration // its last entry
	ids map[string]bool
}

// full reports whether the first look after a time has found so many commands that older ones may
// be gone.
func full(looks []auditLook, after time.Duration) bool {
	for _, l := range looks {
		if l.at >= after {
			return len(l.ids) >= 400
		}
	}
	return false
}

// gaveUp holds a resignation, or a transfer, that was answered as done: a term ended meanwhile. A
// transfer to who leads already changes nothing. The log of a process that was killed meanwhile may
// lack its last words.
func (c *checker) gaveUp(e *Entry) {
	for of, s := range c.work {
		if s.until >= e.At && s.until <= e.Until || e.Number != "" && of.who == e.Number && s.from <= e.Until && s.until >= e.At {
			return
		}
	}
	if !c.killed("", e.At, e.Until) {
		c.violated("Control", e.At, "%s was done at %v, and no term has ended", e.Text, e.Until)
	}
}

// staysDrained holds a drain that was answered as done: until its end is asked for, the process
// begins no term. One that is started anew does not drain.
func (c *checker) staysDrained(e *Entry) {
	until := c.until()
	for i := range c.entries {
		switch next := &c.entries[i]; {
		case next.At < e.Until:
		case next.Kind == Asked && next.Text == "undrain" && next.Number == e.Number, next.Kind == Started && next.Who == e.Number, next.Kind == Gone && next.Who == e.Number:
			until = min(until, next.At)
		}
	}
	for i := range c.terms {
		if t := &c.terms[i]; t.Who == e.Number && t.At > e.Until && t.At < until {
			c.violated("Control", t.At, "%s began a term with token %d, its drain was done at %v", t.Who, t.Token, e.Until)
		}
	}
}

// canceled holds a cancel that was answered as done: a run that was on then has ended. That of a
// process which is dead, or which lost its lease, ends when another one leads.
func (c *checker) canceled(e *Entry) {
	for i := range c.runs {
		if r := &c.runs[i]; r.Task == taskAsked && r.At <= e.Until && r.until >= e.At && r.until <= e.Until+c.LeaseTTL {
			return
		}
	}
	if !c.killed("", e.At-2*c.LeaseTTL, e.Until) && !c.lapsed(e.At-2*c.LeaseTTL, e.Until) {
		c.violated("Control", e.At, "a run was canceled at %v, and none has ended", e.Until)
	}
}

// killed reports whether a process of an instance, or of any if it is "", was killed between two
// times: a command that it had taken has no end.
func (c *checker) killed(instance string, from, to time.Duration) bool {
	for i := range c.entries {
		if e := &c.entries[i]; e.Kind == Gone && (instance == "" || e.Who == instance) && e.At >= from && e.At <= to {
			return true
		}
	}
	return false
}

// triggered holds an accepted trigger: it ran, or Redis says what became of it.
func (c *checker) triggered(e *Entry, ran bool, state string) {
	c.asked.triggers++
	switch {
	case ran:
		c.asked.ran++
	case state == "":
		c.violated("P10", e.At, "trigger %s of the operator was accepted and has not run, and its history has no word of it", e.Number)
	case state == "succeeded":
		c.violated("P10", e.At, "trigger %s of the operator has not run, and its history says that it has", e.Number)
	case c.killed("", e.At, e.Until+2*c.LeaseTTL), c.lapsed(e.At, e.Until+2*c.LeaseTTL), c.asksTo("cancel", e.At, e.Until+2*c.LeaseTTL):
		c.asked.lost++
	default:
		c.violated("P10", e.At, "trigger %s of the operator has not run, its history says %q, and nobody died, lost its lease or canceled it", e.Number, state)
	}
}

// asksTo reports whether the operator asks for something between two times.
func (c *checker) asksTo(what string, from, to time.Duration) bool {
	for i := range c.entries {
		if e := &c.entries[i]; e.Kind == Asked && e.Text == what && e.Until >= from && e.At <= to {
			return true
		}
	}
	return false
}

// paused holds a confirmed pause: no slot that was due after that starts before the next resume is
// asked for, and after that is confirmed the task runs again.
func (c *checker) paused(e *Entry) {
	resume := (*Entry)(nil)
	for i := range c.entries {
		if next := &c.entries[i]; next.Kind == Asked && next.Text == "resume" && next.At >= e.Until && (resume == nil || next.At < resume.At) {
			resume = next
		}
	}
	if resume == nil {
		return
	}
	c.asked.pauses++
	c.asked.heldSlots += int((resume.At - e.Until) / rerunEvery)
	ran, again := time.Duration(0), false
	for i := range c.runs {
		r := &c.runs[i]
		if r.Task != taskHeld {
			continue
		}
		due := time.Duration(r.Slot)*time.Millisecond - e.Wall // after the pause was confirmed
		if r.At >= e.Until && r.At < resume.At && due > 5*time.Millisecond {
			c.violated("P10", r.At, "slot %d of %s started in %v %v after its pause was confirmed", r.Slot, r.Task, r.process(), r.At-e.Until)
		}
		if r.At >= resume.At {
			again = true
		}
		ran = max(ran, r.At)
	}
	if !again && c.until() > resume.Until+runsAgain {
		c.violated("P10", resume.Until, "%s was resumed and has not run since; it ran last at %v", taskHeld, ran)
	}
}

// until is the end of the log.
func (c *checker) until() (last time.Duration) {
	for i := range c.entries {
		last = max(last, c.entries[i].At)
	}
	return last
}
