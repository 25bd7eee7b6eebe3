//go:build unix

package cli

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestWhatARunWaitsFor: nobody who starts it in a terminal is left to guess why nothing happens,
// and a hand-over of milliseconds is not told.
func TestWhatARunWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var status atomic.Value
		var said []string
		w := waiter{status: func() tenure.ElectionStatus { return status.Load().(tenure.ElectionStatus) }, say: func(text string) { said = append(said, text) }}
		wait := func(reason tenure.WaitReason, leader string, left, lasts time.Duration) {
			t.Helper()
			said = nil
			s := tenure.ElectionStatus{Waiting: reason, Leader: leader}
			if left > 0 {
				s.WaitingUntil = time.Now().Add(left)
			}
			status.Store(s)
			w.hear(tenure.Event{Type: tenure.EventElectionWaiting, Role: "reports", Reason: string(reason), Time: time.Now(), Took: 12 * time.Second})
			time.Sleep(lasts)
			synctest.Wait()
		}
		for _, c := range []struct {
			reason tenure.WaitReason
			leader string
			text   string
		}{
			{tenure.WaitLease, "web-1", "waits: web-1 leads reports"},
			{tenure.WaitLease, "", "waits: another instance leads reports"},
			{tenure.WaitForeign, "?", "waits: another program holds the lease of reports, which is no tenure client"},
			{tenure.WaitEmpty, "", "waits: Redis knows nothing of reports yet, and asks whether somebody leads it (election possible in 30s)"},
			{tenure.WaitYoung, "", "waits: Redis is 13s old, a leader of reports may hold a lease from before its restart (election possible in 30s)"},
			{tenure.WaitHold, "", "waits: Redis has restarted, failed over or lost data, and may have forgotten a lease of reports (election possible in 30s)"},
			{tenure.WaitVanished, "", "waits: the lease of reports vanished before its end, and is honoured until then (election possible in 30s)"},
			{tenure.WaitDraining, "", "stands back: this instance drains (tenure undrain ends that)"},
		} {
			wait(c.reason, c.leader, saidAfter+30*time.Second, time.Minute)
			require.Equal(t, []string{c.text}, said, c.reason)
		}
		for _, short := range []tenure.WaitReason{tenure.WaitReserved, tenure.WaitYield, tenure.WaitPenalty} {
			wait(short, "", 0, time.Minute)
			require.Empty(t, said, short)
		}
		wait(tenure.WaitHold, "", 0, saidAfter/2)
		wait(tenure.WaitLease, "web-2", 0, saidAfter/2)
		status.Store(tenure.ElectionStatus{}) // it leads
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, said)
	})
}
