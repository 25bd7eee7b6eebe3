//go:build unix

package tenure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// TestMissingRightIsReportedOnce: a user lacks a right that only some calls need. Others have
// usable answers between two refusals, and what to grant is reported once all the same.
func TestMissingRightIsReportedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	admin := server.Client(t)
	for right, kind := range map[string]EventType{
		"zrem": EventTaskBlocked, "sadd": EventTaskBlocked, "xadd": EventTaskBlocked,
		"pexpire": EventElectionMisconfigured, "hdel": EventElectionMisconfigured, "del": EventElectionMisconfigured,
	} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			rules, err := ACLRules(right)
			require.NoError(t, err)
			grant := func(rules []string) {
				args := []any{"ACL", "SETUSER", right, "reset", "on", ">secret"}
				for _, rule := range rules {
					args = append(args, rule)
				}
				require.NoError(t, admin.Do(t.Context(), args...).Err())
			}
			grant(rules)
			options := server.Options()
			options.Username, options.Password = right, "secret"
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			c, err := New(client, Options{
				Namespace: right, InstanceID: "a", Registry: RegistryOptions{HeartbeatInterval: time.Second, HeartbeatTTL: 10 * time.Second},
				Election: ElectionOptions{LeaseTTL: time.Second, Safety: SafetyOptions{RestartGuard: -1}},
			})
			require.NoError(t, err)
			var mu sync.Mutex
			said, refusals, worked := []string{}, 0, 0
			refused := make(map[string]bool) // calls, by their names
			defer c.Observe(func(e Event) {
				if e.Type == kind && errors.Is(e.Err, ErrMisconfigured) {
					mu.Lock()
					said = append(said, e.Err.Error())
					mu.Unlock()
				}
			})()
			defer c.ObserveCalls(func(call Call) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(call.Err, ErrMisconfigured) {
					refusals++
					refused[call.Name] = true
				} else if call.Err == nil && refused[call.Name] && kind == EventElectionMisconfigured { // as a release of what has lapsed, which deletes nothing: the next refusal is news
					worked++
				}
			})()
			require.NoError(t, c.Tasks().Register(Task{Name: "t", Schedule: Every(time.Second), Run: func(context.Context, TaskRun) error { return nil }}))
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = c.Run(ctx) }) // ends with stop
			defer running.Wait()
			defer stop()
			require.Eventually(t, c.IsLeader, 20*time.Second, 10*time.Millisecond)
			grant(slices.DeleteFunc(rules, func(rule string) bool { return rule == "+"+right }))
			require.Eventually(t, func() bool { // bounded poll
				if right == "zrem" {
					_, _ = c.Tasks().Trigger(ctx, "t")
				}
				if (right == "del" || right == "hdel") && c.IsLeader() {
					_ = c.Elector().Resign(ctx)
				}
				mu.Lock()
				defer mu.Unlock()
				return refusals > 6
			}, 30*time.Second, 100*time.Millisecond)
			stop()
			running.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.NotEmpty(t, said)
			require.LessOrEqual(t, len(said), 2+worked, "acquire and release need other keys")
			if worked == 0 {
				require.ElementsMatch(t, slices.Compact(slices.Clone(said)), said, "each is news")
			}
		})
	}
}
