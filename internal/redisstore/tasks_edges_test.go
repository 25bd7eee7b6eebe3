package redisstore

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// taskCluster is a stillCluster whose task scripts are asked about the task t.
type taskCluster struct{ *stillCluster }

// newTaskCluster has a record of the task t, which the leader with the token runToken has opened.
func newTaskCluster(t *testing.T) *taskCluster {
	t.Helper()
	e := &taskCluster{newStillCluster(t)}
	planTask(t, e.cluster)
	return e
}

// at sets Redis's clock to so many milliseconds after edgeNow.
func (e *taskCluster) at(ms int64) { e.mini.SetTime(time.UnixMilli(edgeNow + ms)) }

// trigger asks for a run that waits for five seconds at most.
func (e *taskCluster) trigger(id string, change func(q *store.TaskTrigger)) store.TaskReply {
	e.Helper()
	q := store.TaskTrigger{ID: id, Args: `["` + id + `"]`, By: "me", NotAfter: edgeNow + 60_000, For: 5 * time.Second}
	if change != nil {
		change(&q)
	}
	reply, err := e.store.Trigger(e.Context(), "t", q)
	require.NoError(e, err)
	return reply
}

// claimTrigger claims the trigger that is given as the one that waits.
func (e *taskCluster) claimTrigger(run, waits string) store.TaskReply {
	e.Helper()
	reply, err := e.store.Claim(e.Context(), "t", store.TaskClaim{Token: runToken, Run: run, Kind: store.ClaimTrigger, Expect: waits, Instance: "a", Attempt: 1})
	require.NoError(e, err)
	return reply
}

// index is the index of triggers as it lies in Redis, with times relative to edgeNow.
func (e *taskCluster) index() map[string]int64 {
	e.Helper()
	scores, err := e.rdb.ZRangeWithScores(e.Context(), e.store.keys.Triggers(), 0, -1).Result()
	require.NoError(e, err)
	index := map[string]int64{}
	for _, z := range scores {
		index[z.Member.(string)] = int64(z.Score) - edgeNow
	}
	return index
}

// TestTaskScriptsAtTheEndOfATrigger: a trigger is claimed up to the last millisecond of its time,
// and is too old from the next one on. Both take it, and nothing else, out of the record and of
// the index.
func TestTaskScriptsAtTheEndOfATrigger(t *testing.T) {
	for _, tt := range []struct {
		name    string
		at      int64
		verdict string
		run     string
	}{
		{"its last millisecond", 4999, store.TaskClaimed, "r1"},
		{"its end", 5000, store.TaskExpired, ""},
		{"a millisecond later", 5001, store.TaskExpired, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newTaskCluster(t)
			others := map[string]int64{"a": 90_000, "1": 90_000, "10": 90_000, "r1": 90_000}
			for name, at := range others {
				require.NoError(t, e.rdb.ZAdd(t.Context(), e.store.keys.Triggers(), redis.Z{Score: float64(edgeNow + at), Member: name}).Err())
			}
			waits := e.trigger("t1", nil).Record.Trigger
			require.Len(t, e.index(), len(others)+1)
			require.EqualValues(t, 5000, e.index()["t"])
			e.at(tt.at)
			reply := e.claimTrigger("r1", waits)
			require.Equal(t, tt.verdict, reply.Verdict)
			require.Empty(t, reply.Record.Trigger)
			require.Equal(t, tt.run, reply.Record.Run)
			require.Equal(t, others, e.index())
			there, err := e.rdb.HExists(t.Context(), e.store.keys.Task("t"), "trigger_args").Result()
			require.NoError(t, err)
			require.False(t, there)
			read, err := e.store.Record(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, reply.Record, read.Record)
		})
	}
}

// TestTaskScriptsAtAPausedTrigger: what waits while its task is paused is claimed when it goes
// on, and expires in the pause too.
func TestTaskScriptsAtAPausedTrigger(t *testing.T) {
	e, ctx := newTaskCluster(t), t.Context()
	waits := e.trigger("t1", nil).Record.Trigger
	_, err := e.store.Pause(ctx, "t", true, "", "somebody")
	require.NoError(t, err)
	before := exact(t, e.rdb)
	require.Equal(t, store.TaskPaused, e.claimTrigger("r1", waits).Verdict)
	require.Equal(t, before, exact(t, e.rdb))
	_, err = e.store.Pause(ctx, "t", false, "1", "")
	require.NoError(t, err)
	require.Equal(t, store.TaskClaimed, e.claimTrigger("r1", waits).Verdict)
	_, err = e.store.Finish(ctx, "t", store.TaskFinish{Token: runToken, Run: "r1", Status: store.RunSucceeded})
	require.NoError(t, err)

	waits = e.trigger("t2", nil).Record.Trigger
	_, err = e.store.Pause(ctx, "t", true, "2", "somebody")
	require.NoError(t, err)
	e.at(5000)
	require.Equal(t, store.TaskExpired, e.claimTrigger("r2", waits).Verdict)
	require.Empty(t, e.index())
}

// TestTaskScriptsAtTheTimeOfATrigger: a trigger comes in time up to the last millisecond that
// whoever asks has named, and another one waits up to the end of its own time.
func TestTaskScriptsAtTheTimeOfATrigger(t *testing.T) {
	e, ctx := newTaskCluster(t), t.Context()
	before := exact(t, e.rdb)
	require.Equal(t, store.TaskStale, e.trigger("t1", func(q *store.TaskTrigger) { q.NotAfter = edgeNow - 1 }).Verdict)
	require.Equal(t, before, exact(t, e.rdb))
	first := e.trigger("t1", func(q *store.TaskTrigger) { q.NotAfter = edgeNow })
	require.Equal(t, store.TaskOK, first.Verdict)
	require.Equal(t, "t1 "+strconv.FormatInt(edgeNow+5000, 10)+" me", first.Record.Trigger)
	require.Equal(t, map[string]int64{"t": 5000}, e.index())
	e.at(4999)
	before = exact(t, e.rdb)
	require.Equal(t, store.TaskWaiting, e.trigger("t2", nil).Verdict)
	require.Equal(t, before, exact(t, e.rdb))
	e.at(5000)
	second := e.trigger("t2", nil)
	require.Equal(t, store.TaskOK, second.Verdict)
	require.Equal(t, "t2 "+strconv.FormatInt(edgeNow+10_000, 10)+" me", second.Record.Trigger)
	require.Equal(t, map[string]int64{"t": 10_000}, e.index())
	require.Equal(t, `["t2"]`, e.rdb.HGet(ctx, e.store.keys.Task("t"), "trigger_args").Val())

	absent, err := e.store.Trigger(ctx, "unknown", store.TaskTrigger{ID: "t1", By: "me", NotAfter: edgeNow + 60_000, For: time.Minute})
	require.NoError(t, err)
	require.Equal(t, store.TaskAbsent, absent.Verdict, "the index is there")

	// The index lists what ends later than now, and forgets the others.
	e.at(9999)
	reply, err := e.store.RecordAndTriggers(ctx, "t", "")
	require.NoError(t, err)
	require.Equal(t, []string{"t"}, reply.Triggers)
	e.at(10_000)
	reply, err = e.store.RecordAndTriggers(ctx, "t", "")
	require.NoError(t, err)
	require.Empty(t, reply.Triggers)
	require.Empty(t, e.index())
}

// TestTaskScriptsAtAnotherAttempt: what the record says of the next attempt is written once.
func TestTaskScriptsAtAnotherAttempt(t *testing.T) {
	e, ctx := newTaskCluster(t), t.Context()
	_, err := e.store.Claim(ctx, "t", quietClaim)
	require.NoError(t, err)
	retry := store.TaskRetry{Token: runToken, Run: quietClaim.Run, Attempt: 2, Failures: 1, In: 5 * time.Second}
	reply, err := e.store.Retry(ctx, "t", retry)
	require.NoError(t, err)
	require.Equal(t, store.TaskOK, reply.Verdict)
	require.Equal(t, []int64{2, 1, edgeNow + 5000, 5000}, []int64{int64(reply.Record.Attempt), int64(reply.Record.Failures), reply.Record.RetryAt, reply.Record.RetryIn})
	read, err := e.store.Record(ctx, "t")
	require.NoError(t, err)
	require.Equal(t, reply.Record, read.Record)
	e.at(1)
	again, err := e.store.Retry(ctx, "t", retry)
	require.NoError(t, err)
	require.Equal(t, store.TaskOK, again.Verdict)
	require.Equal(t, reply.Record, again.Record)
}

// TestTaskScriptsAtARecordThatIsOpen: a leader that opens what it has opened before, and says the
// same of it, writes nothing into the record.
func TestTaskScriptsAtARecordThatIsOpen(t *testing.T) {
	e := newTaskCluster(t)
	open := store.TaskOpen{Token: runToken, Lease: "edge:leader", Schedule: "@every 10s", Jitter: time.Second}
	_, err := e.store.Open(t.Context(), "t", open)
	require.NoError(t, err)
	record := e.store.keys.Task("t")
	require.NoError(t, e.rdb.Watch(t.Context(), func(tx *redis.Tx) error {
		reply, err := e.store.Open(t.Context(), "t", open)
		require.NoError(t, err)
		require.Equal(t, store.TaskOK, reply.Verdict)
		_, err = tx.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error { return pipe.HLen(t.Context(), record).Err() })
		return err // TxFailedErr if the record was written meanwhile
	}, record))
}

// TestTaskScriptsAtAnUnknownTask: a record is removed once the lease has been held for as long as
// it must have been, by a leader that has not opened it; those of other tasks stay.
func TestTaskScriptsAtAnUnknownTask(t *testing.T) {
	const lease, led = "edge:leader", time.Minute
	e, ctx := newTaskCluster(t), t.Context()
	_, err := e.store.Open(ctx, "u", store.TaskOpen{Token: runToken, Lease: lease})
	require.NoError(t, err)
	_, err = e.store.Trigger(ctx, "u", store.TaskTrigger{ID: "t1", By: "me", NotAfter: edgeNow, For: time.Minute})
	require.NoError(t, err)
	others := exact(t, e.rdb)
	delete(others, e.store.keys.Task("t"))
	others[e.store.keys.Tasks()] = strings.Replace(others[e.store.keys.Tasks()], "[t u]", "[u]", 1)

	_, err = e.store.Claim(ctx, "t", quietClaim)
	require.NoError(t, err)
	_, err = e.store.Finish(ctx, "t", quietFinish)
	require.NoError(t, err)
	e.trigger("t1", nil)
	leads := func(since int64, token int64) {
		require.NoError(t, e.rdb.Set(ctx, lease, "b", 0).Err())
		require.NoError(t, e.rdb.Set(ctx, store.LeaseSince(lease), since, 0).Err())
		require.NoError(t, e.rdb.HSet(ctx, store.LeaseTerm(lease), "token", token).Err())
	}
	forget := func() string {
		reply, err := e.store.Forget(ctx, "t", store.TaskForget{Lease: lease, Led: led})
		require.NoError(t, err)
		return reply.Verdict
	}
	since := edgeNow/1000 - 60
	leads(since+1, runToken+1)
	require.Equal(t, store.TaskUnled, forget())
	e.at(999)
	require.Equal(t, store.TaskUnled, forget())
	leads(0, runToken+1)
	require.Equal(t, store.TaskUnled, forget())
	require.NoError(t, e.rdb.Del(ctx, store.LeaseSince(lease)).Err())
	require.Equal(t, store.TaskUnled, forget())
	e.at(0)
	leads(since, runToken)
	require.Equal(t, store.TaskKnown, forget())
	leads(since, runToken+1)
	require.Equal(t, store.TaskOK, forget())
	require.NoError(t, e.rdb.Del(ctx, lease, store.LeaseSince(lease), store.LeaseTerm(lease)).Err())
	require.Equal(t, others, exact(t, e.rdb))

	leads(since, runToken+1)
	reply, err := e.store.Forget(ctx, "u", store.TaskForget{Lease: lease, Led: led})
	require.NoError(t, err)
	require.Equal(t, store.TaskOK, reply.Verdict, "it has no history")
	require.Equal(t, map[string]int64{}, e.index())
}

// hints gives what the leader of a lease hears while act runs.
func (e *taskCluster) hints(lease string, act func(ctx context.Context)) (hints []store.Hint) {
	e.Helper()
	ctx, channel := e.Context(), store.LeaseEvents(lease)
	listens := e.rdb.Subscribe(ctx, channel)
	defer func() { _ = listens.Close() }()
	_, err := listens.Receive(ctx)
	require.NoError(e, err)
	act(ctx)
	require.NoError(e, e.rdb.Publish(ctx, channel, "end").Err())
	for {
		m, err := listens.ReceiveMessage(ctx)
		require.NoError(e, err)
		if m.Payload == "end" {
			return hints
		}
		hint, ok := store.ParseHint(m.Payload)
		require.True(e, ok, m.Payload)
		hints = append(hints, hint)
	}
}

// TestTaskScriptsAtACancellation: the run that is on is to end, and ends as canceled if it is
// interrupted; one that waits to be run again ends at once. The leader hears of both, and once.
func TestTaskScriptsAtACancellation(t *testing.T) {
	const lease = "edge:leader"
	heard := []store.Hint{{Type: store.HintTriggered, Task: "t"}}
	for _, tt := range []struct {
		name string
		ends store.RunState // before it is canceled; "": it is on
		then store.RunState // how it ends after that
		want store.RunState
		text string
	}{
		{"it is on", "", store.RunInterrupted, store.RunCanceled, "stopped"},
		{"it is on, and is given back", "", store.RunReturned, store.RunCanceled, "stopped"},
		{"it is on, and succeeds all the same", "", store.RunSucceeded, store.RunSucceeded, "stopped"},
		{"it was interrupted", store.RunInterrupted, "", store.RunCanceled, store.CanceledText},
		{"it was given back", store.RunReturned, "", store.RunCanceled, store.CanceledText},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newTaskCluster(t)
			_, err := e.store.Claim(t.Context(), "t", quietClaim)
			require.NoError(t, err)
			if tt.ends != "" {
				_, err = e.store.Finish(t.Context(), "t", store.TaskFinish{Token: runToken, Run: quietClaim.Run, Status: tt.ends, Text: "stopped"})
				require.NoError(t, err)
			}
			e.at(1000)
			cancel := store.TaskCancel{Run: quietClaim.Run, For: 5 * time.Second, Lease: lease, Keep: 3, KeepFor: time.Hour}
			require.Equal(t, heard, e.hints(lease, func(ctx context.Context) {
				reply, err := e.store.Cancel(ctx, "t", cancel)
				require.NoError(t, err)
				require.Equal(t, store.TaskOK, reply.Verdict)
				require.Equal(t, quietClaim.Run, reply.Record.Cancel)
				read, err := e.store.Record(ctx, "t")
				require.NoError(t, err)
				require.Equal(t, reply.Record, read.Record)
			}))
			if tt.ends != "" {
				require.Equal(t, time.Hour, e.rdb.PTTL(t.Context(), e.store.keys.Runs("t")).Val())
			}
			require.Equal(t, map[string]int64{"t": 6000}, e.index())
			e.at(2000)
			before := exact(t, e.rdb)
			require.Empty(t, e.hints(lease, func(ctx context.Context) {
				reply, err := e.store.Cancel(ctx, "t", cancel)
				require.NoError(t, err)
				require.Equal(t, store.TaskOK, reply.Verdict, "a lost reply")
			}))
			require.Equal(t, before, exact(t, e.rdb))
			if tt.then != "" {
				_, err = e.store.Finish(t.Context(), "t", store.TaskFinish{Token: runToken, Run: quietClaim.Run, Status: tt.then, Text: "stopped"})
				require.NoError(t, err)
			}
			read, err := e.store.Record(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, tt.want, read.Record.Status)
			require.Equal(t, tt.text, read.Record.Text)
			require.Empty(t, read.Record.Run)
			require.Equal(t, quietClaim.Run, read.Record.Done)
			runs, err := e.store.Runs(t.Context(), "t", 10)
			require.NoError(t, err)
			require.Equal(t, tt.want, runs[0].Status)
			require.Equal(t, tt.text, runs[0].Error)
			require.Equal(t, quietClaim.Run, runs[0].Run)
			reply, err := e.store.Cancel(t.Context(), "t", cancel)
			require.NoError(t, err)
			require.Equal(t, store.TaskOK, reply.Verdict, "a lost reply")
		})
	}
}

// TestTaskScriptsAtACancellationOfAnother: a run that has ended for good, and one that is not on,
// are canceled no more, and what waits in the index for longer stays there.
func TestTaskScriptsAtACancellationOfAnother(t *testing.T) {
	e, ctx := newTaskCluster(t), t.Context()
	cancel := func(run string, lasts time.Duration) string {
		reply, err := e.store.Cancel(ctx, "t", store.TaskCancel{Run: run, For: lasts, Lease: "edge:leader"})
		require.NoError(t, err)
		return reply.Verdict
	}
	_, err := e.store.Claim(ctx, "t", quietClaim)
	require.NoError(t, err)
	e.trigger("t1", nil)
	require.Equal(t, store.TaskMoved, cancel("r0", time.Hour))
	require.Equal(t, store.TaskOK, cancel(quietClaim.Run, 4*time.Second))
	require.Equal(t, map[string]int64{"t": 5000}, e.index())
	_, err = e.store.Finish(ctx, "t", quietFinish)
	require.NoError(t, err)

	second := quietClaim
	second.Run, second.Expect = "41-2-x", strconv.FormatInt(quietClaim.Next, 10)
	claimed, err := e.store.Claim(ctx, "t", second)
	require.NoError(t, err)
	require.Equal(t, store.TaskClaimed, claimed.Verdict)
	_, err = e.store.Finish(ctx, "t", store.TaskFinish{Token: runToken, Run: second.Run, Status: store.RunFailed, Attempt: 1})
	require.NoError(t, err)
	before := exact(t, e.rdb)
	require.Equal(t, store.TaskMoved, cancel(second.Run, time.Hour))
	require.Equal(t, store.TaskMoved, cancel(quietClaim.Run, time.Hour))
	require.Equal(t, before, exact(t, e.rdb))
}

// TestTaskScriptsAtTheEndOfAPause: the record says when the last pause began and ended, and a slot
// is claimed only by who knows of it.
func TestTaskScriptsAtTheEndOfAPause(t *testing.T) {
	e, ctx := newTaskCluster(t), t.Context()
	pause := func(at int64, paused bool, expect string) store.TaskRecord {
		e.at(at)
		reply, err := e.store.Pause(ctx, "t", paused, expect, "somebody")
		require.NoError(t, err)
		require.Equal(t, store.TaskOK, reply.Verdict)
		return reply.Record
	}
	between := func(r store.TaskRecord, from, until int64) {
		require.Equal(t, [2]int64{from, until}, [2]int64{r.PausedAt, r.ResumedAt})
	}
	between(pause(100, false, ""), 0, 0)
	between(pause(200, true, "1"), edgeNow+200, 0)
	between(pause(300, true, "2"), edgeNow+200, 0)
	r := pause(400, false, "3")
	between(r, edgeNow+200, edgeNow+400)
	between(pause(500, false, "4"), edgeNow+200, edgeNow+400)

	claim := quietClaim
	for _, stale := range []string{"", "2", "4"} {
		claim.Pauses = stale
		reply, err := e.store.Claim(ctx, "t", claim)
		require.NoError(t, err)
		require.Equal(t, store.TaskMoved, reply.Verdict, stale)
		require.Equal(t, r.Due, reply.Record.Due)
	}
	claim.Pauses = "5"
	reply, err := e.store.Claim(ctx, "t", claim)
	require.NoError(t, err)
	require.Equal(t, store.TaskClaimed, reply.Verdict)
	between(reply.Record, edgeNow+200, edgeNow+400)

	for _, tt := range []struct {
		fields []any
		from   int64
	}{
		{[]any{"paused", "1", "pause", "77 somebody"}, 77}, // by a version that noted no more
		{[]any{"paused", "1", "pause", "77 somebody", "last_pause", "5 6"}, 77},
		{[]any{"paused", "1", "pause", "77 somebody", "last_pause", "55"}, 55},
		{[]any{"paused", "1", "pause", "", "last_pause", ""}, edgeNow + 600},
		{[]any{"paused", "1", "pause", "", "last_pause", strconv.FormatInt(edgeNow+601, 10)}, edgeNow + 600}, // Redis's clock was set back
	} {
		recordHas(append(tt.fields, "pauses", "5")...)(t, e.cluster)
		between(pause(600, false, "5"), tt.from, edgeNow+600)
	}
}

// TestTaskScriptsAtTheLongestTexts: a text that later requests name counts up to 1024 bytes of
// plain ASCII, and the IDs of the triggers that were claimed are looked for in as many.
func TestTaskScriptsAtTheLongestTexts(t *testing.T) {
	e, ctx := newTaskCluster(t), t.Context()
	longest := strings.Repeat("1", 1024)
	for _, tt := range []struct{ pauses, counts string }{
		{longest, longest}, {longest + "1", ""}, {"1\x7f", ""}, {" ~", " ~"}, {"1\n", ""}, {"ä", ""},
	} {
		recordHas("pauses", tt.pauses)(t, e.cluster)
		for _, wrong := range []string{"2", strings.Repeat("1", 1023)} {
			reply, err := e.store.Pause(ctx, "t", true, wrong, "somebody")
			require.NoError(t, err)
			require.Equal(t, store.TaskMoved, reply.Verdict, "%.9q", tt.pauses)
		}
		reply, err := e.store.Pause(ctx, "t", true, tt.counts, "somebody")
		require.NoError(t, err)
		require.Equal(t, store.TaskOK, reply.Verdict, "%.9q", tt.pauses)
		require.Equal(t, "1", reply.Record.Pauses)
	}
	for _, tt := range []struct {
		claimed string
		known   bool
	}{
		{strings.Repeat("x", 1022) + " t", true}, {strings.Repeat("x", 1022) + " tz", true}, {strings.Repeat("x", 1023) + " t", false},
	} {
		recordHas("triggered", tt.claimed)(t, e.cluster)
		recordLacks("trigger")(t, e.cluster)
		reply := e.trigger("t", nil)
		require.Equal(t, store.TaskOK, reply.Verdict)
		require.Equal(t, tt.known, reply.Record.Trigger == "", "%d bytes", len(tt.claimed))
	}
}

// TestTaskScriptsAtTheEndOfAText: the history shows at most 120 bytes of an error, in whole
// characters.
func TestTaskScriptsAtTheEndOfAText(t *testing.T) {
	for _, tt := range []struct{ text, shown string }{
		{strings.Repeat("y", 120), strings.Repeat("y", 120)},
		{strings.Repeat("y", 121), strings.Repeat("y", 117) + "…"},
		{"x" + strings.Repeat("ä", 60), "x" + strings.Repeat("ä", 58) + "…"},
		{strings.Repeat("ä", 61), strings.Repeat("ä", 58) + "…"},
		{"xy" + strings.Repeat("€", 40), "xy" + strings.Repeat("€", 38) + "…"},
		{"x" + strings.Repeat("€", 40), "x" + strings.Repeat("€", 38) + "…"},
		{strings.Repeat("\x80", 121), "…"},
		{"é" + strings.Repeat("\x80", 121), "…"},
	} {
		e, ctx := newTaskCluster(t), t.Context()
		_, err := e.store.Claim(ctx, "t", quietClaim)
		require.NoError(t, err)
		_, err = e.store.Finish(ctx, "t", store.TaskFinish{Token: runToken, Run: quietClaim.Run, Status: store.RunFailed, Text: tt.text})
		require.NoError(t, err)
		entries, err := e.rdb.XRange(ctx, e.store.keys.Runs("t"), "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, tt.shown, entries[0].Values["error"], "%q", tt.text)
	}
}

// TestTaskScriptsAtTheSizeOfAHistory: a short history is written anew before it takes more than
// 3800 bytes, and the record says how many it takes; a longer one, and one that somebody else has
// written into, is left as it is.
func TestTaskScriptsAtTheSizeOfAHistory(t *testing.T) {
	const size = 40 + len("41-1-x") + 3*13 + len("failed") + len("1") + len("41") + len("me") // of the run that ends
	of := func(values ...string) (size int) {
		for _, v := range values {
			size += len(v)
		}
		return size + 40
	}
	fields := func(n int) (pairs []any, values []string) {
		for i := range n {
			values = append(values, strings.Repeat("v", i+1))
			pairs = append(pairs, "f"+strconv.Itoa(i), values[i])
		}
		return pairs, values
	}
	widest, wide := fields(20)
	tooWide, _ := fields(21)
	entry := func(name string) []any { return []any{"run", name} }
	for _, tt := range []struct {
		name   string
		before [][]any
		block  string // as the record says before
		keep   store.Keep
		after  []string // the first values of the entries that stay, the oldest first
		size   string   // as the record says after that
	}{
		{"as much as may be", [][]any{entry("a"), entry("bb")}, strconv.Itoa(3800 - size), 3, []string{"a", "bb"}, "3800"},
		{"a byte more", [][]any{entry("a"), entry("bb"), entry("ccc")}, strconv.Itoa(3801 - size), 3, []string{"bb", "ccc"}, strconv.Itoa(of("bb") + of("ccc") + size)},
		{"fewer than are kept", [][]any{entry("a"), entry("bb")}, "3800", 4, []string{"a", "bb"}, strconv.Itoa(of("a") + of("bb") + size)},
		{"one is kept", [][]any{entry("a"), entry("bb")}, "3800", 1, nil, strconv.Itoa(of("bb") + size)},
		{"sixteen are kept", nil, "3800", 16, nil, strconv.Itoa(size)},
		{"seventeen are kept", [][]any{entry("a")}, "3800", 17, []string{"a"}, "3800"},
		{"the widest entry", [][]any{entry("a"), widest}, "3800", 3, []string{"a", "v"}, strconv.Itoa(of("a") + of(wide...) + size)},
		{"one that is wider", [][]any{entry("a"), entry("bb"), tooWide}, "3800", 3, []string{"bb", "v"}, strconv.Itoa(size)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, ctx := newTaskCluster(t), t.Context()
			runs := e.store.keys.Runs("t")
			for _, values := range tt.before {
				require.NoError(t, e.rdb.XAdd(ctx, &redis.XAddArgs{Stream: runs, Values: values}).Err())
			}
			_, err := e.store.Claim(ctx, "t", quietClaim)
			require.NoError(t, err)
			recordHas("block", tt.block)(t, e.cluster)
			_, err = e.store.Finish(ctx, "t", store.TaskFinish{Token: runToken, Run: quietClaim.Run, Status: store.RunFailed, Keep: tt.keep})
			require.NoError(t, err)
			entries, err := e.rdb.XRange(ctx, runs, "-", "+").Result()
			require.NoError(t, err)
			var after []string
			for _, entry := range entries {
				first, isRun := entry.Values["run"].(string)
				if !isRun {
					first, _ = entry.Values["f0"].(string)
				}
				after = append(after, first)
			}
			require.Equal(t, append(tt.after, quietClaim.Run), after)
			require.Equal(t, tt.size, e.rdb.HGet(ctx, e.store.keys.Task("t"), "block").Val())
		})
	}
}

// TestTasksOfAFullRedis: what goes on with a run, or ends it, is written though Redis is full, and
// nothing new is.
func TestTasksOfAFullRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	c, ctx := clusterOf(t, server.Options(), "edge"), t.Context()
	planTask(t, c)
	_, err := c.store.Claim(ctx, "t", quietClaim)
	require.NoError(t, err)
	server.ConfigSet(t, "maxmemory-policy", "noeviction")
	server.ConfigSet(t, "maxmemory", "1")
	retried, err := c.store.Retry(ctx, "t", store.TaskRetry{Token: runToken, Run: quietClaim.Run, Attempt: 2, Failures: 1, In: time.Second})
	require.NoError(t, err)
	require.Equal(t, store.TaskOK, retried.Verdict)
	require.Equal(t, 2, retried.Record.Attempt)
	canceled, err := c.store.Cancel(ctx, "t", store.TaskCancel{Run: quietClaim.Run, For: time.Minute})
	require.NoError(t, err)
	require.Equal(t, store.TaskOK, canceled.Verdict)
	require.Equal(t, quietClaim.Run, canceled.Record.Cancel)
	_, err = c.store.Trigger(ctx, "t", store.TaskTrigger{ID: "t1", By: "me", NotAfter: 1 << 50, For: time.Minute})
	require.ErrorContains(t, err, "OOM")
	ended, err := c.store.Finish(ctx, "t", store.TaskFinish{Token: runToken, Run: quietClaim.Run, Status: store.RunCanceled})
	require.NoError(t, err)
	require.Equal(t, store.TaskDone, ended.Verdict)
	require.Empty(t, ended.Record.Trigger)
}
