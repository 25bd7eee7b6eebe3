package tenure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/proof/virtual"
	"github.com/tenure-go/tenure/internal/redisstore"
)

// What the virtual tests are worth: scripts that are broken on purpose are found out, and the run
// that shows it shrinks to its cause.

// breakScripts replaces one piece of scripts.lua until the test is over.
func breakScripts(t *testing.T, before, after string) {
	t.Helper()
	if n := strings.Count(scriptsLua, before); n != 1 {
		t.Fatalf("%q is %d times in scripts.lua", before, n)
	}
	broken, err := redisstore.Load(strings.Replace(scriptsLua, before, after, 1))
	if err != nil {
		t.Fatal(err)
	}
	sound := contract
	contract = broken
	t.Cleanup(func() { contract = sound })
}

// TestVirtualNoticesBrokenScripts holds the checks of the registry and of tasks to account, and
// those of liveness: each finds what it is for. All is virtual time.
func TestVirtualNoticesBrokenScripts(t *testing.T) {
	if contract.Digests()["sweep"] != redisstore.MustLoad(scriptsLua).Digests()["sweep"] {
		t.Skip("the scripts are broken already")
	}
	simnet.Exact(t)
	virtualGC(t)
	for _, tt := range []struct{ name, before, after, profile, wrong string }{
		{
			"a sweep removes the drifted", "if silence >= down and removable > 0", "if silence >= drifted and removable > 0",
			"tasks-base", "P9: ",
		},
		{
			"a sweep removes nobody", "local silence = now - scores[i] --", "local silence = 0 --",
			"tasks-calm", "P9: ",
		},
		{
			"a slot stays due when it is claimed", "= ARGV[6], ARGV[5], '0'", "= ARGV[5], ARGV[5], '0'",
			"tasks-calm", "P10: ",
		},
		{
			"every second slot is lost", "= ARGV[6], ARGV[5], '0'", "= integer(2 * tonumber(ARGV[6]) - tonumber(ARGV[5])), ARGV[5], '0'",
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
			"every slot is passed over", "if task.paused == '1' then\n    set_task(KEYS[1], task, { next = ARGV[6] })",
			"if true then\n    set_task(KEYS[1], task, { next = ARGV[6] })",
			"tasks-calm", "P10: no run of",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			breakScripts(t, tt.before, tt.after)
			for seed := range uint64(4) {
				r := virtualRun(t, virtual.Request{Profile: tt.profile, Seed: seed, Length: 4 * time.Minute})
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
	setup := virtualSetup{report: func(problems []virtualProblem) {
		for _, p := range problems {
			wrong = append(wrong, p.text)
		}
	}}
	inVirtualTime(t, 1, setup, func(w *virtualWorld) {
		w.start()
		w.awaitLeader(virtualTTL, nil)
		time.Sleep(time.Second)
		w.hear()
		w.net.Deafen("i1")
		w.hear()
		time.Sleep(w.hearingBound())
		w.hear()
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
	virtualGC(t)
	request := virtual.Request{Profile: "del", Seed: 5, Length: 4 * time.Minute}
	kinds := virtualCatalog().Quiet
	var smallest virtual.Result
	t.Run("broken", func(t *testing.T) {
		breakScripts(t, "if not term.released and term.ends > now then -- rule until", "if false then -- rule until")
		failed := virtualRun(t, request)
		if failed.Promise() != "P1" {
			t.Fatalf("without the rule nothing happened but %q", failed.Promise())
		}
		var replays int
		smallest, replays = virtual.Shrink(failed, kinds, time.Minute, func(r virtual.Request) (virtual.Result, error) {
			return virtualRun(t, r), nil
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
		if again := virtualRun(t, smallest.Request); again.Promise() != "P1" {
			t.Errorf("the smallest run does not fail again: %q", again.Promise())
		}
	})
	if r := virtualRun(t, smallest.Request); len(r.Wrong) > 0 {
		t.Errorf("with the rule: %s", r.Wrong[0])
	}
}
