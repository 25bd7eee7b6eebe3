package tenure

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestWordsOfTheStore: what the store calls the status of a run, or of an instance, is what this
// package exports.
func TestWordsOfTheStore(t *testing.T) {
	for word, stored := range map[RunState]store.RunState{
		RunRunning: store.RunRunning, RunSucceeded: store.RunSucceeded, RunFailed: store.RunFailed, RunInterrupted: store.RunInterrupted,
		RunAbandoned: store.RunAbandoned, RunCanceled: store.RunCanceled,
	} {
		require.EqualValues(t, word, stored)
	}
	require.EqualValues(t, InstanceActive, store.WordActive)
	require.EqualValues(t, InstanceUnknown, store.WordUnknown)
}

// TestSnapshotsAreAContract: the JSON of the public snapshots, whole and empty. Programs that are
// not written in Go read it: a name here changes for nobody.
func TestSnapshotsAreAContract(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 250e6, time.FixedZone("CEST", 7200))
	failed := errors.New("no \"route\"")
	for _, c := range []struct {
		snapshot any
		want     string
	}{
		{Event{Type: EventRedisUp, InstanceID: "a"}, `{"type":"redis_up","instance_id":"a"}`},
		{
			Event{
				Type: EventTaskFailed, Time: at, InstanceID: "a", Role: "r", Token: 7, Subject: "b", Former: "c", Work: "w", Task: "t", Slot: at, Attempt: 2, Count: 3,
				Step: -time.Minute, Took: 1500 * time.Millisecond, State: RunFailed, Reason: "lost", Until: at, By: "me", Err: failed, Remote: true, Dropped: 4,
			},
			`{"type":"task_failed","time":"2026-07-01T10:00:00.25Z","instance_id":"a","role":"r","token":7,"subject":"b","former":"c","work":"w","task":"t",` +
				`"slot":"2026-07-01T10:00:00.25Z","attempt":2,"count":3,"state":"failed","reason":"lost","by":"me","until":"2026-07-01T10:00:00.25Z",` +
				`"remote":true,"dropped":4,"step_seconds":-60,"took_seconds":1.5,"error":"no \"route\""}`,
		},
		{
			ElectionStatus{},
			`{"role":"","state":"","token":0,"leader":"","leader_token":0,"waiting":"","history_witness":false,"subscription":{"active":false},"calls_in_flight":0}`,
		},
		{
			ElectionStatus{
				Role: "r", State: ElectionLeading, Token: 7, Deadline: at, Leader: "a", LeaderToken: 7, LastAnswer: at, Waiting: "hold", WaitingUntil: at,
				HistoryWitness: true, Subscription: Subscription{Active: true, Since: at, Err: failed}, CallsInFlight: 1, Err: failed,
			},
			`{"role":"r","state":"leading","token":7,"deadline":"2026-07-01T10:00:00.25Z","leader":"a","leader_token":7,"last_answer":"2026-07-01T10:00:00.25Z",` +
				`"waiting":"hold","waiting_until":"2026-07-01T10:00:00.25Z","history_witness":true,` +
				`"subscription":{"active":true,"since":"2026-07-01T10:00:00.25Z","error":"no \"route\""},"calls_in_flight":1,"error":"no \"route\""}`,
		},
		{LeaderInfo{Remaining: -1}, `{"role":"","instance_id":"","token":0,"remaining_seconds":-1}`},
		{
			LeaderInfo{Role: "r", InstanceID: "a", Token: 7, Since: at, Remaining: 1234 * time.Millisecond},
			`{"role":"r","instance_id":"a","token":7,"since":"2026-07-01T10:00:00.25Z","remaining_seconds":1.234}`,
		},
		{
			Event{Type: EventClusterChanged, InstanceID: "a", Counts: &Counts{Active: 2, Total: 2}},
			`{"type":"cluster_changed","instance_id":"a","counts":{"joining":0,"active":2,"draining":0,"drifted":0,"down":0,"unknown":0,"total":2,"malformed":0}}`,
		},
		{Change{ID: "1-0", Type: ChangeLeft}, `{"id":"1-0","type":"left"}`},
		{
			Change{ID: "1-0", Time: store.Time(1), Type: ChangeEnded, InstanceID: "a", Role: "r", Token: 7, Reason: "lapsed", Count: 2, Instances: []Instance{}},
			`{"id":"1-0","time":"1970-01-01T00:00:00.001Z","type":"ended","instance_id":"a","role":"r","token":7,"reason":"lapsed","count":2}`,
		},
		{TermRecord{Token: 7}, `{"role":"","token":7}`},
		{
			TermRecord{Role: "r", Token: 7, InstanceID: "a", Began: at, Ended: at, Reason: "lapsed", Gap: 1500 * time.Millisecond},
			`{"role":"r","token":7,"instance_id":"a","began":"2026-07-01T10:00:00.25Z","ended":"2026-07-01T10:00:00.25Z","reason":"lapsed","gap_seconds":1.5}`,
		},
		{
			ClusterStatus{
				Namespace: "shop", Counts: Counts{Active: 1, Total: 1}, Leader: LeaderInfo{InstanceID: "a", Token: 7, Remaining: time.Second, Address: "a:80"},
				Held: 1, Lost: 2, MinInstances: 3, Problems: []string{"p"},
			},
			`{"namespace":"shop","counts":{"joining":0,"active":1,"draining":0,"drifted":0,"down":0,"unknown":0,"total":1,"malformed":0},` +
				`"leader":{"role":"","instance_id":"a","token":7,"address":"a:80","remaining_seconds":1},"held":1,"lost":2,"min_instances":3,` +
				`"healthy":false,"problems":["p"]}`,
		},
		{Instance{}, `{"instance_id":"","incarnation":"","state":"","worker_count":0,"worker_id":0,"age_seconds":0}`},
		{
			Instance{
				ID: "a", Incarnation: "i", State: InstanceActive, StartedAt: at, LastHeartbeat: at, Age: time.Second, WorkerCount: 4,
				WorkerID: 2, Address: "a:80", Host: "h", Version: "1", Ports: map[string]int{"grpc": 81}, Roles: []string{"api"},
				Leading: []string{"", "r"}, Capabilities: []string{"gpu"}, Load: Load{Connections: 1, Jobs: 2, CPU: 0.5, Memory: 0.25},
				LoadLimit: Load{CPU: 1}, Metadata: map[string]string{"k": "<v>"},
			},
			`{"instance_id":"a","incarnation":"i","state":"active","started_at":"2026-07-01T10:00:00.25Z","last_heartbeat":"2026-07-01T10:00:00.25Z",` +
				`"worker_count":4,"worker_id":2,"address":"a:80","host":"h","version":"1","ports":{"grpc":81},"roles":["api"],"leading":["","r"],` +
				`"capabilities":["gpu"],"load":{"connections":1,"jobs":2,"cpu":0.5,"memory":0.25},` +
				`"load_limit":{"connections":0,"jobs":0,"cpu":1,"memory":0},"metadata":{"k":"\u003cv\u003e"},"age_seconds":1}`,
		},
		{
			Counts{Joining: 1, Active: 2, Draining: 3, Drifted: 4, Down: 5, Unknown: 6, Total: 7, Malformed: 8},
			`{"joining":1,"active":2,"draining":3,"drifted":4,"down":5,"unknown":6,"total":7,"malformed":8}`,
		},
		{RedisServer{}, `{"kind":"","version":""}`},
		{RedisServer{Kind: "valkey", Version: "8.1.1", Uptime: time.Minute}, `{"kind":"valkey","version":"8.1.1","uptime_seconds":60}`},
		{TaskStatus{Name: "t"}, `{"name":"t","known":false,"role":"","schedule":"","overdue":false,"paused":false,"running":false,"failures":0,"skipped":0,"token":0}`},
		{
			TaskStatus{
				Name: "t", Known: true, Role: "r", Schedule: "every 1h0m0s", Next: at, Overdue: true, Paused: true, Pause: TaskPause{By: "b", Reason: "r", At: at}, Running: true, LastSuccess: at, Failures: 3, Skipped: 2, Token: 7, Err: failed,
				Last: RunRecord{Task: "t", ID: "x", Slot: at, Started: at, Finished: at, State: RunFailed, Attempt: 2, Token: 7, InstanceID: "a", Error: "e"},
			},
			`{"name":"t","known":true,"role":"r","schedule":"every 1h0m0s","next":"2026-07-01T10:00:00.25Z","overdue":true,"paused":true,"pause":{"by":"b","reason":"r","at":"2026-07-01T10:00:00.25Z"},"running":true,` +
				`"last":{"task":"t","id":"x","slot":"2026-07-01T10:00:00.25Z","started":"2026-07-01T10:00:00.25Z","finished":"2026-07-01T10:00:00.25Z",` +
				`"state":"failed","attempt":2,"token":7,"instance_id":"a","error":"e"},"last_success":"2026-07-01T10:00:00.25Z","failures":3,"skipped":2,"token":7,"error":"no \"route\""}`,
		},
	} {
		rendered, err := json.Marshal(c.snapshot)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(rendered))
		again, err := json.Marshal([]any{c.snapshot})
		require.NoError(t, err)
		require.Equal(t, "["+string(rendered)+"]", string(again))
	}
}

// TestSnapshotsOfFarTimes: a time of Redis that JSON has no text for spoils no listing.
func TestSnapshotsOfFarTimes(t *testing.T) {
	for _, far := range []time.Time{time.UnixMilli(1 << 52), time.UnixMilli(-1 << 52)} {
		for _, snapshot := range []any{
			[]TaskStatus{{Next: far, Last: RunRecord{Slot: far, Started: far, Finished: far}}}, []Instance{{StartedAt: far, LastHeartbeat: far}},
			LeaderInfo{Since: far}, TermRecord{Began: far, Ended: far}, Event{Time: far, Slot: far, Until: far}, ElectionStatus{Deadline: far, LastAnswer: far, WaitingUntil: far, Subscription: Subscription{Since: far}},
		} {
			_, err := json.Marshal(snapshot)
			require.NoError(t, err)
		}
	}
}
