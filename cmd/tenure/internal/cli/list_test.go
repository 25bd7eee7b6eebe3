package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// wide are the blanks between two columns, of which TestGrid knows how many there are.
var wide = regexp.MustCompile(`  +`)

// TestTables: what people see of each listing. In a bubble it is midnight.
func TestTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		from := &canned{
			instances: []tenure.Instance{
				{
					ID: "web-1", State: tenure.InstanceActive, StartedAt: now.Add(-time.Hour), LastHeartbeat: now.Add(-40 * time.Second), Age: 10 * time.Second,
					WorkerCount: 4, Address: "web-1:80", Host: "node-1", Version: "1.2", Roles: []string{"a", "b"}, Leading: []string{"", "export"},
					Load: tenure.Load{Connections: 9, Jobs: 7, CPU: 0.25, Memory: 0.5}, Metadata: map[string]string{"zone": "eu", "az": "1", "m": "x\x1b"},
				},
				{ID: "old", State: "resting", LastHeartbeat: now, Age: time.Minute},
			},
			leader: tenure.LeaderInfo{InstanceID: "web-1\x1b", Token: 17, Since: now.Add(time.Minute), Remaining: 24100 * time.Millisecond, Address: "web-1:80"},
			tasks: []tenure.TaskStatus{
				{Name: "broken", Err: errors.New("no right"), Last: tenure.RunRecord{Error: "hidden"}},
				{Name: "cleanup", Schedule: "@every 24h", Next: now.Add(time.Hour), Running: true, Last: tenure.RunRecord{Started: now.Add(time.Second), State: tenure.RunRunning, InstanceID: "web-1"}},
				{Name: "done", Next: now.Add(-5 * time.Minute), Last: tenure.RunRecord{Started: now.Add(time.Minute), Finished: now.Add(time.Minute + 2*time.Second), State: tenure.RunSucceeded}},
				{
					Name: "failing", Role: "export", Failures: 1, Skipped: 3,
					Last: tenure.RunRecord{Started: now.Add(time.Minute), Finished: now.Add(time.Minute + time.Second), State: tenure.RunFailed, InstanceID: "web-2", Error: "no paper"},
				},
				{Name: "late", Overdue: true, Failures: 2},
				{Name: "paused", Paused: true, Running: true, Pause: tenure.TaskPause{By: "ann", Reason: "disk"}},
				{Name: "still", Paused: true},
				{Name: "waits", Trigger: "x", Overdue: true},
			},
			terms: []tenure.TermRecord{
				{InstanceID: "web-2", Token: 8, Began: now.Add(70 * time.Second)},
				{InstanceID: "web-1", Token: 7, Began: now, Ended: now.Add(time.Minute), Reason: "lapsed", Gap: 1500 * time.Millisecond},
				{Token: 6, Ended: now, Reason: "forgotten"},
			},
			runs: []tenure.RunRecord{{
				ID: "run-1", Slot: now, Started: now.Add(time.Minute), Finished: now.Add(time.Minute + 90*time.Second), State: tenure.RunFailed, Attempt: 2, Token: 7,
				InstanceID: "web-1", Error: "no paper", Trigger: "abc",
			}},
			commands: []tenure.CommandRecord{
				{Kind: "transfer", InstanceID: "web-1", Argument: "web-2", By: "ann", Asked: now, State: "failed", Error: "not ready"},
				{Kind: "resign", Role: "export", InstanceID: "web-1", By: "ann", Asked: now, State: "done"},
				{Kind: "drain", InstanceID: "web-1", By: "ann", Asked: now, State: "asked"},
				{Kind: "pause", Argument: "report", By: "bob", Asked: now, State: "done"},
			},
			changes: []tenure.Change{
				{ID: "1-0", Time: now, Type: tenure.ChangeElected, InstanceID: "web-1", Token: 7},
				{ID: "2-0", Time: now.Add(time.Second), Type: tenure.ChangeEnded, InstanceID: "web\x1b", Role: "export", Reason: "lapsed"},
			},
		}
		for _, tt := range []struct{ command, want, asked string }{
			{"instances", `INSTANCE  STATE  LEADS  HEARTBEAT  UP  VERSION  ADDRESS
web-1  active  default,export  10s ago  59m 30s  1.2  web-1:80
old  resting  -  1m 0s ago  -  -  -
`, `instances []`},
			{"instances web-7 -o wide", `INSTANCE  STATE  LEADS  HEARTBEAT  UP  VERSION  ADDRESS  HOST  WORKERS  CPU  MEMORY  JOBS  ROLES  METADATA
web-1  active  default,export  10s ago  59m 30s  1.2  web-1:80  node-1  4  25%  50%  7  a,b  az=1,m=x\x1b,zone=eu
`, "instance web-7"},
			{"leader", "web-1\\x1b\n", `leader ""`},
			{"leader --role export -o wide", `ROLE  LEADER  TOKEN  SINCE  LEASE  ADDRESS
default  web-1\x1b  17  00:01:00  24.1s  web-1:80
`, `leader "export"`},
			{"tasks", `TASK  STATE  NEXT  LAST  RESULT
broken  unreadable  -  -  -
cleanup  running  in 1h 0m  00:00:01  running
done  ok  5m 0s late  00:01:00  succeeded in 2s
failing  failing  -  00:01:00  failed in 1s
late  overdue  -  -  -
paused  paused by ann: disk  -  -  -
still  paused  -  -  -
waits  triggered  -  -  -
`, `tasks ""`},
			{"tasks -o wide", `TASK  STATE  NEXT  LAST  RESULT  ROLE  SCHEDULE  ON  FAILURES  SKIPPED  ERROR
broken  unreadable  -  -  -  default  -  -  0  0  no right
cleanup  running  in 1h 0m  00:00:01  running  default  @every 24h  web-1  0  0  -
done  ok  5m 0s late  00:01:00  succeeded in 2s  default  -  -  0  0  -
failing  failing  -  00:01:00  failed in 1s  export  -  web-2  1  3  no paper
late  overdue  -  -  -  default  -  -  2  0  -
paused  paused by ann: disk  -  -  -  default  -  -  0  0  -
still  paused  -  -  -  default  -  -  0  0  -
waits  triggered  -  -  -  default  -  -  0  0  -
`, `tasks ""`},
			{"terms --role export", `LEADER  TOKEN  BEGAN  ENDED  FOR  GAP BEFORE  END
web-2  8  00:01:10  -  -  -  -
web-1  7  00:00:00  00:01:00  1m 0s  1s  lapsed
-  6  -  00:00:00  -  -  forgotten
`, `terms "export" 20`},
			{"task history report", `STARTED  TOOK  RESULT  ATTEMPT  ON  ERROR
00:01:00  1m 30s  failed  2  web-1  no paper
`, "runs report 20"},
			{"task history report --limit 3 -o wide", `STARTED  TOOK  RESULT  ATTEMPT  ON  ERROR  SLOT  TOKEN  RUN  TRIGGER
00:01:00  1m 30s  failed  2  web-1  no paper  00:00:00  7  run-1  abc
`, "runs report 3"},
			{"audit --limit 5", `ASKED  BY  WHAT  OF  STATE  ERROR
00:00:00  ann  transfer default  web-1 to web-2  failed  not ready
00:00:00  ann  resign export  web-1  done  -
00:00:00  ann  drain  web-1  asked  -
00:00:00  bob  pause  report  done  -
`, "commands 5"},
			{"events", "00:00:00  web-1 leads default with token 7\n00:00:01  export has no leader: the term of web\\x1b lapsed: it has died or was cut off\n", "recent 20"},
			{"events --limit 1", "00:00:01  export has no leader: the term of web\\x1b lapsed: it has died or was cut off\n", "recent 1"},
			{"events --limit 0", "--limit 0 asks for none\n", "recent 1"},
		} {
			from.asked = nil
			got := ask(t, from, strings.Fields(tt.command)...)
			require.Equal(t, tt.want, wide.ReplaceAllString(got.out, "  "), tt.command)
			require.Zero(t, got.code, tt.command)
			require.Empty(t, got.err, tt.command)
			require.Equal(t, []string{tt.asked}, from.asked, tt.command)
		}
	})
}

// TestFollowedChangesAreOneDocument: what events -f writes as YAML is one list, whenever its
// elements come.
func TestFollowedChangesAreOneDocument(t *testing.T) {
	var b bytes.Buffer
	a := &app{out: &b, format: out.YAML}
	a.writeChanges([]tenure.Change{{ID: "1-0", Role: "a"}, {ID: "2-0", Role: "b"}})
	a.writeChanges([]tenure.Change{{ID: "3-0", Role: "c"}})
	var read []struct{ ID, Role string }
	require.NoError(t, yaml.Unmarshal(b.Bytes(), &read), b.String())
	require.Len(t, read, 3)
	require.Equal(t, "3-0", read[2].ID)
}

// TestWhichTasks: those of a prefix, of a role, in one of the states. One may be in several, of
// which the table shows the first: a task that fails does so while it runs again, too.
func TestWhichTasks(t *testing.T) {
	from := &canned{tasks: []tenure.TaskStatus{
		{Name: "broken", Err: tenure.ErrMisconfigured, Failures: 1}, {Name: "failing", Role: "a", Failures: 1}, {Name: "few", Held: true, Overdue: true}, {Name: "fine"}, {Name: "late", Role: "b", Overdue: true},
		{Name: "paused", Role: "a", Paused: true, Pause: tenure.TaskPause{By: "ann"}}, {Name: "runs", Running: true}, {Name: "waits", Trigger: "x"},
		{Name: "worst", Role: "c", Paused: true, Running: true, Held: true, Trigger: "x", Overdue: true, Failures: 3},
	}}
	for args, want := range map[string]string{
		"":                                "broken failing few fine late paused runs waits worst",
		"--role a":                        "failing paused",
		"--role=":                         "broken few fine runs waits", // the default one
		"--role default":                  "broken few fine runs waits",
		"--role none":                     "",
		"--state failing":                 "broken failing worst",
		"--state held":                    "few worst",
		"--state paused,running":          "paused runs worst",
		"--state ok --state unreadable":   "broken fine",
		"--state running":                 "runs worst",
		"--state triggered,overdue":       "few late waits worst",
		"--state paused --role a":         "paused",
		"--state paused --role b":         "",
		"--state paused --role b -o json": "",
	} {
		got := ask(t, from, append([]string{"tasks"}, strings.Fields(args)...)...)
		require.Zero(t, got.code, args)
		var names []string
		for line := range strings.Lines(got.out) {
			if first, rest, _ := strings.Cut(line, " "); first != "TASK" && strings.HasPrefix(rest, " ") {
				names = append(names, first)
			}
		}
		require.Equal(t, want, strings.Join(names, " "), args)
	}
	require.Equal(t, "no such task\n", ask(t, from, "tasks", "--role", "none").out)
	require.Equal(t, "[]\n", ask(t, from, "tasks", "--role", "none", "-o", "json").out)
	t.Setenv("TENURE_ROLE", "a") // which is that of a program, or of other commands
	require.Contains(t, ask(t, from, "tasks").out, "fine")

	from.asked, from.tasks = nil, nil
	require.Equal(t, said{out: "no such task\n"}, ask(t, from, "tasks", "--prefix", "inv"))
	require.Equal(t, said{out: "no task has run here yet\n"}, ask(t, from, "tasks"))
	require.Equal(t, []string{`tasks "inv"`, `tasks ""`}, from.asked)
	for command, want := range map[string]string{
		"tasks --state bogus": `"bogus" is none of unreadable, paused, running, held, triggered, overdue, failing, ok`, "tasks --prefix a/b": `"a/b" begins no name of a task`,
		"tasks --role a/b": `"a/b" is no name of a role`,
	} {
		got := ask(t, &canned{}, strings.Fields(command)...)
		require.Equal(t, exitCannot, got.code, command)
		require.Contains(t, got.err, want)
	}
}

// TestEmptyListings: people hear that there is nothing, programs get a list that is empty.
func TestEmptyListings(t *testing.T) {
	for command, want := range map[string]string{
		"instances": "no instance\n", "tasks": "no task has run here yet\n",
		"terms":           "no term of default is known: nobody has led it yet, or Redis has lost what it knew\n",
		"terms --role a":  "no term of a is known: nobody has led it yet, or Redis has lost what it knew\n",
		"terms --limit 0": "--limit 0 asks for none\n", "audit": "nothing was asked yet\n", "audit --limit 0": "--limit 0 asks for none\n",
		"events": "nothing has changed yet\n", "task history a": "no run of a has ended yet, or there is no such task\n", "task history a --limit 0": "--limit 0 asks for none\n",
	} {
		require.Equal(t, said{out: want}, ask(t, &canned{}, strings.Fields(command)...), command)
		require.Equal(t, said{out: "[]\n"}, ask(t, &canned{}, strings.Fields(command+" -o json")...), command)
		require.Equal(t, said{}, ask(t, &canned{}, strings.Fields(command+" -o jsonl")...), command)
	}
}

// TestListingsForPrograms: the elements are those that the library marshals, whatever is shown to
// people.
func TestListingsForPrograms(t *testing.T) {
	from := &canned{
		instances: []tenure.Instance{{ID: "a"}}, tasks: []tenure.TaskStatus{{Name: "a"}}, terms: []tenure.TermRecord{{Token: 7}}, leader: tenure.LeaderInfo{InstanceID: "a"},
		runs: []tenure.RunRecord{{ID: "a"}}, commands: []tenure.CommandRecord{{ID: "a"}}, changes: []tenure.Change{{ID: "1-0"}, {ID: "2-0"}},
	}
	for command, element := range map[string]any{
		"instances": from.instances[0], "instances a": from.instances[0], "tasks": from.tasks[0], "terms": from.terms[0], "leader": from.leader,
		"task history a": from.runs[0], "audit": from.commands[0], "events --limit 1": from.changes[1],
	} {
		want, err := json.Marshal(element)
		require.NoError(t, err)
		require.Equal(t, said{out: string(want) + "\n"}, ask(t, from, strings.Fields(command+" -o jsonl")...), command)
	}
}

// TestAnswersThatAreOldOrNotWhole: what there is is shown. Of one that is not whole it is said so;
// one that is old counts as none.
func TestAnswersThatAreOldOrNotWhole(t *testing.T) {
	old := &source.StaleError{Age: 14 * time.Second, Text: "no answer from redis"}
	const oldText = "tenure: this is the answer of 14s ago: no answer from redis\n  fix: look whether Redis runs there: tenure doctor\n"
	for command, shown := range map[string]string{
		"instances": "web-1", "instances web-1": "web-1", "leader": "web-1", "tasks": "report", "terms": "web-1", "task history report": "web-1", "audit": "ann", "events": "web-1 joined",
		"status": "stale   NO LEADER", "healthcheck": "desk is down", "instances -o json": "web-1", "events -o json": "web-1", "status -o json": `"healthy": false`,
	} {
		from := &canned{
			err: old, cluster: source.Cluster{Roles: []tenure.RoleStatus{{Role: "stale"}}}, instances: []tenure.Instance{{ID: "web-1", State: tenure.InstanceDown}}, leader: tenure.LeaderInfo{InstanceID: "web-1"},
			tasks: []tenure.TaskStatus{{Name: "report"}}, terms: []tenure.TermRecord{{InstanceID: "web-1"}}, runs: []tenure.RunRecord{{InstanceID: "web-1"}},
			commands: []tenure.CommandRecord{{By: "ann"}}, changes: []tenure.Change{{ID: "1-0", Type: tenure.ChangeJoined, InstanceID: "web-1"}},
		}
		got := ask(t, from, strings.Fields(command)...)
		require.Contains(t, got.out, shown, command)
		require.Equal(t, oldText, got.err, command)
		require.Equal(t, exitCannot, got.code, command)

		from.err = fmt.Errorf("%w: more than 2\x1b", tenure.ErrTruncated)
		got = ask(t, from, strings.Fields(command)...)
		require.Contains(t, got.out, shown, command)
		require.Equal(t, "tenure: the listing is not whole: listing truncated: more than 2\\x1b\n", got.err, command)

		from.err = tenure.ErrMisconfigured
		got = ask(t, from, strings.Fields(command)...)
		require.Empty(t, got.out, command)
		require.Equal(t, exitCannot, got.code, command)
	}
	nobody := ask(t, &canned{err: old}, "leader")
	require.Equal(t, said{err: oldText, code: exitCannot}, nobody, "nobody led when it was last heard of")
}

// TestFollow: it goes on behind the last change, of which there may be none, whatever is shown of
// those before; it says what is in the way, and an interrupt is its end.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		from := &canned{changes: []tenure.Change{{ID: "1-0", Time: now, Type: tenure.ChangeJoined, InstanceID: "web-1"}, {ID: "2-0", Time: now, Type: tenure.ChangeLeft, InstanceID: "web-1"}}}
		for command, want := range map[string]string{
			"events -f":                     "00:00:00  web-1 joined\n00:00:00  web-1 left\n-  web-9 joined\n",
			"events --follow --limit 0":     "-  web-9 joined\n",
			"events -f --limit 1 -o json":   `{"id":"2-0","time":"2000-01-01T00:00:00Z","type":"left","instance_id":"web-1"}` + "\n" + `{"id":"9-0","type":"joined","instance_id":"web-9"}` + "\n",
			"events -f --limit 0 -o jsonl":  `{"id":"9-0","type":"joined","instance_id":"web-9"}` + "\n",
			"events -f --limit 0 -o yaml":   "- id: 9-0\n  type: joined\n  instance_id: web-9\n",
			"events -f --limit 0 -o wide":   "-  web-9 joined\n",
			"events -f --timeout 1s -n any": "00:00:00  web-1 joined\n00:00:00  web-1 left\n-  web-9 joined\n",
		} {
			from.asked = nil
			require.Equal(t, said{out: want, err: "tenure: no \\x1b answer\n"}, ask(t, from, strings.Fields(command)...), command)
			require.Equal(t, "follow 2-0", from.asked[1], command)
		}
		from.err = &source.StaleError{Text: "no answer"}
		got := ask(t, from, "events", "-f")
		require.Zero(t, got.code)
		require.Equal(t, "tenure: this is the answer of 0s ago: no answer\n  fix: look whether Redis runs there: tenure doctor\ntenure: no \\x1b answer\n", got.err)
		from = &canned{}
		ask(t, from, "events", "-f")
		ask(t, from, "audit")
		require.Equal(t, []string{"recent 20", "follow ", "commands 20"}, from.asked)
	})
}

// TestArgumentsThatCannotBe: nobody is asked, and the exit code is 2.
func TestArgumentsThatCannotBe(t *testing.T) {
	for command, want := range map[string]string{
		"instances web-1 --state down":  "--state chooses among all instances",
		"status --min-instances -1":     "it must be a number from 0 on",
		"top --once --min-instances -1": "it must be a number from 0 on",
	} {
		from := &canned{instances: []tenure.Instance{{ID: "web-1"}}}
		got := ask(t, from, strings.Fields(command)...)
		require.Equal(t, exitCannot, got.code, command)
		require.Contains(t, got.err, want, command)
		require.Empty(t, from.asked, command)
	}
}

// TestInstanceThatLeadsMany: the rest of its row is not pushed off the screen by the names of
// roles.
func TestInstanceThatLeadsMany(t *testing.T) {
	roles := []string{"", "a", "b"}
	table := func(wide bool) string {
		g := instancesGrid([]tenure.Instance{{ID: "web-1", Leading: roles}}, wide)
		return g.Rows[0][2]
	}
	require.Equal(t, "default,a,b", table(false))
	roles = append(roles, "c", "d")
	require.Equal(t, "default,a,b and 2 more", table(false))
	require.Equal(t, "default,a,b,c,d", table(true))
}

// TestLongReasonOfAPause: nor are the other tasks by the reason of a pause.
func TestLongReasonOfAPause(t *testing.T) {
	table := func(reason string, wide bool) string {
		return tasksGrid([]tenure.TaskStatus{{Name: "rates", Paused: true, Pause: tenure.TaskPause{By: "ann", Reason: reason}}}, time.Now(), wide).Rows[0][1]
	}
	require.Equal(t, "paused by ann: the bank is down", table("the bank is down", false))
	long := "das Rechenzentrum zieht um, näheres im Kanal"
	require.Equal(t, "paused by ann: das Rechenzentrum zieht um, nähe…", table(long, false))
	require.Equal(t, "paused by ann: "+long, table(long, true))
}
