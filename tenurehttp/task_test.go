package tenurehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// weekly is a schedule of the application.
type weekly struct{}

func (weekly) Next(after time.Time) time.Time { return after.Add(7 * 24 * time.Hour) }
func (weekly) Identity() string               { return "weekly" }

// TestTask: a task says when it is due next and in which zone its schedule is, also through a
// change of the clock; a dashboard knows what its record says.
func TestTask(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		run := func(context.Context, tenure.TaskRun) error { return nil }
		for name, schedule := range map[string]tenure.Schedule{
			"berlin": tenure.Cron("CRON_TZ=Europe/Berlin  30 2 * * *"), "utc": tenure.Cron("0 3 * * *"), "often": tenure.Every(time.Minute), "own": weekly{},
			"once": tenure.At(time.Date(2000, 3, 1, 0, 0, 0, 0, time.UTC)), "never": tenure.OnDemand(),
		} {
			require.NoError(s, c.Tasks().Register(tenure.Task{Name: name, Schedule: schedule, Run: run}))
		}
		s.run(c)
		s.until(c.IsLeader)
		s.pass(time.Minute)
		w := s.serve(tenurehttp.New(c, tenurehttp.Options{}))
		d, _ := s.dashboard(tenurehttp.Options{})
		slots := func(w *web, name string) string {
			task := w.get("/api/cluster/tasks/" + name)
			var all []string
			for _, slot := range task["upcoming"].([]any) {
				at, err := time.Parse(time.RFC3339, slot.(string))
				require.NoError(s, err)
				require.True(s, strings.HasSuffix(slot.(string), "Z"))
				all = append(all, at.Format("01-02 15:04"))
			}
			return fmt.Sprint(task["zone"], ": ", strings.Join(all, ", "))
		}
		for _, from := range []*web{w, d} { // the bubble begins on 2000-01-01
			require.Equal(s, "Europe/Berlin: 01-01 01:30, 01-02 01:30, 01-03 01:30, 01-04 01:30, 01-05 01:30", slots(from, "berlin"))
			require.Equal(s, "UTC: 01-01 03:00, 01-02 03:00, 01-03 03:00, 01-04 03:00, 01-05 03:00", slots(from, "utc"))
			require.Len(s, strings.Split(slots(from, "often"), ","), 5)
			require.Equal(s, ": 03-01 00:00", slots(from, "once"))
			require.Equal(s, ": ", slots(from, "never"))
		}
		require.Len(s, strings.Split(slots(w, "own"), ","), 5)
		require.Len(s, strings.Split(slots(d, "own"), ","), 1, "the record says only the first")

		s.pass(3 * time.Minute)
		task := w.get("/api/cluster/tasks/often?limit=2")
		require.Len(s, task["runs"], 2)
		require.Equal(s, `name "often", schedule "every 1m0s"`, fields(task["status"].(map[string]any), "name", "schedule"))
		w.refused(http.StatusNotFound, "not_found", http.MethodGet, "/api/cluster/tasks/none", "")
		w.refused(http.StatusBadRequest, "parameter", http.MethodGet, "/api/cluster/tasks/often?limit=x", "")
	})
}

// TestTaskAfterACommand: who asks for something, and looks at the task, sees what came of it,
// though the last reading of its runs and slots is younger than five seconds; and the last run that
// its state names is among its runs, whoever has asked for it.
func TestTaskAfterACommand(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		require.NoError(s, c.Tasks().Register(tenure.Task{Name: "tidy", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
		s.run(c)
		s.until(c.IsLeader)
		s.pass(time.Minute)
		w := s.serve(tenurehttp.New(c, operators))
		w.token = "token-of-ann"
		d, _ := s.dashboard(tenurehttp.Options{})
		for n := range 3 {
			require.Len(s, w.get("/api/cluster/tasks/tidy")["runs"], n)
			require.Len(s, d.get("/api/cluster/tasks/tidy")["runs"], n)
			w.post("trigger", `{"task":"tidy"}`)
			s.until(func() bool {
				list, err := c.Tasks().Runs(s.Context(), "tidy", 10)
				require.NoError(s, err)
				return len(list) == n+1
			})
			require.Len(s, w.get("/api/cluster/tasks/tidy")["runs"], n+1)
			s.until(func() bool {
				task := d.get("/api/cluster/tasks/tidy")
				runs := task["runs"].([]any)
				if len(runs) > 0 {
					last := task["status"].(map[string]any)["last"].(map[string]any)
					require.Equal(s, last["ended"], runs[0].(map[string]any)["ended"])
				}
				return len(runs) == n+1
			})
		}
	})
}
