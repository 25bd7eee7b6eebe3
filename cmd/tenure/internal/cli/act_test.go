package cli

import (
	"context"
	"fmt"
	"io"
	"testing"
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
