//go:build unix

package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A short run: the engine works, what it sees breaks no promise, and after the last fault
// every cluster was held to what should happen.
func TestRun_Short(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a fleet on real servers for some seconds")
	}
	redistest.NoLeaks(t)
	seed := uint64(time.Now().UnixNano())
	report, err := Run(Config{Seed: seed, For: 10 * time.Second, Stages: []string{"single"}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range report.Stages {
		report.Stages[i].Show(&text)
	}
	t.Logf("seed %d%s", seed, &text)
	stage := report.Stages[0]
	if report.Failed() || stage.Rounds == 0 || stage.Terms == 0 || stage.Accepted == 0 || stage.Runs == 0 {
		t.Error("the run has failed, or has shown nothing")
	}
	if c := stage.Calm; c.Calms != stage.Clusters || c.Members != c.Calms*fleetSize || c.Runs == 0 {
		t.Errorf("after the last fault %d clusters have shown %+v", stage.Clusters, c)
	}
}

func TestRun_UnknownStage(t *testing.T) {
	if _, err := Run(Config{Stages: []string{"single", "no such"}}); err == nil || !strings.Contains(err.Error(), `"no such"`) {
		t.Errorf("an unknown stage is answered with %v", err)
	}
}
