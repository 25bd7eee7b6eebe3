package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
// and is too old from the next one on. Both take it, and nothing else, out of the record and of the
// index.
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

// TestTaskScriptsAtAPausedTrigger: what waits while its task is paused is claimed when it goes on,
// and expires in the pause too.
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
