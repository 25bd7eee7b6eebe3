package cli

import (
	"bytes"
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-go/tenure/cmd/tenure/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var o demo.Options
	var member, redis string
	command := &cobra.Command{
		Use: "demo", Short: "Three processes, an election, SIGKILL, a hand-over, measured; no set-up", Args: cobra.NoArgs,
		Long: `demo starts three processes over an embedded Redis, kills the leader, stops the next one
gently, and measures how long nobody leads. The status page is served on this machine meanwhile.
In a terminal keys kill, pause, drain and revive instances: from the first one on the demo does
nothing by itself. It exits with 1 if an election fails, or if two processes lead at once.`,
		RunE: func(command *cobra.Command, _ []string) error {
			if member != "" {
				return demo.Member(command.Context(), member, redis)
			}
			o.Out = a.out
			if restore, ok := a.raw(); ok {
				defer restore()
				o.Out, o.Keys = returning{a.out}, keysOf(command.Context(), os.Stdin)
			}
			if err := demo.Run(command.Context(), o); err != nil {
				return &exitError{exitNot, err.Error()}
			}
			return nil
		},
	}
	f := command.Flags()
	f.DurationVar(&o.For, "for", 0, "how long to run after the first election; 0: until interrupted")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "where the status page is served")
	f.StringVar(&member, "member", "", "run as the process of this name")
	f.StringVar(&redis, "member-redis", "", "its Redis")
	_ = f.MarkHidden("member")       // the demo itself
	_ = f.MarkHidden("member-redis") // uses them
	return command
}

// raw has the terminal hand out each key at once, if both ends of this program are one.
func (a *app) raw() (restore func(), ok bool) {
	in, out := int(os.Stdin.Fd()), int(os.Stdout.Fd())
	if !term.IsTerminal(in) || !term.IsTerminal(out) {
		return nil, false
	}
	before, err := term.MakeRaw(in)
	if err != nil {
		return nil, false
	}
	return func() { _ = term.Restore(in, before) }, true
}

// returning writes lines to a terminal that does not return the carriage by itself.
type returning struct{ io.Writer }

func (r returning) Write(text []byte) (int, error) {
	if _, err := r.Writer.Write(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// keysOf hands out what is typed until ctx is done.
func keysOf(ctx context.Context, from io.Reader) <-chan byte {
	keys := make(chan byte)
	go func() { // ends with the input, at the latest with the process
		var one [1]byte
		for {
			if _, err := from.Read(one[:]); err != nil {
				return
			}
			select {
			case keys <- one[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	return keys
}
