package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}

// outcome is what became of a command, for programs.
type outcome struct {
	Command string  `json:"command"`
	Of      string  `json:"of,omitempty"`
	State   string  `json:"state"` // done
	Text    string  `json:"text"`  // for people
	Trigger string  `json:"trigger,omitempty"`
	Took    float64 `json:"took_seconds"`
}

// unasked is an error that came before anything was asked for.
type unasked struct{ error }

// act is a command that changes something: it waits for the end, and reports it.
func (a *app) act(command *cobra.Command, do func(ctx context.Context, from source.Source, args []string) (outcome, error)) *cobra.Command {
	wait := time.Minute
	command.Flags().Var((*spanValue)(&wait), "wait", "how long to wait until the process that is asked has done it")
	command.RunE = func(command *cobra.Command, args []string) error {
		from, err := a.connect()
		if err != nil {
			return err
		}
		asked, cancel := a.bound(command)
		err = from.Ready(asked) // so that an error from here on is about the command
		cancel()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(command.Context(), wait, fmt.Errorf("no end within %v", wait))
		defer cancel()
		began := time.Now()
		result, err := do(ctx, from, args)
		var before unasked
		switch {
		case errors.As(err, &before):
			return before.error
		case err != nil && (ctx.Err() != nil || errors.Is(err, tenure.ErrUnreachable)):
			return fmt.Errorf("%w: %w (fix: tenure audit shows what became of it)", errMaybe, err)
		case err != nil:
			return err
		}
		result.Command, result.State, result.Took = command.Name(), "done", time.Since(began).Seconds()
		return a.answer(result.Text, result)
	}
	return command
}

// leader is who is asked to give the role up: nobody else is, if the lead changes meanwhile.
func (a *app) leader(ctx context.Context, from source.Source) (tenure.LeaderInfo, error) {
	leader, err := from.Leader(ctx, a.role())
	if err == nil && leader.Token <= 0 {
		err = fmt.Errorf("%w: another program holds the lease", tenure.ErrNoLeader)
	}
	if err != nil {
		return leader, unasked{err}
	}
	return leader, nil
}

func (a *app) resignCommand() *cobra.Command {
	return a.roleFlag(a.act(&cobra.Command{
		Use: "resign", Short: "Have the leader of a role give it up; another takes over in milliseconds", Args: cobra.NoArgs,
	}, func(ctx context.Context, from source.Source, _ []string) (outcome, error) {
		leader, err := a.leader(ctx, from)
		if err != nil {
			return outcome{}, err
		}
		err = from.ResignTerm(ctx, a.role(), leader.Token)
		return outcome{Of: leader.InstanceID, Text: fmt.Sprintf("%s has resigned %s", leader.InstanceID, out.Role(leader.Role))}, err
	}))
}

func (a *app) transferCommand() *cobra.Command {
	return a.roleFlag(a.act(&cobra.Command{
		Use: "transfer [ID]", Short: "Hand a role over to an instance, or to the best candidate", Args: first(cobra.MaximumNArgs(1), checkHeir),
		Long: `transfer offers the lease to the instance first: if that one does not ask for it, the
leader goes on, nothing is lost, and the exit code is 1.`,
	}, func(ctx context.Context, from source.Source, args []string) (outcome, error) {
		heir := ""
		if len(args) == 1 {
			heir = args[0]
		}
		leader, err := a.leader(ctx, from)
		if err != nil {
			return outcome{}, err
		}
		if err := from.TransferTerm(ctx, a.role(), leader.Token, heir); err != nil {
			return outcome{}, err
		}
		if heir == "" {
			heir = "the best candidate"
		}
		return outcome{Of: heir, Text: fmt.Sprintf("%s goes to %s", out.Role(a.role()), heir)}, nil
	}))
}

// instanceCommand is one that is about an instance.
func (a *app) instanceCommand(use, short, long, done string, do func(source.Source) func(context.Context, string) error) *cobra.Command {
	return a.act(&cobra.Command{Use: use + " ID", Short: short, Long: long, Args: first(cobra.ExactArgs(1), checkInstance)},
		func(ctx context.Context, from source.Source, args []string) (outcome, error) {
			return outcome{Of: args[0], Text: fmt.Sprintf(done, args[0])}, do(from)(ctx, args[0])
		})
}

// roleCommand is one that is about a role, led or not.
func (a *app) roleCommand() *cobra.Command {
	role := &cobra.Command{Use: "role", Short: "Forget a role that is gone"}
	role.AddCommand(a.act(&cobra.Command{
		Use: "forget ROLE", Short: "Remove the history of a role that no program has any more, and its tasks", Args: first(cobra.ExactArgs(1), func(name string) error { return checkAnyRole(out.NamedRole(name)) }),
		Long: `forget is for a role that a deploy has taken out, and that status shows as one that nobody
leads; ROLE is what status calls it. It removes the history of its terms, and the records of its
tasks with their histories. Nobody may have led it for a minute. If it comes back, its tokens go on.`,
	}, func(ctx context.Context, from source.Source, args []string) (outcome, error) {
		gone := out.NamedRole(args[0])
		return outcome{Of: gone, Text: out.Role(gone) + " is forgotten"}, from.ForgetRole(ctx, gone)
	}))
	return role
}

// taskCommand is one that is about a task.
func (a *app) taskCommand() *cobra.Command {
	task := &cobra.Command{Use: "task", Short: "Run, pause, resume, cancel or forget a task, and its history"}
	one := func(use, short, done string, do func(source.Source) func(context.Context, string) error) *cobra.Command {
		return a.act(&cobra.Command{Use: use + " TASK", Short: short, Args: first(cobra.ExactArgs(1), checkTask)},
			func(ctx context.Context, from source.Source, args []string) (outcome, error) {
				return outcome{Of: args[0], Text: fmt.Sprintf(done, args[0])}, do(from)(ctx, args[0])
			})
	}
	var reason string
	pause := a.act(&cobra.Command{Use: "pause TASK", Short: "Let its slots pass without a run", Args: first(cobra.ExactArgs(1), checkTask)},
		func(ctx context.Context, from source.Source, args []string) (outcome, error) {
			return outcome{Of: args[0], Text: args[0] + " is paused"}, from.Pause(ctx, args[0], reason)
		})
	pause.PreRunE = func(*cobra.Command, []string) error { return checkTexts(reason) }
	pause.Flags().StringVar(&reason, "reason", "", "why, for those who look")
	run := a.act(&cobra.Command{Use: "run TASK [ARG...]", Short: "Run it once, as soon as its leader can", Args: taskAndArgs},
		func(ctx context.Context, from source.Source, args []string) (outcome, error) {
			id, err := from.Trigger(ctx, args[0], args[1:]...)
			return outcome{Of: args[0], Trigger: id, Text: args[0] + " is triggered: " + id}, err
		})
	task.AddCommand(run, pause, a.historyCommand(),
		one("resume", "End a pause", "%s goes on", func(c source.Source) func(context.Context, string) error { return c.Resume }),
		one("cancel", "End the run that is on", "the run of %s is told to end", func(c source.Source) func(context.Context, string) error { return c.Cancel }),
		one("forget", "Remove the record of a task that no program registers any more", "%s is forgotten", func(c source.Source) func(context.Context, string) error { return c.Forget }),
	)
	return task
}

func (a *app) waitCommand() *cobra.Command {
	bound := time.Minute
	wait := &cobra.Command{Use: "wait", Short: "Wait for a leader, or for instances; exits with 1 if they do not come"}
	wait.PersistentFlags().Var((*spanValue)(&bound), "for", "how long")
	within := func(command *cobra.Command) (context.Context, context.CancelFunc) {
		return context.WithTimeout(command.Context(), bound)
	}
	var leaderIs string
	leader := a.roleFlag(&cobra.Command{
		Use: "leader", Short: "Wait until somebody leads a role, and print who", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			from, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := within(command)
			defer cancel()
			unanswered := errors.New("no answer") // why it is not known who leads; nil: it is
			for {
				asked, asks := a.question(ctx)
				leader, err := from.Leader(asked, a.role())
				asks()
				switch {
				case err == nil, errors.Is(err, tenure.ErrNoLeader):
					unanswered = nil
				case source.Passing(err):
					unanswered = err
				}
				switch {
				case err == nil && (leaderIs == "" || leader.InstanceID == leaderIs):
					return a.answer(leader.InstanceID, leader)
				case ctx.Err() != nil:
					text := fmt.Sprintf("nobody that was waited for leads %s within %v", out.Role(a.role()), bound)
					if unanswered != nil {
						text = fmt.Sprintf("it is not known who leads %s after %v: %s", out.Role(a.role()), bound, strings.TrimPrefix(unanswered.Error(), "tenure: "))
					}
					return a.waited(command.Context(), text)
				case err != nil && !source.Passing(err) && !errors.Is(err, tenure.ErrNoLeader):
					return err
				}
				select {
				case <-ctx.Done():
				case <-time.After(lookInterval):
				}
			}
		},
	})
	leader.PreRunE = func(*cobra.Command, []string) error { return checkHeir(leaderIs) }
	leader.Flags().StringVar(&leaderIs, "is", "", "wait until this instance does")
	instances := &cobra.Command{
		Use: "instances N", Short: "Wait until at least N instances are active", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			n, err := checkNumber(args[0])
			if err != nil {
				return err
			}
			from, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := within(command)
			defer cancel()
			began := time.Now()
			err = from.WaitFor(ctx, n)
			switch {
			case err != nil && ctx.Err() != nil:
				text := fmt.Sprintf("fewer than %d instances are active after %v", n, bound)
				if unanswered, ok := strings.CutPrefix(err.Error(), context.Cause(ctx).Error()+": "); ok {
					text = fmt.Sprintf("it is not known how many instances are active after %v: %s", bound, strings.TrimPrefix(unanswered, "tenure: "))
				}
				return a.waited(command.Context(), text)
			case err != nil || a.format.Person():
				return err
			}
			return out.Value(a.out, a.format, outcome{
				Command: "wait", Of: args[0], State: "done", Text: fmt.Sprintf("%d or more instances are active", n), Took: time.Since(began).Seconds(),
			})
		},
	}
	wait.AddCommand(leader, instances)
	return wait
}

// waited is the error of what did not come: 1, or the interrupt.
func (a *app) waited(ctx context.Context, text string) error {
	if ctx.Err() != nil {
		return context.Canceled
	}
	return &exitError{exitNot, text}
}
