package redisstore

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestTriggerScripts: one trigger waits at a time, is claimed once and expires; one that is asked
// for twice is one; the run and its reruns have its arguments, any other has none.
func TestTriggerScripts(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		read, err := db.Record(ctx, "t")
		require.NoError(t, err)
		trigger := func(id string, change func(*store.TaskTrigger)) store.TaskReply {
			t.Helper()
			q := store.TaskTrigger{ID: id, Args: `["` + id + `"]`, By: "me", NotAfter: read.Now + 60_000, For: time.Hour, Lease: "tasks:leader"}
			if change != nil {
				change(&q)
			}
			reply, err := db.Trigger(ctx, "t", q)
			require.NoError(t, err)
			return reply
		}
		claim := func(run, kind, expect string) store.TaskReply {
			t.Helper()
			reply, err := db.Claim(ctx, "t", store.TaskClaim{Token: 41, Run: run, Kind: kind, Expect: expect, Instance: "a", Attempt: 1})
			require.NoError(t, err)
			return reply
		}
		finish := func(run string) {
			t.Helper()
			_, err := db.Finish(ctx, "t", store.TaskFinish{Token: 41, Run: run, Status: store.RunSucceeded})
			require.NoError(t, err)
		}
		waiting := func() []string {
			t.Helper()
			reply, err := db.RecordAndTriggers(ctx, "t", "")
			require.NoError(t, err)
			return reply.Triggers
		}
		require.Equal(t, store.TaskAbsent, trigger("t1", nil).Verdict)
		require.Equal(t, store.TaskStale, trigger("t1", func(q *store.TaskTrigger) { q.NotAfter, q.Create = read.Now-60_000, true }).Verdict)
		require.Empty(t, waiting())
		reply := trigger("t1", func(q *store.TaskTrigger) { q.Create = true })
		require.Equal(t, store.TaskOK, reply.Verdict)
		require.Equal(t, "t1", reply.Record.TriggerID())
		require.Equal(t, "t1 "+strconv.FormatInt(reply.Now+3_600_000, 10)+" me", reply.Record.Trigger)
		require.Equal(t, []string{"t"}, waiting())
		names, _, err := db.Names(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"t"}, names)
		require.Equal(t, store.TaskOK, trigger("t1", func(q *store.TaskTrigger) { q.NotAfter = 1 }).Verdict, "a lost reply")
		require.Equal(t, store.TaskWaiting, trigger("t2", nil).Verdict)

		_, err = db.Open(ctx, "t", store.TaskOpen{Token: 41, Lease: "tasks:leader"})
		require.NoError(t, err)
		require.Equal(t, store.TaskMoved, claim("r0", store.ClaimTrigger, "t1").Verdict)
		require.Equal(t, store.TaskMoved, claim("r0", store.ClaimTrigger, "").Verdict)
		first := claim("r1", store.ClaimTrigger, reply.Record.Trigger)
		require.Equal(t, store.TaskClaimed, first.Verdict)
		require.Equal(t, store.TaskRecord{Trigger: "", RunTrigger: "t1", Args: `["t1"]`},
			store.TaskRecord{Trigger: first.Record.Trigger, RunTrigger: first.Record.RunTrigger, Args: first.Record.Args})
		require.Equal(t, store.TaskClaimed, claim("r1", store.ClaimTrigger, reply.Record.Trigger).Verdict, "a lost reply")
		require.Empty(t, waiting())
		require.Equal(t, store.TaskOK, trigger("t1", nil).Verdict, "it came twice")
		require.Empty(t, waiting())
		again := claim("r2", store.ClaimAgain, "r1")
		require.Equal(t, `["t1"]`, again.Record.Args)
		finish("r2")
		require.Equal(t, store.TaskOK, trigger("t1", nil).Verdict)
		require.Empty(t, waiting())

		second := trigger("t2", nil).Record.Trigger
		_, err = db.Pause(ctx, "t", true, "", "")
		require.NoError(t, err)
		require.Equal(t, store.TaskPaused, claim("r3", store.ClaimTrigger, second).Verdict)
		_, err = db.Pause(ctx, "t", false, "1", "")
		require.NoError(t, err)
		require.Equal(t, store.TaskClaimed, claim("r3", store.ClaimTrigger, second).Verdict)
		finish("r3")
		extra, err := db.Record(ctx, "t")
		require.NoError(t, err)
		extra = claim("r4", store.ClaimExtra, strconv.FormatInt(extra.Record.Finished, 10))
		require.Equal(t, store.TaskClaimed, extra.Verdict)
		require.Empty(t, extra.Record.RunTrigger+extra.Record.Args)
		finish("r4")
		runs, err := db.Runs(ctx, "t", 10)
		require.NoError(t, err)
		var triggers []string
		for _, run := range runs {
			triggers = append(triggers, run.Run+" "+run.Trigger)
		}
		require.Equal(t, []string{"r4 ", "r3 t2", "r2 t1", "r1 t1"}, triggers)

		for n := range store.KeptTriggers + 1 { // but for the first all are known
			id := "u" + strconv.Itoa(n)
			waits := trigger(id, func(q *store.TaskTrigger) { q.Runs = int64(2 + n) }).Record.Trigger
			require.Equal(t, store.TaskClaimed, claim("ru"+id, store.ClaimTrigger, waits).Verdict)
			finish("ru" + id)
		}
		require.Equal(t, store.TaskOK, trigger("u1", nil).Verdict)
		require.Empty(t, waiting())
		require.Equal(t, store.TaskMoved, trigger("u0", func(q *store.TaskTrigger) { q.Runs = 2 }).Verdict, "read before it ran, it may have")
		require.Equal(t, store.TaskOK, trigger("u1", func(q *store.TaskTrigger) { q.Runs = 2 }).Verdict)
		require.Empty(t, waiting())
		require.Equal(t, store.TaskOK, trigger("u0", func(q *store.TaskTrigger) { q.Runs = 3 }).Verdict, "read after it ran, it is another one")
		require.Equal(t, []string{"t"}, waiting())
	})
}

// TestTriggerThatIsRefused: a trigger that Redis refuses in part is none.
func TestTriggerThatIsRefused(t *testing.T) {
	e := newTaskCluster(t)
	for _, key := range []string{e.store.keys.Tasks(), e.store.keys.Triggers()} {
		require.NoError(t, e.rdb.Del(t.Context(), e.store.keys.Tasks(), e.store.keys.Triggers()).Err())
		require.NoError(t, e.rdb.Set(t.Context(), key, "a text", 0).Err())
		_, err := e.store.Trigger(t.Context(), "t", store.TaskTrigger{ID: "t1", Args: "[]", By: "me", NotAfter: edgeNow + 60_000, For: 5 * time.Second})
		require.ErrorIs(t, err, store.ErrMisconfigured)
		read, err := e.store.Record(t.Context(), "t")
		require.NoError(t, err)
		require.Empty(t, read.Record.Trigger, key)
	}
}

// TestForgetsTheNameOfARefusedTrigger: a trigger whose record was refused leaves its name in the
// indexes, from which Forget removes it.
func TestForgetsTheNameOfARefusedTrigger(t *testing.T) {
	e, ctx := newTaskCluster(t), t.Context()
	require.NoError(t, e.rdb.SAdd(ctx, e.store.keys.Tasks(), "left").Err())
	require.NoError(t, e.rdb.ZAdd(ctx, e.store.keys.Triggers(), redis.Z{Score: float64(edgeNow + 90_000), Member: "left"}).Err())
	reply, err := e.store.Forget(ctx, "left", store.TaskForget{Lease: "edge:leader", Led: time.Minute})
	require.NoError(t, err)
	require.Equal(t, store.TaskAbsent, reply.Verdict)
	names, _, err := e.store.Names(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"t"}, names)
	require.Empty(t, e.index())
}

// TestTriggerExpires: who claims it too late takes it away.
func TestTriggerExpires(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		opened, err := db.Open(ctx, "t", store.TaskOpen{Token: 41})
		require.NoError(t, err)
		waits, err := db.Trigger(ctx, "t", store.TaskTrigger{ID: "t1", By: "me", NotAfter: opened.Now + 60_000, For: -time.Hour})
		require.NoError(t, err)
		reply, err := db.Claim(ctx, "t", store.TaskClaim{Token: 41, Run: "r1", Kind: store.ClaimTrigger, Expect: waits.Record.Trigger, Attempt: 1})
		require.NoError(t, err)
		require.Equal(t, store.TaskExpired, reply.Verdict)
		require.Empty(t, reply.Record.Trigger+reply.Record.Run)
		look, err := db.RecordAndTriggers(ctx, "t", "")
		require.NoError(t, err)
		require.Empty(t, look.Triggers)
	})
}

// TestTriggerIndexIsUntrusted: what is no name of a task is not listed.
func TestTriggerIndexIsUntrusted(t *testing.T) {
	onTaskRedis(t, func(t *testing.T, db *Store) {
		ctx := t.Context()
		for i, name := range []string{"a:b", "", "t2", "\xff", "t 1"} {
			require.NoError(t, db.rdb.ZAdd(ctx, db.keys.Triggers(), redis.Z{Score: 1e15 + float64(i), Member: name}).Err())
		}
		reply, err := db.RecordAndTriggers(ctx, "t", "")
		require.NoError(t, err)
		require.Equal(t, []string{"t2", "t", "1"}, reply.Triggers)
		require.False(t, reply.MoreTriggers)
		junk := make([]redis.Z, store.MaxTriggers)
		for i := range junk {
			junk[i] = redis.Z{Score: 9e14, Member: "a:b" + strconv.Itoa(i)}
		}
		require.NoError(t, db.rdb.ZAdd(ctx, db.keys.Triggers(), junk...).Err())
		reply, err = db.RecordAndTriggers(ctx, "t", "")
		require.NoError(t, err)
		require.Empty(t, reply.Triggers)
		require.True(t, reply.MoreTriggers, "behind names that are none")
	})
}

// TestTriggersOfNamedTasks: if more triggers wait than a reply lists, it says so, and those of
// tasks that are named are found all the same.
func TestTriggersOfNamedTasks(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		opened, err := db.Open(ctx, "t", store.TaskOpen{Token: 41})
		require.NoError(t, err)
		for i := range store.MaxTriggers + 1 {
			name := "n" + strconv.Itoa(i)
			if i == store.MaxTriggers {
				name = "z" // those of one moment are ordered by name
			}
			_, err := db.Trigger(ctx, name, store.TaskTrigger{ID: "t1", By: "me", NotAfter: opened.Now + 600_000, For: time.Hour, Create: true})
			require.NoError(t, err)
		}
		reply, err := db.RecordAndTriggers(ctx, "t", "")
		require.NoError(t, err)
		require.True(t, reply.MoreTriggers)
		require.Len(t, reply.Triggers, store.MaxTriggers)
		require.False(t, slices.Contains(reply.Triggers, "z"))
		reply, err = db.RecordAndTriggers(ctx, "t", "t z none n0")
		require.NoError(t, err)
		require.Equal(t, int64(41), reply.Record.Token)
		require.ElementsMatch(t, []string{"n0", "z"}, reply.Triggers)
		require.False(t, reply.MoreTriggers)
		reply, err = db.RecordAndTriggers(ctx, "t", "none")
		require.NoError(t, err)
		require.Empty(t, reply.Triggers)
	})
}

// TestTriggerHint: it goes to the leader of the lease, and to no channel that a lease of tenure
// cannot have.
func TestTriggerHint(t *testing.T) {
	onTaskRedis(t, func(t *testing.T, db *Store) {
		ctx := t.Context()
		listens := db.rdb.Subscribe(ctx, "tasks:leader:r:events", "elsewhere {x}:events")
		defer listens.Close()
		for range 2 {
			_, err := listens.Receive(ctx)
			require.NoError(t, err)
		}
		for i, lease := range []string{"elsewhere {x}", "tasks:leader:r"} {
			_, err := db.Trigger(ctx, "t"+strconv.Itoa(i), store.TaskTrigger{ID: "t1", By: "me", NotAfter: 1 << 50, For: time.Hour, Create: true, Lease: lease})
			require.NoError(t, err)
		}
		message, err := listens.ReceiveMessage(ctx)
		require.NoError(t, err)
		hint, ok := store.ParseHint(message.Payload)
		require.True(t, ok)
		require.Equal(t, store.Hint{Type: store.HintTriggered, Task: "t1"}, hint)
	})
}

// TestCancelIsInTheIndex: a leader that has missed the hint finds the run that is to end. What is
// in the index for longer stays.
func TestCancelIsInTheIndex(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		_, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
		require.NoError(t, err)
		reply, err := db.Cancel(ctx, "none", store.TaskCancel{Run: "r1", For: time.Hour})
		require.NoError(t, err)
		require.Equal(t, store.TaskAbsent, reply.Verdict)
		_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r1", Kind: store.ClaimExtra, Expect: "0", Instance: "a", Attempt: 1})
		require.NoError(t, err)
		for range 2 {
			reply, err = db.Cancel(ctx, "t", store.TaskCancel{Run: "r1", For: time.Hour})
			require.NoError(t, err)
			require.Equal(t, store.TaskOK, reply.Verdict)
			require.Equal(t, "r1", reply.Record.Cancel)
		}
		reply, err = db.RecordAndTriggers(ctx, "none", "")
		require.NoError(t, err)
		require.Equal(t, []string{"t"}, reply.Triggers)
		reply, err = db.Cancel(ctx, "t", store.TaskCancel{Run: "r2", For: time.Hour})
		require.NoError(t, err)
		require.Equal(t, store.TaskMoved, reply.Verdict)
	})
}
