package demo

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestQuitWaitsForNoCommand: q ends what a member was asked for and does not answer, as one that is
// paused does not.
func TestQuitWaitsForNoCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails at once if all wait for each other
		keys, ended := make(chan byte, 2), make(chan error, 1)
		s := &show{
			out: io.Discard, keys: keys, events: make(chan report), control: silence{}, leader: "alpha", elections: 1,
			members: map[string]*member{"alpha": {id: "alpha", input: unread{}, process: &exec.Cmd{Process: new(os.Process)}}}, drained: make(map[string]bool),
		}
		keys <- 'd'
		keys <- 'q'
		go func() { ended <- s.goOn(t.Context()) }()
		require.NoError(t, <-ended)
		require.True(t, s.drained["alpha"])
	})
}

// silence is a control whose commands nobody takes.
type silence struct{ control }

func (silence) Drain(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silence) Undrain(context.Context, string) error { return nil }

// unread is the input of a member that reads nothing.
type unread struct{ io.Writer }

func (unread) Close() error { return nil }

// TestFirstKeySteers: from the first key that does something on the demo does nothing by itself.
func TestFirstKeySteers(t *testing.T) {
	for _, key := range []byte("123r") {
		s := &show{out: io.Discard, members: map[string]*member{}}
		require.True(t, s.press(t.Context(), key))
		require.True(t, s.steered, "%c", key)
	}
	s := &show{out: io.Discard}
	require.True(t, s.press(t.Context(), 'x'))
	require.False(t, s.steered, "help")
}

// TestReviveEndsAllThatWasDone: who is paused while it drains goes on, and may lead again.
func TestReviveEndsAllThatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &show{
			out: io.Discard, control: silence{}, members: map[string]*member{"alpha": {id: "alpha", process: &exec.Cmd{Process: new(os.Process)}}},
			frozen: map[string]bool{"alpha": true}, drained: map[string]bool{"alpha": true},
		}
		require.True(t, s.press(t.Context(), 'r'))
		require.Empty(t, s.frozen)
		require.Empty(t, s.drained)
	})
}

// TestLeaderThatDiesByItself leads no more: the demo does to nobody else what is for the leader.
func TestLeaderThatDiesByItself(t *testing.T) {
	s := &show{out: io.Discard, ended: true, leader: "alpha", members: map[string]*member{"alpha": {}, "beta": {}}}
	s.take(report{Member: "beta", Kind: "gone"})
	require.Equal(t, "alpha", s.leader)
	s.take(report{Member: "alpha", Kind: "gone"})
	require.Empty(t, s.leader)
}

// TestSummaryTellsAPauseFromACrash: what is measured of one is not said of the other.
func TestSummaryTellsAPauseFromACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &show{out: &out, events: make(chan report)}
		for _, was := range []struct {
			by   string
			took time.Duration
		}{{"kill", 2 * time.Second}, {"pause", 3 * time.Second}} {
			s.waitFor, s.waitFrom = was.by, time.Now()
			time.Sleep(was.took)
			s.take(report{Member: "alpha", Kind: "acquired"})
		}
		require.NoError(t, s.finish())
		require.Contains(t, out.String(), "summary: 2 elections, take-over after SIGKILL 2s, after SIGSTOP 3s, graceful hand-over not shown,")
	})
}
