//go:build unix

package scenario

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const runsKey = namespace + ":task:" + taskName + ":runs"

// A deploy in the middle of a run: the run finishes while its leader keeps the lease, for longer
// than a lease without renewals, and only then another process leads. A run that would not end is
// cut off after three quarters of the shutdown timeout, and recorded as interrupted.
func TestP8_RunningTaskOutlivesSIGTERM(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	for name, c := range map[string]struct {
		shutdown time.Duration
		finish   bool          // the run may return, after more than a lease
		atLeast  time.Duration // from SIGTERM until the run has ended; more than that is the machine's
		status   tenure.RunState
		err      string
	}{
		"a run that ends in time":  {2 * patience, true, ttl, tenure.RunSucceeded, "<nil>"},
		"a run that would not end": {12 * time.Second, false, 12 * time.Second * 9 / 10 * 3 / 4, tenure.RunInterrupted, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newParallelStage(t, ttl)
			server := redistest.Start(t)
			admin := server.Client(t)
			env := []string{envTask + "=1", envShutdown + "=" + c.shutdown.String()}
			leader := s.spawn("leader", server.Addr(), env...)
			_, term := s.chief(0, leader)
			leader.says(s, fmt.Sprintf("runs %d", term.token))
			follower := s.spawn("follower", server.Addr(), env...)
			follower.says(s, "ready")

			asked := monotonic()
			leader.Signal(t, syscall.SIGTERM)
			if c.finish {
				s.holds(ttl*5/4, "the lease to be kept", func() bool {
					holder, token := s.stored(admin)
					return holder == "leader" && token == term.token
				})
				s.must(admin.Set(t.Context(), finishKey, 1, 0).Err())
			}
			ran := leader.says(s, fmt.Sprintf("ran %d ", term.token))
			ended := time.Duration(numbersOf(s, strings.Fields(ran)[0])[0])
			t.Logf("the run ended %v after SIGTERM", round(ended-asked))
			if ended-asked < c.atLeast {
				t.Errorf("that is too soon, want %v at least", c.atLeast)
			}
			// What the run itself saw, right before it returned: its own leader no longer leads and
			// holds the lease.
			if want := "leads=false holder=leader " + c.err; !strings.HasSuffix(ran, want) {
				t.Errorf("the run ended with %q, want %q", ran, want)
			}
			if status := leader.Wait(t, patience); status.ExitCode() != 0 {
				t.Errorf("the leader ended with %v", status)
			}
			if err := leader.says(s, "ended "); err != "<nil>" {
				t.Errorf("Run returned %s", err)
			}
			_, next := s.chief(term.token, follower)
			t.Logf("hand-over: led again %v after SIGTERM", round(next.first-asked))
			if next.first < ended {
				t.Errorf("%v before the run of its predecessor had ended", next)
			}

			history, err := admin.XRange(t.Context(), runsKey, "-", "+").Result()
			s.must(err)
			if len(history) == 0 {
				t.Fatal("the run is not in the history")
			}
			first := history[0].Values
			if first["status"] != string(c.status) || first["token"] != fmt.Sprint(term.token) || first["instance"] != "leader" {
				t.Errorf("the run is in the history as %v", first)
			}
		})
	}
}
