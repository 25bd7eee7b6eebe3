//go:build unix

package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// oracleCluster is a cluster beside the oracle's models of the task and registry scripts, which are
// asked the same.
type oracleCluster struct {
	*testing.T
	*cluster
	rand *rand.Rand
}

// besideTheOracle runs a sequence of questions per seed, on miniredis and on a redis-server, whose
// clock goes by itself.
func besideTheOracle(t *testing.T, seeds int, run func(*oracleCluster)) {
	t.Helper()
	onClusters(t, "model", func(t *testing.T, c *cluster) {
		w := &oracleCluster{T: t, cluster: c}
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

// pass lets up to so much time go by, if the clock is ours.
func (w *oracleCluster) pass(d time.Duration) {
	if w.mini != nil {
		w.mini.SetTime(time.UnixMilli(w.now()).Add(time.Duration(w.rand.Int64N(int64(d)))))
	}
}

func (w *oracleCluster) now() int64 {
	now, err := w.rdb.Time(context.Background()).Result()
	require.NoError(w, err)
	return now.UnixMilli()
}

func oneOf[T any](w *oracleCluster, from ...T) T { return from[w.rand.IntN(len(from))] }

// TestTaskScriptsAgreeWithTheOracle asks random questions, of young leaders and old ones, with what
// is expected right and wrong.
func TestTaskScriptsAgreeWithTheOracle(t *testing.T) {
	seen := map[string]int{}
	besideTheOracle(t, 120, func(w *oracleCluster) {
		ctx, model, token := w.Context(), oracle.Task{}, int64(41)
		slots := func() int64 { return (w.now()/1000 + w.rand.Int64N(5) - 2) * 1000 }
		for range 40 {
			w.pass(3 * time.Second)
			if w.rand.IntN(6) == 0 {
				token++
			}
			as := oneOf(w, token, token, token-1, token+1, max(model.Token-1, 1))
			run := oneOf(w, "r1", "r2", "r3", model.Run, model.Done)
			apt := w.rand.IntN(2) == 0 // it comes from who leads, and asks for what can be had
			if apt {
				as, run = max(model.Token, 1), cmp.Or(model.Run, "r"+strconv.Itoa(w.rand.IntN(20)))
			}
			if run == "" {
				run = "r4"
			}
			expect, spec := oneOf(w, model.Next, model.Next, strconv.FormatInt(slots(), 10)), oneOf(w, model.Spec, "s1", "s1", "s2")
			var reply store.TaskReply
			var err error
			var want, what string
			running, canceled := model.Run, model.Run != "" && model.Record.Cancel == model.Run
			what = oneOf(w, "open", "plan", "claim", "claim", "claim", "retry", "finish", "finish", "pause", "cancel", "trigger", "trigger", "list", "read")
			if canceled && apt {
				what = oneOf(w, what, "finish", "claim")
			}
			switch what {
			case "open":
				o := store.TaskOpen{Token: as, Lease: oneOf(w, "model:leader", "model:leader", "model:leader:other"), Other: oneOf(w, "", model.Lease)}
				held, long, later := w.rand.IntN(2) == 0, w.rand.IntN(2) == 0, w.rand.Int64N(2)
				for _, key := range []string{"model:leader", "model:leader:other"} {
					require.NoError(w, w.rdb.Set(ctx, store.LeaseSince(key), map[bool]int64{true: 1, false: time.Now().Unix()}[long], 0).Err())
					require.NoError(w, w.rdb.HSet(ctx, store.LeaseTerm(key), "token", model.Token+later).Err())
					if held {
						require.NoError(w, w.rdb.Set(ctx, key, "somebody", 0).Err())
					} else {
						require.NoError(w, w.rdb.Del(ctx, key).Err())
					}
				}
				reply, err = w.store.Open(ctx, "t", o)
				want = model.Open(as, o.Lease, (!held || long && later > 0) && o.Other == model.Lease)
			case "plan":
				p := store.TaskPlan{Token: as, Expect: expect, Next: slots(), Spec: spec, Skipped: w.rand.Int64N(3), Paused: w.rand.IntN(5) == 0, Pause: "1 somebody"}
				reply, err = w.store.Plan(ctx, "t", p)
				want = model.Plan(as, p.Expect, strconv.FormatInt(p.Next, 10), p.Spec, p.Skipped, p.Paused, p.Pause)
			case "claim":
				c := store.TaskClaim{
					Token: as, Run: run, Kind: oneOf(w, store.ClaimSlot, store.ClaimSlot, store.ClaimAgain, store.ClaimExtra, store.ClaimTrigger), Expect: expect, Slot: slots(),
					Next: slots() + 5000, Spec: spec, Instance: oneOf(w, "a", "b"), Skipped: w.rand.IntN(3), Attempt: 1 + w.rand.IntN(3),
					Pauses: oneOf(w, model.Pauses, model.Pauses, model.Pauses, "1"),
				}
				if apt {
					c.Spec, c.Expect, c.Pauses = model.Spec, model.Next, model.Pauses
				}
				if apt && w.rand.IntN(2) == 0 { // what nearly all are
					c.Kind, c.Skipped = store.ClaimSlot, 0
				}
				if c.Kind == store.ClaimAgain {
					c.Expect = oneOf(w, model.Run, model.Done, "r1")
				}
				if c.Kind == store.ClaimExtra {
					c.Expect = strconv.FormatInt(oneOf(w, model.Finished, model.Finished, 7), 10)
				}
				if c.Kind == store.ClaimTrigger {
					c.Expect = oneOf(w, model.Record.Trigger, model.Record.Trigger, "t0 9999999999999 a")
				}
				reply, err = w.store.Claim(ctx, "t", c)
				want = model.Claim(reply.Now, oracle.Claim{
					Token: c.Token, Run: c.Run, Kind: c.Kind, Expect: c.Expect, Slot: c.Slot, Next: strconv.FormatInt(c.Next, 10), Spec: c.Spec,
					Instance: c.Instance, Skipped: int64(c.Skipped), Attempt: int64(c.Attempt), Pauses: c.Pauses,
				})
			case "retry":
				r := store.TaskRetry{Token: as, Run: run, Attempt: 1 + w.rand.IntN(3), Failures: w.rand.IntN(3), In: time.Duration(w.rand.IntN(5)) * time.Second}
				reply, err = w.store.Retry(ctx, "t", r)
				want = model.Retry(reply.Now, r.Token, r.Run, int64(r.Attempt), int64(r.Failures), r.In.Milliseconds())
				if want == store.TaskOK && r.In > 0 {
					seen["retry in a while"]++
				}
			case "finish":
				f := store.TaskFinish{
					Token: as, Run: run, Status: oneOf(w, store.RunSucceeded, store.RunFailed, store.RunInterrupted, store.RunAbandoned, store.RunReturned), Text: oneOf(w, "", "oops", strings.Repeat("ä", 70), strings.Repeat("x€", 40), strings.Repeat("y", 120), strings.Repeat("y", 121)),
					Attempt: w.rand.IntN(3), Failures: w.rand.IntN(3), RetryIn: time.Duration(w.rand.IntN(3)) * time.Second,
				}
				if apt && w.rand.IntN(2) == 0 { // what nearly all are
					f.Status, f.Text, f.Attempt, f.RetryIn = store.RunSucceeded, "", 1, 0
				}
				reply, err = w.store.Finish(ctx, "t", f)
				want = model.Finish(reply.Now, f.Token, f.Run, string(f.Status), f.Text, int64(f.Attempt), int64(f.Failures), f.RetryIn.Milliseconds())
				if ended := running == run && model.Run == ""; ended {
					seen["end of a run as "+model.Status]++
					if f.RetryIn > 0 {
						seen["end of a run and a pause"]++
					}
					if canceled && string(f.Status) != model.Status {
						seen["end of a canceled run"]++
					}
				}
			case "pause":
				paused, count := oneOf(w, true, false, false), oneOf(w, model.Pauses, model.Pauses, "1")
				why := oneOf(w, "a", "b")
				reply, err = w.store.Pause(ctx, "t", paused, count, why)
				want = model.Pause(reply.Now, paused, count, why)
			case "cancel":
				asked := oneOf(w, run, run, model.Done)
				if asked == "" {
					asked = "r4"
				}
				reply, err = w.store.Cancel(ctx, "t", store.TaskCancel{Run: asked, For: time.Hour})
				want = model.Cancel(reply.Now, asked, store.CanceledText)
			case "trigger":
				q := store.TaskTrigger{
					ID: "t" + strconv.Itoa(w.rand.IntN(12)), Args: oneOf(w, "", `["x"]`), By: oneOf(w, "a", "b"), NotAfter: w.now() + 1000*oneOf[int64](w, 60, 60, 60, -60),
					For: time.Duration(1+w.rand.IntN(8)) * time.Second, Create: w.rand.IntN(3) == 0, Lease: "model:leader",
					Runs: model.Triggers - oneOf[int64](w, 0, 0, 0, 31, 32, 33),
				}
				reply, err = w.store.Trigger(ctx, "t", q)
				want = model.Trigger(reply.Now, q.ID, q.Args, q.By, q.NotAfter, q.For.Milliseconds(), q.Create, q.Runs)
			case "list":
				reply, err = w.store.RecordAndTriggers(ctx, "t", oneOf(w, "", "t", "other t"))
				if len(reply.Triggers) > 0 {
					require.Equal(w, []string{"t"}, reply.Triggers)
					require.NotEmpty(w, model.Record.Trigger+model.Record.Cancel)
				}
				want = store.TaskOK
			case "read":
				reply, err = w.store.Record(ctx, "t")
				want = store.TaskOK
			}
			require.NoError(w, err, what)
			require.Equal(w, want, reply.Verdict, "%s as %d of %+v", what, as, model.Record)
			require.Equal(w, model.Record, recordOf(reply.Record, model.There), what)
			seen[what+" "+want]++
		}
		runs, err := w.store.Runs(ctx, "t", 1000)
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
		"finish done", "finish gone", "finish fenced", "pause ok", "pause absent", "cancel ok", "cancel absent", "cancel moved", "trigger ok", "trigger waiting", "trigger absent", "trigger stale", "trigger moved",
		"claim expired", "retry in a while", "end of a run and a pause", "end of a canceled run", "end of a run as abandoned", "end of a run as failed", "end of a run as interrupted",
		"end of a run as returned", "end of a run as succeeded",
	} {
		require.Positive(t, seen[verdict], "%s was not seen: %v", verdict, seen)
	}
}

func recordOf(r store.TaskRecord, there bool) oracle.Record {
	pause := ""
	if r.PausedAt != 0 {
		pause = strconv.FormatInt(r.PausedAt, 10)
	}
	if r.ResumedAt != 0 {
		pause += " " + strconv.FormatInt(r.ResumedAt, 10)
	}
	return oracle.Record{
		Next: r.Due, Spec: r.Spec, Token: r.Token, Run: r.Run, Done: r.Done, Status: string(r.Status), Scheduled: r.Scheduled, Started: r.Started,
		Finished: r.Finished, Attempt: int64(r.Attempt), Crashes: int64(r.Crashes), Skipped: r.Skipped, Paused: r.Paused, Instance: r.Instance,
		RunToken: r.RunToken, Error: r.Text, Failures: int64(r.Failures), RetryAt: r.RetryAt, RetryIn: r.RetryIn, Success: r.LastSuccess, Failed: int64(r.FailedRuns), Why: r.Pause, Cancel: r.Cancel, Lease: r.Lease, Pauses: r.Pauses, LastPause: pause, Triggers: r.TriggerRuns,
		Trigger: r.Trigger, RunOf: r.RunTrigger, Args: r.Args, There: there,
	}
}

func runOf(r store.Run) oracle.Run {
	ms := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	return oracle.Run{
		ID: r.Run, Slot: ms(r.Slot), Started: ms(r.Started), Finished: ms(r.Finished), Status: string(r.Status), Attempt: int64(r.Attempt),
		Token: r.Token, Instance: r.InstanceID, Error: r.Error, Trigger: r.Trigger,
	}
}

// TestRegistryScriptsAgreeWithTheOracle does the same with beats, sweeps and departures of a few
// instances and incarnations.
func TestRegistryScriptsAgreeWithTheOracle(t *testing.T) {
	const drifted, down, window = 60_000, 300_000, 30_000
	seen := map[string]int{}
	besideTheOracle(t, 60, func(w *oracleCluster) {
		ctx, model := w.Context(), oracle.NewRegistry()
		ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for range 80 {
			w.pass(20 * time.Second)
			id, incarnation, status := oneOf(w, ids...), oneOf(w, "i1", "i1", "i2"), oneOf(w, "active", "active", "joining", "draining", "resting")
			what := oneOf(w, "beat", "beat", "beat", "leave", "look", "sweep", "sweep", "silence", "hold", "ahead")
			verdict := ""
			switch what {
			case "beat":
				notAfter := int64(0)
				if w.rand.IntN(4) == 0 {
					notAfter = w.now() + oneOf(w, int64(-1000), 60_000)
				}
				b := store.Heartbeat{
					ID: id, Incarnation: incarnation, First: w.rand.IntN(3) == 0, NotAfter: notAfter, TTL: 90 * time.Second, TakeOver: drifted * time.Millisecond,
					Head: `{"instance_id":"` + id + `","started_at":`, Rest: `,"status":"` + status + `","worker_count":1,"incarnation":"` + incarnation + `"}`, Started: oneOf(w, int64(0), 1234),
				}
				reply, err := w.store.Heartbeat(ctx, b)
				require.NoError(w, err)
				want, started, other := model.Beat(reply.Now, oracle.Beat{
					ID: id, Incarnation: incarnation, First: b.First, NotAfter: notAfter, TTL: b.TTL.Milliseconds(), TakeOver: drifted, Status: status, Started: b.Started,
				})
				require.Equal(w, []any{want, started, other}, []any{string(reply.Verdict), reply.Started, reply.Other})
				if want != "stale" && want != "duplicate" {
					require.Len(w, model.Beats, reply.Instances)
				}
				verdict = want
			case "leave":
				got, err := w.store.Remove(ctx, id, incarnation)
				require.NoError(w, err)
				verdict = model.Deregister(id, incarnation)
				require.Equal(w, verdict, got)
			case "silence": // time passes for one of them
				if _, beats := model.Beats[id]; beats {
					d := w.rand.Int64N(2 * down)
					require.NoError(w, w.rdb.ZIncrBy(ctx, w.store.keys.Beats(), -float64(d), id).Err())
					model.Beats[id] -= d
					if word, said := model.Words[id]; said {
						require.NoError(w, w.rdb.ZIncrBy(ctx, w.store.keys.Words(), -float64(d), id).Err())
						model.Words[id] = oracle.Word{Status: word.Status, At: word.At - d}
					}
				}
			case "hold": // it ends sooner, or another one does not know of it
				if model.Hold == nil || w.now() >= model.Hold.Ends {
					break
				}
				if left := w.rand.Int64N(200_000); left > 10_000 {
					require.NoError(w, w.rdb.PExpire(ctx, w.store.keys.Hold(), time.Duration(left)*time.Millisecond).Err())
					model.Hold.Ends = w.now() + left
				} else {
					require.NoError(w, w.rdb.Del(ctx, w.store.keys.Hold(), w.store.keys.Removed()).Err())
					model.Hold = nil
					clear(model.Removed)
				}
			case "ahead": // a removal from before Redis's clock was set back
				at := w.now() + 2*window + w.rand.Int64N(down)
				require.NoError(w, w.rdb.ZAdd(ctx, w.store.keys.Removed(), redis.Z{Score: float64(at), Member: id}).Err())
				w.rdb.Persist(ctx, w.store.keys.Removed())
				model.Removed[id] = at
			case "look":
				silence := oneOf(w, int64(drifted/2), drifted)
				reply, err := w.store.Look(ctx, store.Look{Silence: time.Duration(silence) * time.Millisecond})
				require.NoError(w, err)
				require.Equal(w, fmt.Sprint(model.Look(reply.Now, silence)), fmt.Sprint(reply.IDs))
			case "sweep":
				of := slices.Clone(ids)
				w.rand.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
				c := store.Sweep{
					Drifted: drifted * time.Millisecond, Down: down * time.Millisecond, Window: window * time.Millisecond,
					Mark: w.rand.IntN(4) > 0, Remove: w.rand.IntN(3) > 0, Incarnation: oneOf(w, "i", "j"), IDs: of,
				}
				before := w.now()
				got, err := w.store.Sweep(ctx, c)
				require.NoError(w, err)
				ask := oracle.Sweep{Drifted: drifted, Down: down, Window: window, Mark: c.Mark, Remove: c.Remove, By: c.Incarnation, IDs: of}
				late := model.Clone() // the script ran at an instant between
				began, held, want := model.Sweep(before, ask)
				if !slices.Equal(want, got.Verdicts) {
					model = late
					began, held, want = model.Sweep(w.now(), ask)
				}
				require.Equal(w, want, got.Verdicts)
				require.Equal(w, held, got.Held)
				require.InDelta(w, began, got.HeldSince, float64(w.now()-before))
				if model.Hold != nil && got.HeldSince != 0 {
					model.Hold.Began = got.HeldSince
					verdict = "held"
				}
				for _, v := range got.Verdicts {
					seen["sweep "+v]++
				}
			}
			seen[what+" "+verdict]++
			w.sameRegistry(model)
			w.sameCounts(model, drifted, down)
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

// sameCounts holds the counts of the index against those of the records.
func (w *oracleCluster) sameCounts(model *oracle.Registry, drifted, down int64) {
	w.Helper()
	before := model.Counts(w.now(), drifted, down)
	got, err := w.store.Count(w.Context(), time.Duration(drifted)*time.Millisecond, time.Duration(down)*time.Millisecond)
	require.NoError(w, err)
	after := model.Counts(w.now(), drifted, down)
	if missing := len(model.Beats) - len(model.Instances); missing != 0 || !got.Exact() {
		require.False(w, got.Exact() || missing == 0, "%+v", got)
		return
	}
	counts := map[string]int{
		"active": got.Active(), "joining": got.Joining, "draining": got.Draining, "resting": got.Other, "drifted": got.Drifted, "down": got.Down,
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(before, counts) { // the script ran at an instant between
		require.Equal(w, after, counts, "%+v", model)
	}
}

// sameRegistry holds what lies in Redis against the model.
func (w *oracleCluster) sameRegistry(model *oracle.Registry) {
	w.Helper()
	ctx := w.Context()
	beats := map[string]int64{}
	scores, err := w.rdb.ZRangeWithScores(ctx, w.store.keys.Beats(), 0, -1).Result()
	require.NoError(w, err)
	for _, z := range scores {
		beats[z.Member.(string)] = int64(z.Score)
	}
	require.Equal(w, model.Beats, beats)
	words := map[string]oracle.Word{}
	scores, err = w.rdb.ZRangeWithScores(ctx, w.store.keys.Words(), 0, -1).Result()
	require.NoError(w, err)
	for _, z := range scores {
		words[z.Member.(string)] = oracle.Word{Status: []string{"", "joining", "draining", "resting", "none"}[int64(z.Score)/1e13], At: int64(z.Score) % 1e13}
	}
	require.Equal(w, model.Words, words)
	hold, err := w.rdb.Get(ctx, w.store.keys.Hold()).Result()
	if model.Hold == nil || w.now() >= model.Hold.Ends {
		require.ErrorIs(w, err, redis.Nil)
	} else {
		require.NoError(w, err, "%+v %d", model.Hold, w.now())
		h := model.Hold
		require.Equal(w, fmt.Sprint(h.Began, " ", h.May, " ", h.Held, " ", h.By), hold)
	}
	instances := map[string]oracle.Instance{}
	page, err := w.store.Scan(ctx, "0", false)
	require.NoError(w, err)
	for _, e := range page.Entries {
		var record struct {
			Incarnation string `json:"incarnation"`
			Status      string `json:"status"`
			Started     int64  `json:"started_at"`
			Beat        int64  `json:"last_heartbeat"`
		}
		require.NoError(w, json.Unmarshal([]byte(e.Record), &record))
		instances[e.ID] = oracle.Instance{Incarnation: record.Incarnation, Status: record.Status, Started: record.Started, Beat: record.Beat}
	}
	if !reflect.DeepEqual(model.Instances, instances) {
		require.Equal(w, model.Instances, instances)
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		earliest := w.now()
		left, err := w.rdb.PTTL(ctx, w.store.keys.Heartbeat(id)).Result()
		require.NoError(w, err)
		latest, ends := w.now(), model.Keys[id]
		if left < 0 {
			require.LessOrEqual(w, ends, latest+5000, "the heartbeat of %s is not there", id)
			continue
		}
		require.InDelta(w, (earliest+latest)/2+left.Milliseconds(), ends, float64(latest-earliest)/2+5000, "the heartbeat of %s ends", id)
	}
}
