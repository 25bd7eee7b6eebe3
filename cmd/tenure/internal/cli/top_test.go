package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// TestTopSaysInItsFrameThatSomethingIsMissing: what is written beside a frame moves the terminal,
// with each frame anew.
func TestTopSaysInItsFrameThatSomethingIsMissing(t *testing.T) {
	from := &canned{err: fmt.Errorf("%w: more than\n1000 tasks\x1b", tenure.ErrTruncated)}
	from.cluster.Tasks = make([]tenure.TaskStatus, 1000)
	var frame, beside bytes.Buffer
	top := &top{app: &app{err: &beside, source: from, settings: &settings.Settings{}}}
	top.look(t.Context())
	top.frame(&frame, 24)
	require.Empty(t, beside.String())
	require.True(t, strings.HasPrefix(frame.String(), "the listing is not whole: listing truncated: more than 1000 tasks\\x1b\n\n"), frame.String())
	require.LessOrEqual(t, strings.Count(frame.String(), "\n"), 24)
	require.Contains(t, frame.String(), "… and ")
	frame.Reset()
	top.err = errors.New(strings.Repeat("no answer ", 20))
	top.frame(&frame, 24)
	for line := range strings.Lines(frame.String()) {
		require.LessOrEqual(t, len(line), 81, line)
	}
}

// TestTopOrder: those come first that somebody should look at, the others in the order they have.
// Tables share the lines that there are, and say how many are left out.
func TestTopOrder(t *testing.T) {
	view := &clusterView{Namespace: "shop"}
	for i, state := range []tenure.InstanceState{"active", "draining", "joining", "odd", "drifted", "unknown", "down", "active", "down"} {
		view.all = append(view.all, tenure.Instance{ID: fmt.Sprint("i", i), State: state})
	}
	view.Tasks = []tenure.TaskStatus{{Name: "t0"}, {Name: "t1", Overdue: true}, {Name: "t2", Failures: 1}, {Name: "t3", Paused: true}, {Name: "t4", Err: tenure.ErrMisconfigured}}
	for _, tt := range []struct {
		height int
		want   string
	}{
		{0, "i6 i8 i4 i3 i5 i2 i1 i0 i7 / t1 t2 t4 t0 t3"},
		{27, "i6 i8 i4 i3 i5 i2 i1 i0 i7 / t1 t2 t4 t0 t3"}, // 5 for the head, and 6 for those of the tables
		{19, "i6 i8 i4 i3 +5 / t1 t2 t4 t0 +1"},
		{13, "i6 +8 / t1 +4"},
		{1, "i6 +8 / t1 +4"},
	} {
		var b bytes.Buffer
		(&top{app: &app{}, last: view}).frame(&b, tt.height)
		_, tables, _ := strings.Cut(b.String(), "INSTANCE")
		var got []string
		for line := range strings.Lines(tables) {
			switch first, _, _ := strings.Cut(line, " "); first {
			case "TASK":
				got = append(got, "/")
			case "…":
				got = append(got, "+"+strings.Fields(line)[2])
			default:
				if strings.IndexAny(first, "it") == 0 {
					got = append(got, first)
				}
			}
		}
		require.Equal(t, tt.want, strings.Join(got, " "), tt.height)
		if tt.height > 13 {
			require.LessOrEqual(t, strings.Count(b.String(), "\n"), tt.height)
		}
	}
	require.Equal(t, "i0", view.all[0].ID, "what was read stays as it is")
	require.Equal(t, "t0", view.Tasks[0].Name)
	view.all = view.all[:2]
	view.Tasks = make([]tenure.TaskStatus, 20)
	var b bytes.Buffer
	(&top{app: &app{}, last: view}).frame(&b, 27)
	require.Contains(t, b.String(), "… and 6 more\n", "tasks get the lines that instances do not need")
	view.all, view.Tasks = make([]tenure.Instance, 20), view.Tasks[:2]
	b.Reset()
	(&top{app: &app{}, last: view}).frame(&b, 27)
	require.Contains(t, b.String(), "… and 6 more\n", "and the other way round")
}

// TestTopOfManyRoles: on a screen that does not do for all roles those come first that nobody
// leads, and what follows the roles is there.
func TestTopOfManyRoles(t *testing.T) {
	view := &clusterView{Namespace: "shop", Problems: []string{"1 drifted"}, all: []tenure.Instance{{ID: "i0"}}, Tasks: []tenure.TaskStatus{{Name: "t0"}}}
	for i := range 40 {
		view.Roles = append(view.Roles, tenure.RoleStatus{Role: fmt.Sprintf("r%02d", i), Led: i != 37, Waiting: tenure.WaitHold, Leader: tenure.LeaderInfo{InstanceID: "i0", Token: 5}})
	}
	for height, want := range map[int]string{
		0:  "r37 NO, r00 LED, …", // of many roles, also without a screen
		50: "r37 NO, … and 6 more, all led",
		23: "r37 NO, … and 33 more, all led",
		10: "r37 NO, … and 39 more, all led",
		1:  "r37 NO, … and 39 more, all led",
	} {
		var b bytes.Buffer
		(&top{app: &app{}, last: view}).frame(&b, height)
		var got []string
		for line := range strings.Lines(b.String()) {
			words := strings.Fields(line)
			switch {
			case len(words) > 1 && len(got) < 2 && strings.HasPrefix(words[0], "r") && len(words[0]) == 3:
				got = append(got, words[0]+" "+words[1])
			case strings.HasPrefix(line, "…"):
				got = append(got[:1], strings.TrimSpace(line))
			}
		}
		require.True(t, strings.HasPrefix(strings.Join(append(got, "…"), ", "), want), "%d: %s", height, b.String())
		for _, part := range []string{"healthy: no", "problem   1 drifted", "\ni0 ", "\nt0 "} {
			require.Contains(t, b.String(), part, height)
		}
		if height >= 23 {
			require.LessOrEqual(t, strings.Count(b.String(), "\n"), height)
		}
	}
	require.Equal(t, "r00", view.Roles[0].Role, "what was read stays as it is")
	for i := range view.Roles {
		view.Roles[i].Led = false
	}
	var b bytes.Buffer
	(&top{app: &app{}, last: view}).frame(&b, 23)
	require.Regexp(t, `… and [0-9]+ more, ([0-9]+) of them NO LEADER\n`, b.String())
}

// TestTopOnce: one frame, and the exit code of status; -o wide has all columns.
func TestTopOnce(t *testing.T) {
	from := &canned{}
	from.cluster.Status.Counts = tenure.Counts{Active: 1, Total: 1}
	got := ask(t, from, "top", "--once", "--role", "x")
	require.Zero(t, got.code)
	require.Regexp(t, `(?s)healthy: yes.*\n\nno instance\n\nno task has run here yet\n$`, got.out)
	require.Equal(t, []string{`cluster ["x"]`}, from.asked)
	require.Equal(t, exitNot, ask(t, from, "top", "--once", "--min-instances", "2").code)

	from.cluster.Instances = []tenure.Instance{{ID: "web-1", State: tenure.InstanceActive}}
	from.cluster.Tasks = []tenure.TaskStatus{{Name: "report"}}
	require.Regexp(t, `(?s)ADDRESS\n.*RESULT\n`, ask(t, from, "top", "--once").out)
	require.Regexp(t, `(?s)METADATA\n.*ERROR\n`, ask(t, from, "top", "--once", "-o", "wide").out)

	from.err = &source.StaleError{Age: 14 * time.Second, Text: "no answer"}
	got = ask(t, from, "top", "--once")
	require.Equal(t, exitCannot, got.code)
	require.True(t, strings.HasPrefix(got.out, "not known: this is the answer of 14s ago: no answer\n\n"), got.out)
	require.Contains(t, got.out, "healthy: no")
	from.err = tenure.ErrUnreachable
	got = ask(t, from, "top", "--once")
	require.Equal(t, exitCannot, got.code)
	require.Empty(t, got.out)

	for _, wrong := range []string{"top -o json", "top -o yaml", "top --interval 99ms", "top --interval -1s"} {
		got = ask(t, from, strings.Fields(wrong)...)
		require.Equal(t, exitCannot, got.code, wrong)
		require.Empty(t, got.out, wrong)
	}
}

// TestTopGoesOn: without a terminal it writes a frame per interval. While nothing answers it has
// the last answer with its age; what somebody has to mend first ends it.
func TestTopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		from := &canned{}
		at := time.Now()
		looks := 0
		from.looked = func() {
			switch time.Since(at) {
			case 0:
				from.err = tenure.ErrUnreachable
			case 3 * time.Second:
				from.err = nil
			case 6 * time.Second:
				from.err = tenure.ErrMisconfigured
			case 12 * time.Second:
				cancel()
			}
			looks++
		}
		got := askIn(ctx, t, from, "top", "--interval", "3s")
		require.Equal(t, 5, looks)
		require.Equal(t, 4, strings.Count(got.out, "instances 0 active"))
		require.Equal(t, 2, strings.Count(got.out, "not known: "))
		require.Contains(t, got.out, "not known: redis gave no usable answer. What follows is 3s old\n\n")
		require.Contains(t, got.out, "not known: misconfigured. What follows is 3s old\n\n")

		ctx, cancel = context.WithCancel(t.Context()) // Redis is not there yet: that passes
		from = &canned{err: tenure.ErrUnreachable}
		from.looked = func() {
			if from.err == nil {
				cancel()
			}
			from.err = nil
		}
		began := time.Now()
		require.Equal(t, "not known: redis gave no usable answer\n\n\n", askIn(ctx, t, from, "top").out)
		require.Equal(t, 2*time.Second, time.Since(began))
	})
	got := ask(t, &canned{err: tenure.ErrMisconfigured}, "top")
	require.Equal(t, exitCannot, got.code)
	require.Empty(t, got.out)
}
