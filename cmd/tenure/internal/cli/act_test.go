package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// lost is a source that is cut off at a moment.
type lost struct {
	source.Source
	token          int64
	leader, resign error
}

func (lost) Ready(context.Context) error { return nil }

func (l lost) Leader(context.Context, string) (tenure.LeaderInfo, error) {
	return tenure.LeaderInfo{InstanceID: "a", Token: l.token}, l.leader
}

func (l lost) ResignTerm(context.Context, string, int64) error { return l.resign }

// TestNothingWasAsked: that a command may have taken effect is said only once it was asked for.
func TestNothingWasAsked(t *testing.T) {
	cut := fmt.Errorf("%w: cut off", tenure.ErrUnreachable)
	for code, from := range map[int]lost{
		exitCannot: {leader: cut}, exitUnknown: {token: 7, resign: cut}, exitNot: {leader: tenure.ErrNoLeader},
	} {
		a := &app{out: io.Discard, settings: &settings.Settings{}, source: from}
		a.flags.timeout = time.Minute
		command := a.resignCommand()
		command.SetContext(t.Context())
		err := command.RunE(command, nil)
		require.Error(t, err)
		require.Equal(t, code, codeOf(err), err.Error())
	}
	for _, do := range []func(*app) *cobra.Command{(*app).resignCommand, (*app).transferCommand} { // a lease without a token is that of another program
		a := &app{out: io.Discard, settings: &settings.Settings{}, source: lost{}}
		a.flags.timeout = time.Minute
		command := do(a)
		command.SetContext(t.Context())
		require.ErrorIs(t, command.RunE(command, nil), tenure.ErrNoLeader)
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

// TestOutcomes: what a command that acts asks for, and what it reports to people and to programs.
func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct{ command, asked, text, of, more string }{
			{"resign", `leader "" / resign "" 7`, "web-1 has resigned default", "web-1", ""},
			{"resign --role a", `leader "a" / resign "a" 7`, "web-1 has resigned a", "web-1", ""},
			{"transfer web-2 -r a", `leader "a" / transfer "a" 7 "web-2"`, "a goes to web-2", "web-2", ""},
			{"transfer", `leader "" / transfer "" 7 ""`, "default goes to the best candidate", "the best candidate", ""},
			{"task pause report", `pause report ""`, "report is paused", "report", ""},
			{"task pause report --reason disk", `pause report "disk"`, "report is paused", "report", ""},
			{"task run report", `trigger report []`, "report is triggered: one", "report", `"trigger":"one",`},
			{"task run report 1 2", `trigger report ["1" "2"]`, "report is triggered: one", "report", `"trigger":"one",`},
		} {
			from := &canned{leader: tenure.LeaderInfo{InstanceID: "web-1", Token: 7}, lasts: 1500 * time.Millisecond}
			if role, _, named := strings.Cut(strings.TrimPrefix(tt.asked, `leader "`), `"`); named && role == "a" {
				from.leader.Role = role
			}
			require.Equal(t, said{out: tt.text + "\n"}, ask(t, from, strings.Fields(tt.command)...), tt.command)
			require.Equal(t, "ready / "+tt.asked, strings.Join(from.asked, " / "), tt.command)
			words := strings.Fields(tt.command)
			name := words[0]
			if name == "task" {
				name = words[1]
			}
			answer := ask(t, from, append(words, "-o", "jsonl")...).out
			require.JSONEq(t, fmt.Sprintf(`{"command":%q,"of":%q,"state":"done","text":%q,%s"took_seconds":1.5}`, name, tt.of, tt.text, tt.more), answer, tt.command)
			require.Equal(t, len(answer)-1, strings.Index(answer, "\n"), "one line")
		}
	})
}

var errEndless = errors.New("it has no end")

// TestHowLongAnEndIsWaitedFor: for a minute, unless --wait says otherwise. What has no end then may
// yet have one; an error that comes before is one, and one of a Redis that is gone is none.
func TestHowLongAnEndIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			command string
			lasts   time.Duration // at most so long
			err     error
			code    int
			says    string
		}{
			{"transfer", time.Minute - 1, nil, exitOK, ""},
			{"transfer", time.Minute, errEndless, exitUnknown, "it is not known what became of it: no end within 1m0s (fix: tenure audit shows what became of it)"},
			{"transfer --wait 3s", 3 * time.Second, errEndless, exitUnknown, "no end within 3s"},
			{"transfer --wait 2m", 2*time.Minute - 1, nil, exitOK, ""},
			{"transfer", time.Second, tenure.ErrNotReady, exitNot, "not ready to lead"},
			{"transfer", time.Second, tenure.ErrUnreachable, exitUnknown, "redis gave no usable answer (fix: tenure audit"},
		} {
			began := time.Now()
			from := &canned{leader: tenure.LeaderInfo{Token: 7}, lasts: tt.lasts, end: tt.err}
			if errors.Is(tt.err, errEndless) {
				from.lasts = time.Hour
			}
			got := ask(t, from, strings.Fields(tt.command)...)
			require.Equal(t, tt.code, got.code, tt.command)
			require.Contains(t, got.err, tt.says)
			require.Equal(t, tt.lasts, time.Since(began))
		}
	})
}

// TestInterruptedCommand: who interrupts the wait for the end of a command is told that it goes on;
// one that asks for nothing is over.
func TestInterruptedCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for command, want := range map[string]string{
			"transfer web-1":    "interrupted: what was asked for may still be done (fix: tenure audit shows what became of it)",
			"task pause report": "interrupted: what was asked for may still be done (fix: tenure audit shows what became of it)",
			"wait leader":       "interrupted",
		} {
			t.Setenv("TENURE_CONFIG", "")
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			from := &canned{leader: tenure.LeaderInfo{Token: 7}, lasts: time.Hour}
			if command == "wait leader" {
				from.err = tenure.ErrNoLeader
			}
			root := (&app{out: io.Discard, err: io.Discard, source: from}).root()
			root.SetArgs(strings.Fields(command))
			err := root.ExecuteContext(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, want, interruption(err), command)
		}
	})
}

// TestWait: who waits is told who leads, and how many there are at least to programs alone.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &canned{leader: tenure.LeaderInfo{InstanceID: "web-1", Token: 7}}
		require.Equal(t, said{out: "web-1\n"}, ask(t, from, "wait", "leader", "-r", "a"))
		require.Equal(t, []string{`leader "a"`}, from.asked)
		require.Contains(t, ask(t, from, "wait", "leader", "--is", "web-1", "-o", "jsonl").out, `"token":7`)
		require.Equal(t, said{out: "\\x1b[2J\n"}, ask(t, &canned{leader: tenure.LeaderInfo{InstanceID: "\x1b[2J"}}, "wait", "leader"), "of another program, perhaps")
		require.Equal(t, said{}, ask(t, from, "wait", "instances", "2"))
		from.lasts = time.Second
		require.JSONEq(t, `{"command":"wait","of":"2","state":"done","text":"2 or more instances are active","took_seconds":1}`, ask(t, from, "wait", "instances", "2", "-o", "jsonl").out)
		from.lasts = 0

		for _, tt := range []struct{ command, says string }{
			{"wait leader --is web-2", "nobody that was waited for leads default within 1m0s"},
			{"wait leader --is web-2 --for 3s -r a", "nobody that was waited for leads a within 3s"},
		} {
			began := time.Now()
			require.Equal(t, said{err: "tenure: " + tt.says + "\n", code: exitNot}, ask(t, from, strings.Fields(tt.command)...))
			require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
		}
		from.lasts = time.Hour
		require.Equal(t, said{err: "tenure: fewer than 2 instances are active after 1m0s\n", code: exitNot}, ask(t, from, "wait", "instances", "2"))
		from.lasts, from.end = time.Second, tenure.ErrMisconfigured
		require.Equal(t, exitCannot, ask(t, from, "wait", "instances", "2").code)
		from.end, from.err = nil, tenure.ErrMisconfigured
		require.Equal(t, exitCannot, ask(t, from, "wait", "leader").code)
		require.Equal(t, said{err: "tenure: nobody that was waited for leads default within 1m0s\n", code: exitNot},
			ask(t, &canned{err: tenure.ErrNoLeader}, "wait", "leader"), "which is known")
		from.end, from.lasts, from.err = nil, time.Second, nil
		require.Equal(t, said{}, ask(t, from, "wait", "instances", "2"))

		interrupted, cancel := context.WithCancel(t.Context()) // which is no answer
		time.AfterFunc(time.Second, cancel)
		from = &canned{err: tenure.ErrNoLeader, lasts: time.Hour}
		for _, command := range []string{"wait leader", "wait instances 2"} {
			require.Equal(t, said{err: "tenure: context canceled\n", code: exitCannot}, askIn(interrupted, t, from, strings.Fields(command)...))
		}
	})
}

// TestWhoIsWaitedFor: what can be no instance is never there.
func TestWhoIsWaitedFor(t *testing.T) {
	from := &canned{leader: tenure.LeaderInfo{InstanceID: "web-1"}}
	got := ask(t, from, "wait", "leader", "--is", "a b", "--for", "1ms")
	require.Equal(t, exitCannot, got.code)
	require.Contains(t, got.err, `"a b" is no name of an instance`)
	require.Empty(t, from.asked)
}
