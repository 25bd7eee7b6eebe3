package tenure

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestObserveCalls: every call of a script is reported, a renewal with what was left of its term.
func TestObserveCalls(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		var mu sync.Mutex
		calls := make(map[string][]Call)
		a.ObserveCalls(func(Call) { panic("an observer") })
		stop := a.ObserveCalls(func(call Call) {
			mu.Lock()
			defer mu.Unlock()
			calls[call.Name] = append(calls[call.Name], call)
		})
		require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(time.Minute))))
		a.start()
		c.pass(2 * time.Minute)
		c.net.Partition("a", simnet.Both, a.opts.Election.LeaseTTL)
		c.pass(2 * a.opts.Election.LeaseTTL)
		mu.Lock()
		seen := maps.Clone(calls)
		clear(calls)
		mu.Unlock()
		for _, name := range []string{"acquire", "renew", "beat", "look", "open_task", "claim_task", "finish_task"} {
			require.NotEmpty(c, seen[name], name)
		}
		belief, failed := a.Guarantees().Belief, 0
		for _, call := range seen["renew"] {
			require.Equal(c, a.Elector().Role(), call.Role)
			if call.Err != nil {
				failed++
				require.ErrorIs(c, call.Err, ErrUnreachable)
				require.Zero(c, call.Margin)
				continue
			}
			require.Greater(c, call.Margin, belief-2*a.opts.Election.RenewInterval-time.Second)
			require.Less(c, call.Margin, belief)
		}
		require.Positive(c, failed)
		require.GreaterOrEqual(c, len(seen["renew"]), 11)
		stop()
		clear(calls)
		c.pass(time.Minute)
		require.Empty(c, calls)
		_, err := a.stop()
		require.NoError(c, err)
	})
}
