//go:build unix

package fleet

import (
	"strings"
	"testing"
	"time"
)

func TestRender_TablesOfAReport(t *testing.T) {
	m := check(testRules, sortedCopy(calm())).measure()
	m.overlaps = []Overlap{{For: 3 * time.Millisecond, Fault: faultKill}}
	m.calms = []calmFigures{{leaderless: 2 * time.Millisecond, runless: time.Second, members: 3}}
	stage := StageReport{Name: "single", About: "one server", LeaseTTL: time.Second, Clusters: 1}
	stage.fill(m)
	report := Report{Seed: 7, Stages: []StageReport{stage}}
	var out strings.Builder
	Render(&out, &report)
	for _, want := range []string{
		"**2 changes of the leader, 0 failovers of Sentinel, 0 of Cluster, 2 fenced writes accepted, 1 refused, 0 violations.**", "### Seed 7", "**2 faults, 2 changes of the leader", "| single | 1s | 1 | 2 | 2 | 0 | 990 ms · 990 ms · 990 ms (1) | 5.00 ms",
		"| 1, max 3.00 ms | 2 · 1 | 2 | 0 |", "| kill the leader | 1 | 1 |", "Two leaders at once after kill the leader: 1.",
		"1 times: the longest time without a leader was 2.00 ms, without a run of a task 1000 ms; 3 processes were listed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != 13 && strings.Count(line, "|") != 5 {
			t.Errorf("a row of another width: %s", line)
		}
	}
}
