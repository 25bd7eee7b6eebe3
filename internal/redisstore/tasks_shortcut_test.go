//go:build unix

package redisstore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// runShort is the contract with claims and ends of runs that know their shortcuts and nothing else,
// and runLong with ones that do not know them.
func runShort(t *testing.T) *Scripts {
	return cutScripts(t, []section{
		{"\n--@ claim_task\n", "\n--@ retry_task\n", "refuse('LEFT to the script')\n"},
		{"\n--@ finish_task\n", "\n--@ read_task\n", "refuse('LEFT to the script')\n"},
	})
}

func runLong(t *testing.T) *Scripts {
	return cutScripts(t, []section{
		{"\n--@ shortcut claim_task\n", "\n--@ claim_task\n", ""},
		{"\n--@ shortcut finish_task\n", "\n--@ finish_task\n", ""},
	})
}

const (
	runToken = int64(41)
	runSpec  = "every 10s"
)

var (
	runDue      = strconv.FormatInt(edgeNow, 10)
	quietClaim  = store.TaskClaim{Token: runToken, Run: "41-1-x", Kind: store.ClaimSlot, Expect: runDue, Slot: edgeNow, Next: edgeNow + 10_000, Spec: runSpec, Instance: "me", Attempt: 1}
	quietFinish = store.TaskFinish{Token: runToken, Run: "41-1-x", Status: store.RunSucceeded, Attempt: 1, KeepFor: time.Hour}
)

// runSituation is what the record of a task may be like, and a request may ask for.
type runSituation struct {
	name   string
	before func(t *testing.T, c *cluster)
	claim  func(c *store.TaskClaim)
	finish func(f *store.TaskFinish)
	left   bool
}

// recordHas returns a function that writes fields into the record of the task.
func recordHas(fields ...any) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		require.NoError(t, c.rdb.HSet(t.Context(), c.store.keys.Task("t"), fields...).Err())
	}
}

// recordLacks returns a function that removes a field of it.
func recordLacks(field string) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		require.NoError(t, c.rdb.HDel(t.Context(), c.store.keys.Task("t"), field).Err())
	}
}

// isList returns a function that puts a list under a key.
func isList(key func(store.Keys) string) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		require.NoError(t, c.rdb.Del(t.Context(), key(c.store.keys)).Err())
		require.NoError(t, c.rdb.RPush(t.Context(), key(c.store.keys), "x").Err())
	}
}

// anyRecord are situations of a claim and of the end of a run.
func anyRecord() []runSituation {
	at := func(ms int64) string { return strconv.FormatInt(edgeNow+ms, 10) }
	const century = 3153600000000
	// leads is the situation of a leader with another token.
	leads := func(name string, token int64, left bool) runSituation {
		return runSituation{
			name: name, before: recordHas("token", strconv.FormatInt(token, 10)), left: left,
			claim: func(c *store.TaskClaim) { c.Token = token }, finish: func(f *store.TaskFinish) { f.Token = token },
		}
	}
	return []runSituation{
		{name: "nothing new"},
		{name: "a time with all digits set", before: func(_ *testing.T, c *cluster) { c.mini.SetTime(time.UnixMicro(edgeNow*1000 + 999_999)) }},
		leads("the last token that there is", edgeNow+century+3, false),
		leads("a later one", edgeNow+century+4, true),
		{name: "an older token", before: recordHas("token", "40"), left: true},
		{name: "a newer token", before: recordHas("token", "42"), left: true},
		{name: "a token with a zero before it", before: recordHas("token", "041"), left: true},
		{name: "no token", before: recordLacks("token"), left: true},
		{name: "an error that is as long as may be", before: recordHas("error", strings.Repeat("ä", 512))},
		{name: "an error that is longer", before: recordHas("error", strings.Repeat("e", 1025)), left: true},
		{name: "a lease that is longer", before: recordHas("lease", strings.Repeat("l", 1025)), left: true},
		{name: "it was paused and let go on", before: recordHas("pauses", "2", "last_pause", "1 2"), claim: func(c *store.TaskClaim) { c.Pauses = "2" }},
		{name: "a count of pauses that is no plain text", before: recordHas("pauses", "2\n"), left: true},
		{name: "a trigger waits", before: recordHas("trigger", "id 1800000000000 me", "trigger_args", "[1]")},
		{name: "triggers were claimed", before: recordHas("trigger_runs", "7")},
		{name: "the instance of the run before is named 1", before: recordHas("instance", "1")},
		{name: "a trigger that is no plain text", before: recordHas("trigger", "é"), left: true},
		{name: "another run was canceled", before: recordHas("cancel", "r0")},
		{name: "a canceled run that is no plain text", before: recordHas("cancel", "\x7f"), left: true},
		{name: "a schedule that is no plain text", before: recordHas("spec", "é"), left: true},
		{name: "a run before that is no plain text", before: recordHas("done", "\x1f"), left: true},
		{name: "a run before", before: recordHas("done", "r0", "crashes", "2", "failed_runs", "3", "last_success", "7", "last_finished", "8", "retry_in", "9")},
		{name: "fields that tenure does not know", before: recordHas("x", "y", "block", "x", "trigger_runs", "-")},
		{name: "the last due time that there is", before: recordHas("next", at(century+3)), claim: func(c *store.TaskClaim) { c.Expect = at(century + 3) }},
		{name: "a later due time", before: recordHas("next", at(century+4)), claim: func(c *store.TaskClaim) { c.Expect = at(century + 4) }, left: true},
		{name: "a due time with a zero before it", before: recordHas("next", "0"+at(0)), claim: func(c *store.TaskClaim) { c.Expect = "0" + at(0) }, left: true},
		{name: "no due time", before: recordLacks("next"), claim: func(c *store.TaskClaim) { c.Expect = "" }, left: true},
		{name: "no due time any more", before: recordHas("next", "0"), claim: func(c *store.TaskClaim) { c.Expect = "0" }, left: true},
		{name: "a record of another type", before: isList(func(k store.Keys) string { return k.Task("t") }), left: true},
		{name: "a history of another type", before: isList(func(k store.Keys) string { return k.Runs("t") })},
	}
}

// TestClaimsTakeTheShortcut: a due slot of a task that does not run is claimed by the shortcut
// alone, which answers and writes what the script does without it, errors too. Each thing that the
// script has to look at leaves it to the script, and then the shortcut has changed nothing.
func TestClaimsTakeTheShortcut(t *testing.T) {
	asked := func(change func(c *store.TaskClaim)) func(c *store.TaskClaim) { return change }
	tests := append(anyRecord(), []runSituation{
		{name: "claimed before", before: recordHas("run", quietClaim.Run), left: true},
		{name: "ended before", before: recordHas("done", quietClaim.Run), left: true},
		{name: "another run is on", before: recordHas("run", "r0"), left: true},
		{name: "a run that is no plain text", before: recordHas("run", "é"), left: true},
		{name: "an empty run", before: recordHas("run", "")},
		{name: "paused", before: recordHas("paused", "1"), left: true},
		{name: "not paused", before: recordHas("paused", "0")},
		{name: "another due time", before: recordHas("next", strconv.FormatInt(edgeNow-1, 10)), left: true},
		{name: "no schedule", before: recordLacks("spec"), left: true},
		{name: "another schedule", before: recordHas("spec", "every 11s"), left: true},
		{name: "the last run was triggered", before: recordHas("run_trigger", "id"), left: true},
		{name: "the last run had arguments", before: recordHas("args", "[1]"), left: true},
		{name: "slots were skipped before", before: recordHas("skipped", "123456789012345")},
		{name: "more than can be counted", before: recordHas("skipped", "1234567890123456"), left: true},
		{name: "a count that is none", before: recordHas("skipped", "x"), left: true},
		{name: "a count with a zero before it", before: recordHas("skipped", "01"), left: true},
		{name: "an empty count", before: recordHas("skipped", "")},
		{name: "no count", before: recordLacks("skipped")},
		{name: "the index is lost", before: func(t *testing.T, c *cluster) { require.NoError(t, c.rdb.Del(t.Context(), c.store.keys.Tasks()).Err()) }},
		{name: "the index is a list", before: isList(store.Keys.Tasks)},
		{name: "a slot is skipped", claim: asked(func(c *store.TaskClaim) { c.Skipped = 1 }), left: true},
		{name: "the second attempt", claim: asked(func(c *store.TaskClaim) { c.Attempt = 2 })},
		{name: "at its last moment", claim: asked(func(c *store.TaskClaim) { c.Slot = edgeNow + 3 })},
		{name: "it was paused and let go on since it was read", before: recordHas("pauses", "2", "last_pause", "1 2"), left: true},
		{name: "a slot of before", claim: asked(func(c *store.TaskClaim) { c.Slot = edgeNow - 5 })},
		{name: "early", claim: asked(func(c *store.TaskClaim) { c.Slot = edgeNow + 4 }), left: true},
		{name: "outside the schedule", claim: asked(func(c *store.TaskClaim) { c.Kind, c.Expect = store.ClaimExtra, "0" }), left: true},
		{name: "a run that was left behind", claim: asked(func(c *store.TaskClaim) { c.Kind, c.Expect = store.ClaimAgain, "r0" }), left: true},
		{name: "a trigger", claim: asked(func(c *store.TaskClaim) { c.Kind, c.Expect = store.ClaimTrigger, "id 1800000000000 me" }), left: true},
	}...)
	alikeByShortcut(t, tests, func(s *Store, tt runSituation) (store.TaskReply, error) {
		c := quietClaim
		if tt.claim != nil {
			tt.claim(&c)
		}
		return s.Claim(t.Context(), "t", c)
	}, nil)
}

// TestEndsTakeTheShortcut is TestClaimsTakeTheShortcut of a run that ends well.
func TestEndsTakeTheShortcut(t *testing.T) {
	asked := func(change func(f *store.TaskFinish)) func(f *store.TaskFinish) { return change }
	tests := append(anyRecord(), []runSituation{
		{name: "it was taken from it", before: recordHas("run", "r0"), left: true},
		{name: "ended before", before: recordLacks("run"), left: true},
		{name: "it was canceled", before: recordHas("cancel", quietFinish.Run)},
		{name: "paused meanwhile", before: recordHas("paused", "1", "pauses", "1")},
		{name: "triggered", before: recordHas("run_trigger", "id", "args", "[1]")},
		{name: "leaders died", before: recordHas("crashes", "4")},
		{name: "the history is full by a byte", before: recordHas("block", "3702"), left: true},
		{name: "the history is full", before: recordHas("block", "3701")},
		{name: "a size that is as long as may be", before: recordHas("block", "1000000000000000"), left: true},
		{name: "fields of different lengths", before: recordHas("last_scheduled", "7", "last_started", "123", "instance", "somebody", "run_token", "41234")},
		{name: "another attempt was to follow", before: recordHas("retry_at", "5")},
		{name: "a size that is none", before: recordHas("block", "-4000")},
		{name: "a size that is too long", before: recordHas("block", "00000000000003702")},
		{name: "an entry is there", before: func(t *testing.T, c *cluster) {
			require.NoError(t, c.rdb.Do(t.Context(), "XADD", c.store.keys.Runs("t"), "5-0", "run", "r0").Err())
		}},
		{name: "the history takes no entry", before: func(t *testing.T, c *cluster) {
			require.NoError(t, c.rdb.Do(t.Context(), "XADD", c.store.keys.Runs("t"), "18446744073709551615-18446744073709551615", "a", "b").Err())
		}},
		{name: "it failed", finish: asked(func(f *store.TaskFinish) { f.Status = store.RunFailed }), left: true},
		{name: "it was interrupted", finish: asked(func(f *store.TaskFinish) { f.Status = store.RunInterrupted }), left: true},
		{name: "it was returned", finish: asked(func(f *store.TaskFinish) { f.Status = store.RunReturned }), left: true},
		{name: "a text", finish: asked(func(f *store.TaskFinish) { f.Text = "x" }), left: true},
		{name: "the fourth attempt", finish: asked(func(f *store.TaskFinish) { f.Attempt, f.Failures = 4, 3 })},
		{name: "attempts are not named", finish: asked(func(f *store.TaskFinish) { f.Attempt = 0 }), left: true},
		{name: "another attempt follows", finish: asked(func(f *store.TaskFinish) { f.RetryIn = time.Second }), left: true},
		{name: "one entry is kept", before: func(t *testing.T, c *cluster) {
			require.NoError(t, c.rdb.Do(t.Context(), "XADD", c.store.keys.Runs("t"), "5-0", "run", "r0").Err())
		}, finish: asked(func(f *store.TaskFinish) { f.Keep = 1 })},
		{name: "sixteen are kept", finish: asked(func(f *store.TaskFinish) { f.Keep = 16 })},
		{name: "seventeen are kept", finish: asked(func(f *store.TaskFinish) { f.Keep = 17 }), left: true},
		{name: "none is kept", finish: asked(func(f *store.TaskFinish) { f.Keep = -1 }), left: true},
		{name: "for ever", finish: asked(func(f *store.TaskFinish) { f.KeepFor = 0 })},
	}...)
	alikeByShortcut(t, tests, func(s *Store, tt runSituation) (store.TaskReply, error) {
		f := quietFinish
		if tt.finish != nil {
			tt.finish(&f)
		}
		return s.Finish(t.Context(), "t", f)
	}, func(t *testing.T, c *cluster) {
		_, err := c.store.Claim(t.Context(), "t", quietClaim)
		require.NoError(t, err)
	})
}

// alikeByShortcut asks in each situation by the shortcut alone, and by the script alone.
func alikeByShortcut(t *testing.T, tests []runSituation, ask func(*Store, runSituation) (store.TaskReply, error), begun func(*testing.T, *cluster)) {
	only, without := runShort(t), runLong(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked := func(scripts *Scripts) (_ store.TaskReply, before, after map[string]string, _ error) {
				c := newStillCluster(t).cluster
				planTask(t, c)
				if begun != nil {
					begun(t, c)
				}
				c.mini.SetTime(time.UnixMilli(edgeNow + 3))
				if tt.before != nil {
					tt.before(t, c)
				}
				before = exact(t, c.rdb)
				c.store.scripts = scripts
				reply, err := ask(c.store, tt)
				return reply, before, exact(t, c.rdb), err
			}
			reply, before, short, err := asked(only)
			if tt.left {
				require.ErrorContains(t, err, "LEFT", "answered %+v", reply)
				require.Equal(t, before, short)
				return
			}
			whole, _, long, wholeErr := asked(without)
			require.Equal(t, wholeErr, err)
			require.Equal(t, whole, reply)
			require.Equal(t, long, short)
			require.NotEqual(t, before, short)
		})
	}
}

// planTask has a record of the task t, of which a slot is due.
func planTask(t *testing.T, c *cluster) {
	t.Helper()
	_, err := c.store.Open(t.Context(), "t", store.TaskOpen{Token: runToken, Lease: "edge:leader", Schedule: "@every 10s"})
	require.NoError(t, err)
	_, err = c.store.Plan(t.Context(), "t", store.TaskPlan{Token: runToken, Next: edgeNow, Spec: runSpec})
	require.NoError(t, err)
}

// TestTaskShortcutsOnRedis: a real server takes the shortcuts too. A full Redis claims nothing and
// notes how a run has ended, and a user without a right hears which, as from the scripts.
func TestTaskShortcutsOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	c := clusterOf(t, server.Options(), "edge")
	whole, short, long := c.store.scripts, runShort(t), runLong(t)
	// run has a slot claimed and its run ended by these scripts, and returns the errors of both.
	run := func(s *Store, scripts *Scripts, claim bool) (claimed, finished error) {
		c.rdb.FlushDB(t.Context())
		planTask(t, c)
		before := c.store
		if claim {
			before = s
			s.scripts = scripts
		}
		reply, claimed := before.Claim(t.Context(), "t", quietClaim)
		if claimed == nil {
			require.Equal(t, store.TaskClaimed, reply.Verdict)
		}
		s.scripts = scripts
		reply, finished = s.Finish(t.Context(), "t", quietFinish)
		if finished == nil && claimed == nil {
			require.Equal(t, store.TaskDone, reply.Verdict)
			require.Equal(t, store.RunSucceeded, reply.Record.Status)
		}
		s.scripts = whole
		return claimed, finished
	}
	claimed, finished := run(c.store, short, true)
	require.NoError(t, claimed)
	require.NoError(t, finished)

	planTask(t, c)
	_, err := c.store.Plan(t.Context(), "t", store.TaskPlan{Token: runToken, Expect: strconv.FormatInt(quietClaim.Next, 10), Next: edgeNow, Spec: runSpec})
	require.NoError(t, err)
	again := quietClaim
	again.Run = "41-2-x"
	_, err = c.store.Claim(t.Context(), "t", again)
	require.NoError(t, err)
	server.ConfigSet(t, "maxmemory", "1")
	server.ConfigSet(t, "maxmemory-policy", "noeviction")
	end := quietFinish
	end.Run, c.store.scripts = again.Run, short
	reply, err := c.store.Finish(t.Context(), "t", end)
	require.NoError(t, err)
	require.Equal(t, store.TaskDone, reply.Verdict)
	again.Run, again.Expect, again.Slot = "41-3-x", strconv.FormatInt(again.Next, 10), edgeNow
	_, err = c.store.Claim(t.Context(), "t", again)
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, "HSET")
	server.ConfigSet(t, "maxmemory", "0")
	c.store.scripts = whole

	for _, command := range []string{"time", "hmget", "hset", "sadd", "hdel", "xadd", "pexpire"} {
		for _, claim := range []bool{true, false} {
			t.Run(command+" claim "+strconv.FormatBool(claim), func(t *testing.T) {
				require.NoError(t, c.rdb.Do(t.Context(), "ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all", "-"+command).Err())
				opts := server.Options()
				opts.Username, opts.Password = "app", "secret"
				app := clusterOf(t, opts, "edge")
				shortClaimed, shortFinished := run(app.store, short, claim)
				afterShort := raw(t.Context(), t, c.rdb)
				longClaimed, longFinished := run(app.store, long, claim)
				afterLong := raw(t.Context(), t, c.rdb)
				if shortClaimed != nil && strings.Contains(shortClaimed.Error(), "LEFT") || shortFinished != nil && strings.Contains(shortFinished.Error(), "LEFT") {
					return // the script says it
				}
				require.Equal(t, longClaimed, shortClaimed)
				require.Equal(t, longFinished, shortFinished)
				require.Len(t, afterShort, len(afterLong))
			})
		}
	}
}
