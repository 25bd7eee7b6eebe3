//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// Triggers, their claims and the ends of the runs are linearizable too, as the rules of the oracle
// say; so a trigger that was asked for by several, or several times, runs once.

// triggerCall is one operation: to trigger id, to claim what was triggered for run, or to end run.
type triggerCall struct {
	what, id, run string
	read          bool // what waits was read: a claim can name it
}

// triggerAnswer is what it was answered.
type triggerAnswer struct {
	unknown                                         bool
	verdict, waits, run, done, triggered, arguments string
}

// triggerModel is the oracle without time: nothing expires.
func triggerModel() porcupine.Model {
	step := func(s oracle.Task, c triggerCall) (oracle.Task, triggerAnswer) {
		var a triggerAnswer
		switch c.what {
		case "trigger":
			a.verdict = s.Trigger(1, c.id, c.id, "a", 1, 1000, true, 0)
		case "claim":
			expect := "another"
			if id, _, _ := strings.Cut(s.Record.Trigger, " "); id == c.id && c.read {
				expect = s.Record.Trigger
			}
			a.verdict = s.Claim(1, oracle.Claim{Token: 1, Run: c.run, Kind: "trigger", Expect: expect, Attempt: 1})
		case "finish":
			a.verdict = s.Finish(1, 1, c.run, "succeeded", "", 0, 0, 0)
		}
		s.History = nil
		a.waits, _, _ = strings.Cut(s.Record.Trigger, " ")
		a.run, a.done, a.triggered, a.arguments = s.Run, s.Done, s.RunOf, s.Args
		return s, a
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{oracle.Task{Record: oracle.Record{Token: 1}}} },
		Step: func(state, input, output any) []any {
			s, a := state.(oracle.Task), output.(triggerAnswer)
			after, said := step(s, input.(triggerCall))
			switch {
			case a.unknown:
				return []any{s, after}
			case said == a:
				return []any{after}
			}
			return nil
		},
		Equal: func(a, b any) bool {
			x, y := a.(oracle.Task), b.(oracle.Task)
			return x.Record == y.Record && x.TriggerArgs == y.TriggerArgs && slices.Equal(x.Triggered, y.Triggered)
		},
	}
	return model.ToModel()
}

// triggerHistory has three clients work on one task through a network that loses replies and holds
// requests up. What is triggered again is what this client, or another, has triggered before.
func triggerHistory(t *testing.T, proxies []*redistest.Proxy, scripts *Scripts, seed uint64) (history []porcupine.Operation) {
	t.Helper()
	began, heal := time.Now(), unruly(proxies, seed)
	var mu sync.Mutex
	var asking sync.WaitGroup
	for number, proxy := range proxies {
		asking.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(number)))
			client := single(proxy)
			defer client.Close()
			db := New(client, scripts, fmt.Sprintf("{trigger-%d}", seed), "a", func() string { return "" })
			var seen store.TaskRecord
			for range 9 {
				c := triggerCall{what: []string{"trigger", "trigger", "claim", "claim", "finish"}[random.IntN(5)]}
				c.id, c.run = fmt.Sprint("t", random.IntN(6)), fmt.Sprint("r", random.IntN(6))
				if id := seen.TriggerID(); c.what == "claim" && id != "" {
					c.id = id
				}
				c.read = seen.TriggerID() == c.id
				if c.what == "finish" && seen.Run != "" {
					c.run = seen.Run
				}
				call := time.Since(began)
				reply, err := c.ask(db, seen.Trigger)
				op := porcupine.Operation{ClientId: number, Call: int64(call), Return: int64(time.Since(began)), Input: c, Output: triggerAnswer{unknown: true}}
				if err != nil {
					op.Return = math.MaxInt64 // it may take effect at any time to come
					number += len(proxies)    // a client has one operation at a time: what is under way goes on under another name
				} else {
					seen = reply.Record
					op.Output = triggerAnswer{
						verdict: reply.Verdict, waits: seen.TriggerID(), run: seen.Run, done: seen.Done, triggered: seen.RunTrigger, arguments: seen.Args,
					}
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
				time.Sleep(time.Duration(random.IntN(12)) * time.Millisecond) // not to wait for anything: bounded poll
			}
		})
	}
	asking.Wait()
	heal()
	return history
}

// ask makes the call. waits is what waited for the last answer.
func (c triggerCall) ask(db *Store, waits string) (store.TaskReply, error) {
	ctx := context.Background()
	switch c.what {
	case "trigger":
		return db.Trigger(ctx, "t", store.TaskTrigger{ID: c.id, Args: c.id, By: "a", NotAfter: 1 << 50, For: time.Hour, Create: true})
	case "claim":
		if !c.read {
			waits = c.id + " 1 a"
		}
		return db.Claim(ctx, "t", store.TaskClaim{Token: 1, Run: c.run, Kind: store.ClaimTrigger, Expect: waits, Attempt: 1})
	default:
		return db.Finish(ctx, "t", store.TaskFinish{Token: 1, Run: c.run, Status: store.RunSucceeded})
	}
}

// triggerRun checks a number of histories, at most up to the first that no order explains.
func triggerRun(t *testing.T, scripts *Scripts, seeds int) (h histories) {
	t.Helper()
	server := redistest.Start(t)
	var proxies []*redistest.Proxy
	for range 3 {
		proxies = append(proxies, redistest.NewProxy(t, server.Addr()))
	}
	db := New(server.Client(t), scripts, "", "a", func() string { return "" })
	for seed := uint64(1); seed <= uint64(seeds) && h.illegal == 0; seed++ {
		own := *db
		own.keys = store.Keys(fmt.Sprintf("{trigger-%d}", seed))
		_, err := own.Open(t.Context(), "t", store.TaskOpen{Token: 1})
		require.NoError(t, err)
		history := triggerHistory(t, proxies, scripts, seed)
		if h.check(triggerModel(), history, func(output any) bool { return output.(triggerAnswer).unknown }) && scripts == contract {
			show(t, seed, history)
		}
	}
	return h
}

func TestTriggersAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	t.Parallel()
	h := triggerRun(t, contract, 120)
	h.require(t, 120)
}

// TestTriggersCanFail: scripts that are wrong are noticed.
func TestTriggersCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	t.Parallel()
	for name, edit := range map[string][2]string{
		"a trigger that waits is replaced":  {"if trigger_ends(task.trigger) > now then return task_answer('waiting', now, task) end", ""},
		"a trigger that is asked for twice": {"  if id == ARGV[1] then return task_answer('ok', now, task) end -- rule same-trigger", "  -- rule same-trigger"},
		"a trigger is claimed twice":        {"if kind == 'trigger' then end_trigger(KEYS[1], KEYS[4], ARGV[11], task) end", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(scriptsLua, edit[0]), "the scripts have no such text, or more than one: %s", edit[0])
			mutated, err := Load(strings.Replace(scriptsLua, edit[0], edit[1], 1))
			require.NoError(t, err)
			require.Positive(t, triggerRun(t, mutated, 60).illegal, "60 histories of a broken script are all in order")
		})
	}
}
