package virtual

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/proof/simnet"

	"github.com/tenure-go/tenure/internal/redisstore"
)

// What the virtual tests are worth: scripts that are broken on purpose are found out, and the run
// that shows it shrinks to its cause.

// readScripts reads the scripts of the product.
func readScripts(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("../../../scripts.lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// breakScripts replaces one piece of scripts.lua until the test is over.
func breakScripts(t *testing.T, before, after string) {
	t.Helper()
	source := readScripts(t)
	if n := strings.Count(source, before); n != 1 {
		t.Fatalf("%q is %d times in scripts.lua", before, n)
	}
	broken, err := redisstore.Load(strings.Replace(source, before, after, 1))
	if err != nil {
		t.Fatal(err)
	}
	sound := *hook.Scripts
	*hook.Scripts = func() *redisstore.Scripts { return broken }
	t.Cleanup(func() { *hook.Scripts = sound })
}

// TestVirtualNoticesBrokenScripts holds the checks of the registry and of tasks to account, and
// those of liveness: each finds what it is for. All is virtual time.
func TestVirtualNoticesBrokenScripts(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	if (*hook.Scripts)().Digests()["sweep"] != redisstore.MustLoad(readScripts(t)).Digests()["sweep"] {
		t.Skip("the scripts are broken already")
	}
	simnet.Exact(t)
	for i, tt := range []struct{ name, before, after, profile, wrong string }{
		{
			"a sweep removes the drifted", "if silence >= down and removable > 0", "if silence >= drifted and removable > 0",
			"tasks-base", "P9: ",
		},
		{
			"a sweep removes nobody", "local silence = now - scores[i] --", "local silence = 0 --",
			"tasks-calm", "P9: ",
		},
		{
			"a slot stays due when it is claimed", "'next', ARGV[6], 'run',", "'next', ARGV[5], 'run',",
			"tasks-calm", "P10: ",
		},
		{
			"every second slot is lost", "'next', ARGV[6], 'run',", "'next', 2 * ARGV[6] - ARGV[5], 'run',",
			"tasks-calm", "P10: ",
		},
		{
			"a claimed slot is forgotten", "if task.token ~= '' and (token <= 0", "task.run = '' if task.token ~= '' and (token <= 0",
			"tasks-base", "P10: ",
		},
		{
			"nobody is granted a second lease", "if term.hold > now then\n",
			"if term.token > 0 then return answer('held', now, term.token, term.ttl, 1000, 0, origin, 'hold') end\nif term.hold > now then\n",
			"base", "P7: nobody leads",
		},
		{
			"every slot is passed over", "    if skipped == '0' or #skipped",
			"    redis.pcall('HSET', KEYS[1], 'next', ARGV[6]) if false and #skipped",
			"tasks-calm", "P10: no run of",
		},
		{
			"a leader that dies of a task counts twice", "fields.crashes = integer(natural(task.crashes) + 1)\n    lost", "fields.crashes = integer(natural(task.crashes) + 2)\n    lost",
			"tasks-rough", "P10: 2 leaders have died",
		},
		{
			"what was triggered is run again without its arguments", "if (kind == 'slot' or kind == 'extra') and task.run_trigger", "if kind ~= 'trigger' and task.run_trigger",
			"asks-base", "P10: ",
		},
		{
			"a slot takes the trigger that waits with it", "refused('SADD', KEYS[3], ARGV[11]) or\n",
			"refused('SADD', KEYS[3], ARGV[11]) or refused('HDEL', KEYS[1], 'trigger', 'trigger_args') or refused('ZREM', KEYS[4], ARGV[11]) or\n",
			"asks-base", "P10: trigger",
		},
		{
			"a trigger is too old at once", "if trigger_ends(task.trigger) <= now then -- rule trigger-ends", "if true then",
			"asks-base", "P10: trigger",
		},
		{
			"a pause holds nothing up", "fields.paused, fields.pause, fields.last_pause = '1',", "fields.paused, fields.pause, fields.last_pause = '2',",
			"asks-calm", "P10: ",
		},
		{
			"the end of a command is not in the list", "  audit(stream, { 'event', 'ended', 'command', id,", "  local _ = ({ 'event', 'ended', 'command', id,",
			"asks-calm", "Control: ",
		},
		{
			"a command ends twice", "if command.state == 'taken' then over(KEYS[1], KEYS[2], ARGV[1], ARGV[3]", "if true then over(KEYS[1], KEYS[2], ARGV[1], ARGV[3]",
			"asks-rough", "Control: ",
		},
	} {
		if testing.Short() && i%6 != 0 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			breakScripts(t, tt.before, tt.after)
			for seed := range uint64(4) {
				r := play(t, Request{Profile: tt.profile, Seed: seed, Length: 4 * time.Minute})
				if slices.ContainsFunc(r.Wrong, func(wrong string) bool { return strings.HasPrefix(wrong, tt.wrong) }) {
					t.Logf("seed %d, at %v: %s", seed, r.At, r.Wrong[0])
					return
				}
			}
			t.Errorf("no run of %s has violated %s", tt.profile, tt.wrong)
		})
	}
}

// TestVirtualNoticesDeafSubscriptions: the check of subscriptions finds one that has just died, and
// is content once that was noticed. All is virtual time.
func TestVirtualNoticesDeafSubscriptions(t *testing.T) {
	var wrong []string
	setup := setup{report: func(problems []problem) {
		for _, p := range problems {
			wrong = append(wrong, p.text)
		}
	}}
	inCluster(t, 1, setup, func(c *cluster) {
		c.start()
		c.awaitLeader(hotTTL, nil)
		time.Sleep(time.Second)
		c.hear()
		c.net.Deafen("i1")
		c.hear()
		time.Sleep(c.hearingBound())
		c.hear()
	})
	if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "P7: the subscription of i1 is dead") {
		t.Errorf("one subscription died once, and was noticed: %q", wrong)
	}
}

// TestVirtualShrinks: without the rule that honours a lease that vanished, an operator's DEL makes
// two leaders. Of a run with a hundred faults one is left, on a network without any. All is virtual
// time.
func TestVirtualShrinks(t *testing.T) {
	if !simnet.Exact(t) {
		t.Skip("the race detector disturbs the order of goroutines")
	}
	if testing.Short() {
		t.Skip("plays a run again and again")
	}
	request := Request{Profile: "del", Seed: 5, Length: 4 * time.Minute}
	kinds := catalog().Quiet
	var smallest Result
	t.Run("broken", func(t *testing.T) {
		breakScripts(t, "if not term.released and term.ends > now then -- rule until", "if false then -- rule until")
		failed := play(t, request)
		if failed.Promise() != "P1" {
			t.Fatalf("without the rule nothing happened but %q", failed.Promise())
		}
		var replays int
		smallest, replays = Shrink(failed, kinds, time.Minute, func(r Request) (Result, error) {
			return play(t, r), nil
		})
		var kept []string
		for _, strike := range smallest.Strikes {
			if !strike.Out {
				kept = append(kept, strike.Fault)
			}
		}
		t.Logf("%d strikes until then, kept after %d replays: %q, without %q", len(failed.Strikes), replays, kept, smallest.Quiet)
		if len(kept) > 2 || !slices.Contains(kept, "del") {
			t.Errorf("kept %q", kept)
		}
		if again := play(t, smallest.Request); again.Promise() != "P1" {
			t.Errorf("the smallest run does not fail again: %q", again.Promise())
		}
	})
	if r := play(t, smallest.Request); len(r.Wrong) > 0 {
		t.Errorf("with the rule: %s", r.Wrong[0])
	}
}
