//go:build unix

package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
)

// saidAfter is how long an instance waits before it says so: what is over sooner is of no interest.
const saidAfter = time.Second

// waiter says why tenure run does not lead, if that lasts. It is not safe for concurrent use:
// events come one at a time.
type waiter struct {
	status func() tenure.ElectionStatus
	say    func(text string)
	due    *time.Timer // nil: nothing is to be said
}

// hear takes an event of the election.
func (w *waiter) hear(e tenure.Event) {
	if e.Type != tenure.EventElectionWaiting {
		return
	}
	if w.due != nil {
		w.due.Stop()
	}
	w.due = time.AfterFunc(saidAfter, func() {
		if text := waitsText(e, w.status()); text != "" {
			w.say(text)
		}
	})
}

// waitsText says what an instance waits for; "": it leads meanwhile, or waits for a moment only.
func waitsText(e tenure.Event, s tenure.ElectionStatus) string {
	if string(s.Waiting) != e.Reason {
		return ""
	}
	role, until := out.Role(e.Role), ""
	if left := time.Until(s.WaitingUntil); left > 0 {
		until = fmt.Sprintf(" (election possible in %s)", out.For(left))
	}
	switch s.Waiting {
	case tenure.WaitLease:
		return fmt.Sprintf("waits: %s leads %s", cmp.Or(s.Leader, "another instance"), role)
	case tenure.WaitForeign:
		return fmt.Sprintf("waits: another program holds the lease of %s, which is no tenure client", role)
	case tenure.WaitEmpty:
		return "waits: Redis knows nothing of " + role + " yet, and asks whether somebody leads it" + until
	case tenure.WaitYoung:
		return fmt.Sprintf("waits: Redis is %s old, a leader of %s may hold a lease from before its restart%s", out.For(e.Took+time.Since(e.Time)), role, until)
	case tenure.WaitHold:
		return "waits: Redis has restarted, failed over or lost data, and may have forgotten a lease of " + role + until
	case tenure.WaitVanished:
		return "waits: the lease of " + role + " vanished before its end, and is honoured until then" + until
	case tenure.WaitDraining:
		return "stands back: this instance drains (tenure undrain ends that)"
	}
	return ""
}
