package cli

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// lost is a source that is cut off at a moment.
type lost struct {
	source.Source
	leader, resign error
}

func (lost) Ready(context.Context) error { return nil }

func (l lost) Leader(context.Context, string) (tenure.LeaderInfo, error) {
	return tenure.LeaderInfo{InstanceID: "a"}, l.leader
}

func (l lost) Resign(context.Context, string) error { return l.resign }

// TestNothingWasAsked: that a command may have taken effect is said only once it was asked for.
func TestNothingWasAsked(t *testing.T) {
	cut := fmt.Errorf("%w: cut off", tenure.ErrUnreachable)
	for code, from := range map[int]lost{exitCannot: {leader: cut}, exitUnknown: {resign: cut}} {
		a := &app{out: io.Discard, settings: &settings.Settings{}, source: from}
		a.flags.timeout = time.Minute
		command := a.resignCommand()
		command.SetContext(t.Context())
		err := command.RunE(command, nil)
		require.Error(t, err)
		require.Equal(t, code, codeOf(err), err.Error())
	}
}

// hanging is a source of which the second question, and those behind it, may have no answer.
type hanging struct {
	source.Source
	asked     int
	comesBack bool
}

func (h *hanging) Leader(ctx context.Context, _ string) (tenure.LeaderInfo, error) {
	switch h.asked++; {
	case h.asked == 1:
		return tenure.LeaderInfo{}, tenure.ErrNoLeader
	case h.asked == 2 || !h.comesBack:
		<-ctx.Done()
		return tenure.LeaderInfo{}, context.Cause(ctx)
	}
	return tenure.LeaderInfo{InstanceID: "a"}, nil
}

// TestWaitForALeaderBesideAQuestionThatHangs: others are asked behind it, and who has no answer any
// more does not say that nobody leads.
func TestWaitForALeaderBesideAQuestionThatHangs(t *testing.T) {
	for _, comesBack := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := &app{out: io.Discard, settings: &settings.Settings{}, source: &hanging{comesBack: comesBack}}
			a.flags.timeout = 3 * time.Second
			command, _, err := a.waitCommand().Find([]string{"leader"})
			require.NoError(t, err)
			command.SetContext(t.Context())
			err = command.RunE(command, nil)
			if comesBack {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "it is not known who leads")
			require.Equal(t, exitNot, codeOf(err))
		})
	}
}
