package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// TestFrameIsWhole: all that a frame has is written to it, and nothing beside it, where it would
// move the terminal.
func TestFrameIsWhole(t *testing.T) {
	var frame, beside bytes.Buffer
	top := &top{app: &app{out: &beside}, last: &clusterView{Namespace: "shop", Roles: []tenure.RoleStatus{{Role: "reports", Led: true}}}}
	top.frame(&frame, 24)
	require.Empty(t, beside.String())
	require.Regexp(t, `(?m)^reports .*\n\ninstances 0 active`, frame.String())
}

// TestFrameHasOneLeader: the instances lead what the roles above say, and not what they led when
// they sent their last heartbeat.
func TestFrameHasOneLeader(t *testing.T) {
	led := func(role, by string) tenure.RoleStatus {
		return tenure.RoleStatus{Role: role, Led: true, Leader: tenure.LeaderInfo{InstanceID: by, Token: 7}}
	}
	view := &clusterView{
		Roles: []tenure.RoleStatus{led("", "a"), led("export", "b"), {Role: "ingest"}, {Role: "mail", Led: true, Leader: tenure.LeaderInfo{InstanceID: "a"}}},
		all:   []tenure.Instance{{ID: "a", Leading: []string{"export", "ingest", "left out"}}, {ID: "b", Leading: []string{"", "export"}}, {ID: "c"}},
	}
	var frame bytes.Buffer
	(&top{app: &app{}, last: view}).frame(&frame, 0)
	require.Regexp(t, `(?m)^a +- +default,left out `, frame.String())
	require.Regexp(t, `(?m)^b +- +export `, frame.String())
	require.Equal(t, []string{"", "export"}, view.all[1].Leading, "its own word stays as it was")
}

// TestFrameGoesByRedis: by the clock of this machine, ten minutes behind that of Redis, no task
// would be due for ten minutes.
func TestFrameGoesByRedis(t *testing.T) {
	here := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	since := here.Add(5 * time.Minute)
	view := &clusterView{
		At: here, Roles: []tenure.RoleStatus{{Role: "mail"}, {Led: true, For: 5 * time.Minute, Leader: tenure.LeaderInfo{InstanceID: "a", Token: 7, Since: since}}},
		Tasks: []tenure.TaskStatus{{Name: "tick", Next: here.Add(10*time.Minute + 2*time.Second)}},
	}
	var frame bytes.Buffer
	(&top{app: &app{}, last: view}).frame(&frame, 0)
	require.Contains(t, frame.String(), `next "tick" in 2s`)
	require.Regexp(t, `(?m)^tick +ok +in 2s `, frame.String())
	view.Roles = nil
	require.Equal(t, here, view.now())
}

// TestWhyNobodyLeads: what is said of a role without a leader is sentences, and each reason has its
// own.
func TestWhyNobodyLeads(t *testing.T) {
	const restarted, forgot, asked = "Redis is 16s old: a leader may hold a lease from before its restart.",
		"Redis has restarted, failed over or lost data: a lease that it forgot may be on.", "Redis knows nothing of the role yet: leaders are asked to speak up."
	lapsed := tenure.TermRecord{Token: 7, InstanceID: "web-1", Reason: "lapsed"}
	for _, tt := range []struct {
		want   string
		uptime float64
		role   tenure.RoleStatus
	}{
		{"Last led by web-1, whose term lapsed: it has died or was cut off. " + restarted + " Election possible in 15s.", 16,
			tenure.RoleStatus{Waiting: tenure.WaitHold, LeaseTTL: 30 * time.Second, Wait: 15 * time.Second, Last: lapsed}},
		{restarted, 16, tenure.RoleStatus{Waiting: tenure.WaitEmpty, LeaseTTL: 15 * time.Second}},
		{forgot, 17, tenure.RoleStatus{Waiting: tenure.WaitHold, LeaseTTL: 15 * time.Second}},
		{forgot, 0, tenure.RoleStatus{Waiting: tenure.WaitHold, LeaseTTL: 15 * time.Second}},
		{forgot, 1, tenure.RoleStatus{Waiting: tenure.WaitHold}},
		{asked, 17, tenure.RoleStatus{Waiting: tenure.WaitEmpty, LeaseTTL: 15 * time.Second}},
		{"The lease vanished before its end, and is honoured until then.", 16, tenure.RoleStatus{Waiting: tenure.WaitVanished, LeaseTTL: 30 * time.Second}},
		{"The last leader has left it to another instance for a moment.", 0, tenure.RoleStatus{Waiting: tenure.WaitReserved}},
		{"Last led by ?. No instance is active: nobody can lead.", 0, tenure.RoleStatus{Last: tenure.TermRecord{Token: 7}}},
	} {
		view := &clusterView{}
		view.Redis.Uptime = tt.uptime
		require.Equal(t, tt.want, view.why(tt.role))
	}
	const would = "Redis would grant the lease: no candidate has asked yet, or those that there are stand back, are unhealthy or may not lead."
	require.Equal(t, would, (&clusterView{Counts: tenure.Counts{Active: 1, Total: 1}}).why(tenure.RoleStatus{}))
	elsewhere := &clusterView{Counts: tenure.Counts{Active: 1, Total: 1}, all: []tenure.Instance{{ID: "web-1", Leading: []string{"", "a"}}}}
	require.Equal(t, "web-1 says that it leads: if its lease has another key, name that (LeaderKey, TENURE_LEADER_KEY).", elsewhere.why(tenure.RoleStatus{Role: "a"}))
	require.Equal(t, would, elsewhere.why(tenure.RoleStatus{Role: "b"}))
	require.Contains(t, elsewhere.why(tenure.RoleStatus{Last: lapsed}), would, "its record may be older than the end of its lease")
	require.Equal(t, "No instance is active: those that drifted are gone, cut off, or refused by Redis, as their logs say.",
		(&clusterView{Counts: tenure.Counts{Drifted: 3, Total: 3}}).why(tenure.RoleStatus{}))
	refuses := &clusterView{Redis: source.Server{Refuses: "it is a replica"}, said: map[string]string{"": "web-1 knows less"}}
	require.Equal(t, "Last led by web-1, whose term lapsed: it has died or was cut off. Redis refuses every lease: it is a replica.",
		refuses.why(tenure.RoleStatus{Last: lapsed, Waiting: tenure.WaitHold, Wait: time.Second}), "no time ends that")
	said := &clusterView{said: map[string]string{"": "web-1, which answers, drains", "b": "web-1, which answers, reports: it is full."}}
	require.Equal(t, "web-1, which answers, drains.", said.why(tenure.RoleStatus{}))
	require.Equal(t, "web-1, which answers, reports: it is full.", said.why(tenure.RoleStatus{Role: "b"}))
	require.Equal(t, asked, said.why(tenure.RoleStatus{Waiting: tenure.WaitEmpty}), "Redis has a reason")
	uncounted := &clusterView{unread: []string{"instances: no right"}}
	require.Equal(t, would, uncounted.why(tenure.RoleStatus{}))
	require.Equal(t, "not known", uncounted.instances())
	uncounted.judge(1)
	require.Equal(t, []string{"cannot be read: instances: no right"}, uncounted.Problems)
}

// TestStatus: what people see of a cluster, if all is well and if nothing is.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		change := func(n int, kind tenure.ChangeType, id string) tenure.Change {
			return tenure.Change{ID: fmt.Sprint(n, "-0"), Time: now.Add(time.Duration(n) * time.Second), Type: kind, InstanceID: id, Role: "a", Count: 2, Reason: "resigned", Token: 5}
		}
		well := source.Cluster{
			Server: source.Server{Kind: "valkey", Version: "8.1.0", Address: "r:6379", RoundTrip: 0.0004},
			Status: tenure.ClusterStatus{Namespace: "shop", Counts: tenure.Counts{Active: 1, Total: 1}},
			Roles: []tenure.RoleStatus{
				{Led: true, Leader: tenure.LeaderInfo{InstanceID: "web-1", Token: 7, Remaining: 24140 * time.Millisecond}, LeaseTTL: 30 * time.Second, For: 192 * time.Minute},
				{Role: "reports", Led: true, Leader: tenure.LeaderInfo{InstanceID: "cron\x1b", Remaining: -time.Second}},
				{Role: "young", Led: true, Leader: tenure.LeaderInfo{InstanceID: "web-1", Token: 8, Remaining: -time.Second}},
				{Role: "z", Led: true},
			},
		}
		got := ask(t, &canned{cluster: well}, "status")
		require.Equal(t, said{out: `shop                                              valkey 8.1.0 at r:6379, 0.4 ms

default   LED   web-1   for 3h 12m   token 7   lease 24.1s of 30s
reports   LED   cron\x1b   another program holds the lease
young     LED   web-1   token 8   lease 0.0s
z         LED   ?   another program holds the lease

instances 1 active   healthy: yes
`}, got)
		require.Equal(t, exitOK, ask(t, &canned{cluster: well}, "status", "--min-instances", "1").code)
		require.Equal(t, exitNot, ask(t, &canned{cluster: well}, "status", "--min-instances", "2").code)

		ill := source.Cluster{
			Server: source.Server{API: "http://web", Age: 1.25},
			Status: tenure.ClusterStatus{
				Namespace: "shop", Counts: tenure.Counts{Joining: 1, Draining: 2, Drifted: 4, Down: 1, Unknown: 6, Total: 14}, Held: 3, Lost: 5,
			},
			Roles: []tenure.RoleStatus{{Role: "export", For: 14 * time.Second, Last: tenure.TermRecord{Token: 7, InstanceID: "web-1", Reason: "lapsed"}, Wait: 15 * time.Second}, {Role: "mail"}},
			Tasks: []tenure.TaskStatus{
				{Name: "once", Last: tenure.RunRecord{Error: "an old one"}},
				{Name: "paused", Paused: true, Next: now.Add(time.Second)},
				{Name: "late", Overdue: true, Next: now.Add(-time.Hour)},
				{Name: "later", Overdue: true, Next: now.Add(-time.Minute)},
				{Name: "second", Next: now.Add(42 * time.Second), Failures: 1},
				{Name: "third", Next: now.Add(time.Minute), Failures: 3, Last: tenure.RunRecord{Started: now.Add(-time.Hour), Finished: now.Add(-time.Minute), InstanceID: "web-2", Error: "no \x1b disk"}},
				{Name: "fourth", Failures: 2},
			},
			Recent: []tenure.Change{
				change(1, tenure.ChangeJoined, "x"), change(2, tenure.ChangeHeld, ""), change(3, tenure.ChangeEnded, ""), change(4, tenure.ChangeElected, "web-1"), change(5, "new", "web-2\x1b"), change(6, tenure.ChangeDrifted, "web-6"),
			},
			Unread: []string{"log: no right"},
		}
		for n, state := range []tenure.InstanceState{"active", "drifted", "drifted", "drifted", "drifted", "down", "resting"} {
			ill.Instances = append(ill.Instances, tenure.Instance{ID: fmt.Sprint("web-", n), State: state, Age: time.Duration(n) * time.Minute})
		}
		from := &canned{cluster: ill}
		got = ask(t, from, "status", "--role", "x")
		require.Equal(t, []string{`cluster ["x"]`}, from.asked)
		require.Equal(t, said{code: exitNot, out: `shop                                              redis, by http://web, 1.2s ago

export   NO LEADER for 14s  Last led by web-1, whose term lapsed: it has died or
         was cut off. No instance is active: those that drifted are gone, cut
         off, or refused by Redis, as their logs say. Election possible in 15s.
mail     NO LEADER  No instance is active: those that drifted are gone, cut off,
         or refused by Redis, as their logs say.

instances 0 active, 1 joining, 2 draining, 4 drifted (web-1, silent for 1m 0s; web-2, silent for 2m 0s; web-3, silent for 3m 0s; …), 1 down (web-5, silent for 5m 0s), 6 unknown   healthy: no
tasks     7, next "second" in 42s. 2 overdue: "late". 3 failing: "third", 3 times in a row, last 1m 0s ago on web-2: no \x1b disk
recent    00:00:06  web-6 drifted
          00:00:05  web-2\x1b new
          00:00:04  web-1 leads a with token 5
problem   cannot be read: log: no right
problem   4 drifted
problem   1 down
problem   3 were silent at once, those that are left are held
problem   5 lost
problem   0 active, at least 1 are wanted
`}, got)

		var view struct {
			Problems []string `json:"problems"`
			Held     int      `json:"held"`
			Lost     int      `json:"lost"`
			Silent   []struct {
				State string `json:"state"`
			} `json:"silent"`
			Recent []struct {
				ID string `json:"id"`
			} `json:"recent"`
		}
		require.NoError(t, json.Unmarshal([]byte(ask(t, from, "status", "-o", "json").out), &view))
		require.Equal(t, "export has no leader", view.Problems[1])
		require.Len(t, view.Problems, 8)
		require.Equal(t, []int{3, 5}, []int{view.Held, view.Lost})
		require.Len(t, view.Silent, 6)
		require.Len(t, view.Recent, 5)
		require.Equal(t, "6-0", view.Recent[4].ID)
	})
}

// TestTasksInALine: nothing is said of what there is none of.
func TestTasksInALine(t *testing.T) {
	now := time.Now()
	for want, task := range map[string]tenure.TaskStatus{
		"1": {}, `1. 1 overdue: "a"`: {Name: "a", Overdue: true, Next: now.Add(-time.Hour)}, `1, next "a" in 0ms`: {Name: "a", Next: now.Add(-time.Second)},
		`1. 1 failing: "a", 2 times in a row`: {Name: "a", Failures: 2, Last: tenure.RunRecord{Started: now}},
		`1. 1 unreadable: "a": misconfigured: it belongs to something else. 1 failing: "a"`: { // by its leader, which knows the rest
			Name: "a", Err: fmt.Errorf("%w: it belongs to something else", tenure.ErrMisconfigured), Next: now.Add(time.Hour), Failures: 1,
		},
	} {
		require.Equal(t, want, tasksLine([]tenure.TaskStatus{task}, now))
	}
	require.Empty(t, tasksLine(nil, now))
}

// TestHostileCluster: whoever may write to Redis, or answers as an API, moves no cursor.
func TestHostileCluster(t *testing.T) {
	const evil = "a\x1b[2J"
	from := &canned{cluster: source.Cluster{
		Server: source.Server{Kind: evil, Version: evil, Address: evil, API: evil}, Status: tenure.ClusterStatus{Namespace: evil, Counts: tenure.Counts{Down: 1, Total: 1}}, Unread: []string{evil},
		Roles: []tenure.RoleStatus{
			{Role: evil, Last: tenure.TermRecord{Token: 7, InstanceID: evil, Reason: evil}}, {Role: evil, Led: true, Leader: tenure.LeaderInfo{InstanceID: evil, Token: 7}},
		},
		Instances: []tenure.Instance{{ID: evil, State: tenure.InstanceDown, Version: evil, Leading: []string{evil}, Metadata: map[string]string{evil: evil}}},
		Tasks:     []tenure.TaskStatus{{Name: evil, Overdue: true, Failures: 1, Last: tenure.RunRecord{Error: evil, InstanceID: evil}}},
		Recent:    []tenure.Change{{Type: evil, InstanceID: evil}},
	}}
	for _, command := range []string{"status", "top --once", "top --once -o wide", "status -o json", "status -o yaml"} {
		got := ask(t, from, strings.Fields(command)...)
		require.NotContains(t, got.out+got.err, "\x1b", command)
		require.Contains(t, got.out, "[2J", command)
	}
}

// TestWords: what is said of each change, and of each end of a term.
func TestWords(t *testing.T) {
	for want, change := range map[string]tenure.Change{
		"web-1 leads default with token 7":                                      {Type: tenure.ChangeElected, InstanceID: "web-1", Token: 7},
		"a has no leader: the term of ? redis has forgotten":                    {Type: tenure.ChangeEnded, Role: "a", Reason: "forgotten"},
		"default has no leader: the term of web-1 was resigned":                 {Type: tenure.ChangeEnded, InstanceID: "web-1", Reason: "resigned"},
		"2 instances were silent at once: the rest is not removed yet":          {Type: tenure.ChangeHeld, Count: 2},
		"snapshot of 2 instances":                                               {Type: tenure.ChangeSnapshot, Instances: make([]tenure.Instance, 2)},
		"web-1 drifted":                                                         {Type: tenure.ChangeDrifted, InstanceID: "web-1"},
		"a has no leader: the term of web-1 ended:":                             {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1"},
		"a has no leader: the term of web-1 ended: otherwise":                   {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "otherwise"},
		"a has no leader: the term of web-1 lapsed: it has died or was cut off": {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "lapsed"},
		"a has no leader: the term of web-1 ended as it stopped":                {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "stopped"},
		"a has no leader: the term of web-1 ended as its work was done":         {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "done"},
		"a has no leader: the term of web-1 was handed over":                    {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "transferred"},
		"a has no leader: the term of web-1 expired: no renewal came through":   {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "expired"},
		"a has no leader: the term of web-1 was refused by redis":               {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "lost"},
		"a has no leader: the term of web-1 was given up: its work failed":      {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "failed"},
		"a has no leader: the term of web-1 was never heard of":                 {Type: tenure.ChangeEnded, Role: "a", InstanceID: "web-1", Reason: "unheard"},
	} {
		require.Equal(t, want, changeText(change))
	}
}

// TestWrap: lines are as long as may be, in characters; a word that is longer has one of its own.
func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"": {""}, "éé éé éé": {"éé éé", "éé"}, "ab cd ef": {"ab cd", "ef"}, "abcdef g": {"abcdef", "g"}, "a  b": {"a  b"}, "abcde": {"abcde"},
	} {
		require.Equal(t, want, wrap(text, 5), text)
	}
}
