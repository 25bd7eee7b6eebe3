package virtual

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestVirtualAsks: an operator asks for transfers, drains, triggers and the like while faults go
// on, and for each of them once more when they are over. All is virtual time.
func TestVirtualAsks(t *testing.T) {
	simnet.Exact(t)
	for _, profile := range []string{"asks-calm", "asks-base"} {
		r := mustPlay(t, Request{Profile: profile, Seed: 1, Length: 4 * time.Minute})
		for _, answer := range []string{"transfer: done", "transfer: not ready", "drain: done", "trigger: done", "pause: done", "resume: done", "list: done"} {
			if r.Answers[answer] == 0 {
				t.Errorf("%s: nothing was answered %q: %v", profile, answer, r.Answers)
			}
		}
		if r.Triggered < 3 {
			t.Errorf("%s: %d triggers ran", profile, r.Triggered)
		}
	}
}
