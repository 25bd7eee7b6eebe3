//go:build unix

package campaign

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/redistest"
)

// A short campaign: the engine works, and what it sees breaks no promise.
func TestRun_ShortCampaign(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a campaign on real servers for some seconds")
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
		t.Error("the campaign has failed, or has shown nothing")
	}
}

func TestRun_UnknownStage(t *testing.T) {
	if _, err := Run(Config{Stages: []string{"single", "no such"}}); err == nil || !strings.Contains(err.Error(), `"no such"`) {
		t.Errorf("an unknown stage is answered with %v", err)
	}
}
