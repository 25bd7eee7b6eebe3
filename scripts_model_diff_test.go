//go:build unix

package tenure

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// modelWorld is a Redis beside the oracle's models of the task and registry scripts, which are asked the same.
type modelWorld struct {
	*testing.T
	store *redisStore
	rdb   *redis.Client
	mini  *miniredis.Miniredis // nil: a real one, whose clock goes by itself
	rand  *rand.Rand
}

// onModelWorlds runs a sequence of questions per seed, on miniredis and on a real redis-server.
func onModelWorlds(t *testing.T, seeds int, run func(*modelWorld)) {
	t.Helper()
	worlds := map[string]func(t *testing.T) *modelWorld{
		"miniredis": func(t *testing.T) *modelWorld {
			m := miniredis.RunT(t)
			m.ClockTTL(true)
			return &modelWorld{T: t, mini: m, rdb: redis.NewClient(&redis.Options{Addr: m.Addr()})}
		},
		"redis": func(t *testing.T) *modelWorld {
			if testing.Short() {
				t.Skip("starts a redis-server")
			}
			return &modelWorld{T: t, rdb: redis.NewClient(redistest.Start(t).Options())}
		},
	}
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			t.Cleanup(func() { _ = w.rdb.Close() })
			w.store = newRedisStore(w.rdb, &checker{}, Options{Namespace: "model"})
			first, last := leaseSeeds(t, seeds)
			for seed := first; seed <= last; seed++ {
				w.rand = rand.New(rand.NewPCG(seed, 2))
				if w.mini != nil {
					w.mini.SetTime(time.UnixMilli(1_700_000_000_000))
				}
				require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
				run(w)
				if t.Failed() {
					t.Fatalf("replay with TENURE_LEASE_SEED=%d", seed)
				}
			}
			t.Logf("seeds %d to %d", first, last)
		})
	}
}

// pass lets up to so much time go by, where the clock is ours.
func (w *modelWorld) pass(d time.Duration) {
	if w.mini != nil {
		w.mini.SetTime(time.UnixMilli(w.now()).Add(time.Duration(w.rand.Int64N(int64(d)))))
	}
}

func (w *modelWorld) now() int64 {
	now, err := w.rdb.Time(context.Background()).Result()
	require.NoError(w, err)
	return now.UnixMilli()
}

func oneOf[T any](w *modelWorld, from ...T) T { return from[w.rand.IntN(len(from))] }

// TestTaskScriptsAgreeWithTheOracle asks random questions, of young leaders and old ones, with what is expected right and wrong.
func TestTaskScriptsAgreeWithTheOracle(t *testing.T) {
	seen := map[string]int{}
	onModelWorlds(t, 60, func(w *modelWorld) {
		ctx, model, token := w.Context(), oracle.Task{}, int64(41)
		slots := func() int64 { return (w.now()/1000 + w.rand.Int64N(5) - 2) * 1000 }
		for range 40 {
			w.pass(3 * time.Second)
			if w.rand.IntN(6) == 0 {
				token++
			}
			as := oneOf(w, token, token, token, token-1, token+1)
			run := oneOf(w, "r1", "r2", "r3", model.Run, model.Done)
			if run == "" {
				run = "r4"
			}
			expect, spec := oneOf(w, model.Next, model.Next, strconv.FormatInt(slots(), 10)), oneOf(w, model.Spec, "s1", "s1", "s2")
			var reply taskReply
			var err error
			var want, what string
			switch what = oneOf(w, "open", "plan", "claim", "claim", "claim", "retry", "finish", "finish", "pause", "read"); what {
			case "open":
				o := taskOpen{token: as, lease: oneOf(w, "model:leader", "model:leader", "model:leader:other"), other: oneOf(w, "", model.Lease)}
				held := w.rand.IntN(2) == 0
				for _, key := range []string{"model:leader", "model:leader:other"} {
					if held {
						require.NoError(w, w.rdb.Set(ctx, key, "somebody", 0).Err())
					} else {
						require.NoError(w, w.rdb.Del(ctx, key).Err())
					}
				}
				reply, err = w.store.openTask(ctx, "t", o)
				want = model.Open(as, o.lease, !held && o.other == model.Lease)
			case "plan":
				p := taskPlan{token: as, expect: expect, next: slots(), spec: spec, skipped: w.rand.Int64N(3), paused: w.rand.IntN(5) == 0}
				reply, err = w.store.planTask(ctx, "t", p)
				want = model.Plan(as, p.expect, strconv.FormatInt(p.next, 10), p.spec, p.skipped, p.paused)
			case "claim":
				c := taskClaim{
					token: as, run: run, kind: oneOf(w, claimSlot, claimSlot, claimAgain, claimExtra), expect: expect, slot: slots(),
					next: slots() + 5000, spec: spec, instance: oneOf(w, "a", "b"), skipped: w.rand.IntN(3), attempt: 1 + w.rand.IntN(3),
				}
				if c.kind == claimAgain {
					c.expect = oneOf(w, model.Run, model.Done, "r1")
				}
				if c.kind == claimExtra {
					c.expect = strconv.FormatInt(oneOf(w, model.Finished, model.Finished, 7), 10)
				}
				reply, err = w.store.claimTask(ctx, "t", c)
				want = model.Claim(reply.now, oracle.Claim{
					Token: c.token, Run: c.run, Kind: c.kind, Expect: c.expect, Slot: c.slot, Next: strconv.FormatInt(c.next, 10), Spec: c.spec,
					Instance: c.instance, Skipped: int64(c.skipped), Attempt: int64(c.attempt),
				})
			case "retry":
				r := taskRetry{token: as, run: run, attempt: 1 + w.rand.IntN(3), failures: w.rand.IntN(3), in: time.Duration(w.rand.IntN(5)) * time.Second}
				reply, err = w.store.retryTask(ctx, "t", r)
				want = model.Retry(reply.now, r.token, r.run, int64(r.attempt), int64(r.failures), r.in.Milliseconds())
			case "finish":
				f := taskFinish{
					token: as, run: run, status: oneOf(w, RunSucceeded, RunFailed, RunInterrupted, RunAbandoned, runReturned), text: oneOf(w, "", "oops"),
					attempt: w.rand.IntN(3), failures: w.rand.IntN(3), retryIn: time.Duration(w.rand.IntN(3)) * time.Second,
				}
				reply, err = w.store.finishTask(ctx, "t", f)
				want = model.Finish(reply.now, f.token, f.run, string(f.status), f.text, int64(f.attempt), int64(f.failures), f.retryIn.Milliseconds())
			case "pause":
				paused, count := oneOf(w, true, false, false), oneOf(w, model.Pauses, model.Pauses, "1")
				reply, err = w.store.pauseTask(ctx, "t", paused, count)
				want = model.Pause(paused, count)
			case "read":
				reply, err = w.store.readTask(ctx, "t")
				want = taskOK
			}
			require.NoError(w, err, what)
			require.Equal(w, want, reply.verdict, "%s as %d of %+v", what, as, model.Record)
			require.Equal(w, model.Record, recordOf(reply.record, model.There), what)
			seen[what+" "+want]++
		}
		runs, err := w.store.taskRuns(ctx, "t", 1000)
		require.NoError(w, err)
		slices.Reverse(runs)
		require.Len(w, runs, len(model.History))
		for i, run := range model.History {
			require.Equal(w, run, runOf(runs[i]))
		}
	})
	if testing.Short() || simnet.Race {
		return // too few to see everything
	}
	for _, verdict := range []string{
		"open fenced", "open foreign", "retry ok", "retry gone", "retry fenced", "pause moved", "plan ok", "plan moved", "plan fenced", "claim claimed", "claim moved", "claim early", "claim paused", "claim fenced",
		"finish done", "finish gone", "finish fenced", "pause ok", "pause absent",
	} {
		require.Positive(t, seen[verdict], "%s was not seen: %v", verdict, seen)
	}
}

func recordOf(r taskRecord, there bool) oracle.Record {
	return oracle.Record{
		Next: r.due, Spec: r.spec, Token: r.token, Run: r.run, Done: r.done, Status: string(r.status), Scheduled: r.scheduled, Started: r.started,
		Finished: r.finished, Attempt: int64(r.attempt), Crashes: int64(r.crashes), Skipped: r.skipped, Paused: r.paused, Instance: r.instance,
		RunToken: r.runToken, Error: r.text, Failures: int64(r.failures), RetryAt: r.retryAt, Lease: r.lease, Pauses: r.pauses, There: there,
	}
}

func runOf(r TaskRecord) oracle.Run {
	ms := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	return oracle.Run{
		ID: r.Run, Slot: ms(r.Slot), Started: ms(r.Started), Finished: ms(r.Finished), Status: string(r.Status), Attempt: int64(r.Attempt),
		Token: r.Token, Instance: r.InstanceID, Error: r.Error,
	}
}

// TestRegistryScriptsAgreeWithTheOracle does the same with beats, sweeps and departures of a few instances and incarnations.
func TestRegistryScriptsAgreeWithTheOracle(t *testing.T) {
	const drifted, down, window = 60_000, 300_000, 30_000
	seen := map[string]int{}
	onModelWorlds(t, 60, func(w *modelWorld) {
		ctx, model := w.Context(), oracle.NewRegistry()
		ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for range 80 {
			w.pass(20 * time.Second)
			id, incarnation := oneOf(w, ids...), oneOf(w, "i1", "i1", "i2")
			what := oneOf(w, "beat", "beat", "beat", "leave", "look", "sweep", "sweep", "silence", "hold", "ahead")
			verdict := ""
			switch what {
			case "beat":
				notAfter := int64(0)
				if w.rand.IntN(4) == 0 {
					notAfter = w.now() + oneOf(w, int64(-1000), 60_000)
				}
				b := beatCall{
					id: id, incarnation: incarnation, first: w.rand.IntN(3) == 0, notAfter: notAfter, ttl: 90 * time.Second, takeOver: drifted * time.Millisecond,
					head: `{"instance_id":"` + id + `","started_at":`, rest: `,"status":"active","worker_count":1,"incarnation":"` + incarnation + `"}`, started: oneOf(w, int64(0), 1234),
				}
				reply, err := w.store.beatInstance(ctx, b)
				require.NoError(w, err)
				want, started, other := model.Beat(reply.now, oracle.Beat{
					ID: id, Incarnation: incarnation, First: b.first, NotAfter: notAfter, TTL: b.ttl.Milliseconds(), TakeOver: drifted, Status: "active", Started: b.started,
				})
				require.Equal(w, []any{want, started, other}, []any{reply.verdict, reply.started, reply.other})
				verdict = want
			case "leave":
				got, err := w.store.removeInstance(ctx, id, incarnation)
				require.NoError(w, err)
				verdict = model.Deregister(id, incarnation)
				require.Equal(w, verdict, got)
			case "silence": // time passes for one of them
				if _, beats := model.Beats[id]; beats {
					d := w.rand.Int64N(2 * down)
					require.NoError(w, w.rdb.ZIncrBy(ctx, w.store.keys.beats(), -float64(d), id).Err())
					model.Beats[id] -= d
				}
			case "hold": // it ends sooner, or another one does not know of it
				if model.Hold == nil || w.now() >= model.Hold.Ends {
					break
				}
				if left := w.rand.Int64N(200_000); left > 10_000 {
					require.NoError(w, w.rdb.PExpire(ctx, w.store.keys.hold(), time.Duration(left)*time.Millisecond).Err())
					model.Hold.Ends = w.now() + left
				} else {
					require.NoError(w, w.rdb.Del(ctx, w.store.keys.hold(), w.store.keys.removed()).Err())
					model.Hold = nil
					clear(model.Removed)
				}
			case "ahead": // a removal from before Redis's clock was set back
				at := w.now() + 2*window + w.rand.Int64N(down)
				require.NoError(w, w.rdb.ZAdd(ctx, w.store.keys.removed(), redis.Z{Score: float64(at), Member: id}).Err())
				w.rdb.Persist(ctx, w.store.keys.removed())
				model.Removed[id] = at
			case "look":
				silence := oneOf(w, int64(drifted/2), drifted)
				reply, err := w.store.lookAtBeats(ctx, lookCall{silence: time.Duration(silence) * time.Millisecond})
				require.NoError(w, err)
				require.Equal(w, fmt.Sprint(model.Look(reply.now, silence)), fmt.Sprint(reply.ids))
			case "sweep":
				of := slices.Clone(ids)
				w.rand.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
				c := sweepCall{
					drifted: drifted * time.Millisecond, down: down * time.Millisecond, window: window * time.Millisecond,
					mark: w.rand.IntN(4) > 0, remove: w.rand.IntN(3) > 0, incarnation: oneOf(w, "i", "j"), ids: of,
				}
				before := w.now()
				got, err := w.store.sweepInstances(ctx, c)
				require.NoError(w, err)
				ask := oracle.Sweep{Drifted: drifted, Down: down, Window: window, Mark: c.mark, Remove: c.remove, By: c.incarnation, IDs: of}
				late := model.Clone() // the script ran at an instant between
				began, held, want := model.Sweep(before, ask)
				if !slices.Equal(want, got.verdicts) {
					model = late
					began, held, want = model.Sweep(w.now(), ask)
				}
				require.Equal(w, want, got.verdicts)
				require.Equal(w, held, got.held)
				require.InDelta(w, began, got.heldSince, float64(w.now()-before))
				if model.Hold != nil && got.heldSince != 0 {
					model.Hold.Began = got.heldSince
					verdict = "held"
				}
				for _, v := range got.verdicts {
					seen["sweep "+v]++
				}
			}
			seen[what+" "+verdict]++
			w.sameRegistry(model)
		}
	})
	if testing.Short() || simnet.Race {
		return // too few to see everything
	}
	for _, verdict := range []string{
		"beat joined", "beat kept", "beat recovered", "beat duplicate", "beat stale", "leave left", "leave absent", "leave other",
		"sweep fresh", "sweep drifted", "sweep silent", "sweep down", "sweep held",
	} {
		require.Positive(t, seen[verdict], "%s was not seen: %v", verdict, seen)
	}
}

// sameRegistry holds what lies in Redis against the model.
func (w *modelWorld) sameRegistry(model *oracle.Registry) {
	w.Helper()
	ctx := w.Context()
	beats := map[string]int64{}
	scores, err := w.rdb.ZRangeWithScores(ctx, w.store.keys.beats(), 0, -1).Result()
	require.NoError(w, err)
	for _, z := range scores {
		beats[z.Member.(string)] = int64(z.Score)
	}
	require.Equal(w, model.Beats, beats)
	hold, err := w.rdb.Get(ctx, w.store.keys.hold()).Result()
	if model.Hold == nil || w.now() >= model.Hold.Ends {
		require.ErrorIs(w, err, redis.Nil)
	} else {
		require.NoError(w, err, "%+v %d", model.Hold, w.now())
		h := model.Hold
		require.Equal(w, fmt.Sprint(h.Began, " ", h.May, " ", h.Held, " ", h.By), hold)
	}
	instances := map[string]oracle.Instance{}
	page, err := w.store.scanInstances(ctx, "0", false)
	require.NoError(w, err)
	for _, e := range page.entries {
		var record struct {
			Incarnation string `json:"incarnation"`
			Status      string `json:"status"`
			Started     int64  `json:"started_at"`
			Beat        int64  `json:"last_heartbeat"`
		}
		require.NoError(w, json.Unmarshal([]byte(e.record), &record))
		instances[e.id] = oracle.Instance{Incarnation: record.Incarnation, Status: record.Status, Started: record.Started, Beat: record.Beat}
	}
	if !reflect.DeepEqual(model.Instances, instances) {
		require.Equal(w, model.Instances, instances)
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		earliest := w.now()
		left, err := w.rdb.PTTL(ctx, w.store.keys.heartbeat(id)).Result()
		require.NoError(w, err)
		latest, ends := w.now(), model.Keys[id]
		if left < 0 {
			require.LessOrEqual(w, ends, latest+5000, "the heartbeat of %s is not there", id)
			continue
		}
		require.InDelta(w, (earliest+latest)/2+left.Milliseconds(), ends, float64(latest-earliest)/2+5000, "the heartbeat of %s ends", id)
	}
}
