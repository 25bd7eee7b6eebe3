package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// events are the entries of the audit stream, oldest first.
func (c *cluster) events(t *testing.T) (lines []string) {
	t.Helper()
	entries, err := c.store.CommandLog(t.Context())
	require.NoError(t, err)
	for _, e := range entries {
		lines = append([]string{strings.TrimSpace(e.Event + " " + e.ID + " " + e.State)}, lines...)
	}
	return lines
}

// TestCommandScripts: a command is sent, taken and ended once, by one process, in time.
func TestCommandScripts(t *testing.T) {
	onClusters(t, "{tenure}", func(t *testing.T, c *cluster) {
		ctx := t.Context()
		const bound = time.Minute
		command := func(id string) store.Command {
			return store.Command{ID: id, Instance: "b", Kind: "drain", By: "ops", NotAfter: 9e15}
		}
		waiting := func() []string {
			entries, err := c.store.ReadCommands(ctx, "b", nil)
			require.NoError(t, err)
			return entries
		}
		send := func(of store.Command) bool {
			verdict, err := c.store.SendCommand(ctx, of, bound)
			require.NoError(t, err)
			return verdict == store.CommandSent
		}
		start := func(of store.Command, incarnation string) bool {
			verdict, err := c.store.StartCommand(ctx, of, of.Entry(), incarnation)
			require.NoError(t, err)
			return verdict == store.CommandStarted
		}
		state := func(of store.Command) store.CommandOutcome {
			o, err := c.store.LookCommand(ctx, of, true)
			require.NoError(t, err)
			return o
		}

		one := command("one")
		require.True(t, send(one))
		require.True(t, send(one), "sent again")
		require.Equal(t, []string{one.Entry()}, waiting())
		read, ok := store.ParseCommand(one.Entry(), "b")
		require.True(t, ok)
		require.Equal(t, store.Command{ID: "one", Instance: "b", Kind: "drain", By: "ops"}, read)
		require.Equal(t, "asked", state(one).State)
		require.True(t, start(one, "i"))
		require.Empty(t, waiting())
		require.True(t, start(one, "i"), "asked again")
		require.False(t, start(one, "j"), "another process of that ID")
		require.Equal(t, "taken", state(one).State)
		failed := store.CommandOutcome{State: "failed", Code: "not_leader", Text: strings.Repeat("é", 400)}
		require.NoError(t, c.store.EndCommand(ctx, one, "j", failed))
		require.Equal(t, "taken", state(one).State, "it is not j's")
		require.NoError(t, c.store.EndCommand(ctx, one, "i", failed))
		require.NoError(t, c.store.EndCommand(ctx, one, "i", store.CommandOutcome{State: "done"}))
		require.Equal(t, store.CommandOutcome{State: "failed", Code: "not_leader", Text: strings.Repeat("é", 256)}, state(one))
		require.False(t, start(one, "i"), "it is over")
		require.Equal(t, []string{"asked one", "ended one failed"}, c.events(t))
		require.Empty(t, state(command("never")).State)
		require.False(t, start(command("never"), "i"), "it was never sent")

		for i := range store.MaxWaiting {
			require.True(t, send(command(fmt.Sprint("n", i))))
		}
		verdict, err := c.store.SendCommand(ctx, command("more"), bound)
		require.NoError(t, err)
		require.Equal(t, store.CommandFull, verdict)
		require.Len(t, waiting(), store.MaxWaiting)
		require.Empty(t, state(command("more")).State)

		keys := store.Keys("{tenure}")
		for _, id := range []string{"n0", "n1"} { // their time is over
			require.NoError(t, c.rdb.HSet(ctx, keys.Command(id), "until", "1").Err())
		}
		require.False(t, start(command("n0"), "i"))
		require.Equal(t, "expired", state(command("n0")).State)
		require.Equal(t, "expired", state(command("n1")).State)
		require.Equal(t, "expired", state(command("n1")).State)
		require.False(t, start(command("n1"), "i"))
		all := c.events(t)
		require.Equal(t, []string{"ended n0 expired", "ended n1 expired"}, all[len(all)-2:])

		require.NoError(t, c.rdb.Del(ctx, keys.Inbox("b")).Err())
		late := command("late")
		late.NotAfter = 1
		verdict, err = c.store.SendCommand(ctx, late, bound)
		require.NoError(t, err)
		require.Equal(t, store.CommandLate, verdict, "it was held up")
		require.Empty(t, waiting())
		require.Empty(t, state(late).State)

		taken := command("taken")
		require.True(t, send(taken))
		require.NoError(t, c.rdb.HSet(ctx, keys.Command("taken"), "until", "9007199254740991").Err())
		taken.Lasts = 5 * time.Hour
		require.True(t, start(taken, "i"))
		left := c.rdb.PTTL(ctx, keys.Command("taken")).Val()
		require.True(t, left > 6*time.Hour && left <= 6*time.Hour+10*time.Minute, "%v: an hour for who asks is the most", left)
		require.NoError(t, c.rdb.HSet(ctx, keys.Command("taken"), "until", "1").Err())
		verdict, err = c.store.StartCommand(ctx, taken, taken.Entry(), "i")
		require.NoError(t, err)
		require.Equal(t, store.CommandOverdue, verdict, "the reply was lost, and it is too late to begin")
		require.Equal(t, "taken", state(taken).State)
		require.NoError(t, c.store.EndCommand(ctx, taken, "i", store.CommandOutcome{State: "expired", Code: "expired"}))
		require.Equal(t, "expired", state(taken).State)
		require.NoError(t, c.rdb.RPush(ctx, keys.Inbox("b"), strings.Repeat("x", store.MaxCommandBytes+1), "y").Err())
		require.Equal(t, []string{"y"}, waiting())
		require.EqualValues(t, 1, c.rdb.LLen(ctx, keys.Inbox("b")).Val())
		entries, err := c.store.ReadCommands(ctx, "b", []string{"y"})
		require.NoError(t, err)
		require.Empty(t, entries)

		for range 2 { // the second is a retry
			require.NoError(t, c.store.NoteCommand(ctx, store.Command{ID: "p", Kind: "pause", Argument: "t"}, store.CommandOutcome{State: "done"}))
		}
		all = c.events(t)
		require.Equal(t, []string{"ended taken expired", "noted p done"}, all[len(all)-2:])
		for _, key := range []string{keys.Command("one"), keys.Command("n5")} {
			left := c.rdb.PTTL(ctx, key).Val()
			require.True(t, left > 0 && left <= bound+10*time.Minute, "%s: %v", key, left)
		}
	})
}
