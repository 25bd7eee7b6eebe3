package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
)

// asks is a command that asks Redis within the timeout.
func (a *app) asks(do func(ctx context.Context, control *tenure.Control, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		control, err := a.connect()
		if err != nil {
			return err
		}
		ctx, cancel := a.bound(command)
		defer cancel()
		return do(ctx, control, args)
	}
}

// truncated warns that a listing is not whole, and passes every other error on.
func (a *app) truncated(err error) error {
	if errors.Is(err, tenure.ErrTruncated) {
		fmt.Fprintln(a.err, "tenure: the listing is not whole: "+out.Plain(err.Error()))
		return nil
	}
	return err
}

// list writes a list: a table for people, and what the library marshals for programs.
func list[T any](a *app, all []T, empty string, grid func(wide bool) out.Grid) error {
	if !a.format.Person() {
		if all == nil {
			all = []T{}
		}
		return out.Value(a.out, a.format, all)
	}
	g := grid(a.format == out.Wide)
	g.Write(a.out, empty)
	return nil
}

func (a *app) roleFlag(command *cobra.Command) *cobra.Command {
	command.Flags().StringVarP(&a.flags.role, "role", "r", "", "the role; default the default role (TENURE_ROLE)")
	return command
}

func (a *app) role() string { return a.settings.Text("role") }

func (a *app) instancesCommand() *cobra.Command {
	var states []string
	command := &cobra.Command{
		Use: "instances [ID]", Short: "Who is there: state, last heartbeat, what it leads, load", Args: cobra.MaximumNArgs(1),
		RunE: a.asks(func(ctx context.Context, control *tenure.Control, args []string) error {
			var query tenure.InstanceQuery
			for _, state := range states {
				query.States = append(query.States, tenure.InstanceState(state))
			}
			var all []tenure.Instance
			if len(args) == 1 {
				one, err := control.Registry().Instance(ctx, args[0])
				if err != nil {
					return err
				}
				all = []tenure.Instance{one}
			} else {
				var err error
				if all, err = control.Registry().Instances(ctx, query); a.truncated(err) != nil {
					return err
				}
			}
			return list(a, all, "no instance", func(wide bool) out.Grid { return instancesGrid(all, wide) })
		}),
	}
	command.Flags().StringSliceVar(&states, "state", nil, "only those in a state: joining, active, draining, drifted, down, unknown")
	return command
}

func instancesGrid(all []tenure.Instance, wide bool) out.Grid {
	g := out.Grid{Head: []string{"INSTANCE", "STATE", "LEADS", "HEARTBEAT", "UP", "VERSION", "ADDRESS"}}
	if wide {
		g.Head = append(g.Head, "HOST", "WORKERS", "CPU", "MEMORY", "JOBS", "ROLES", "METADATA")
	}
	for _, i := range all {
		leads := make([]string, len(i.Leading))
		for n, role := range i.Leading {
			leads[n] = out.Role(role)
		}
		up := ""
		if !i.StartedAt.IsZero() && !i.LastHeartbeat.IsZero() {
			up = out.For(i.LastHeartbeat.Sub(i.StartedAt) + i.Age)
		}
		row := []string{i.ID, string(i.State), strings.Join(leads, ","), out.For(i.Age) + " ago", up, i.Version, i.Address}
		if wide {
			var metadata []string
			for name, value := range i.Metadata {
				metadata = append(metadata, name+"="+value)
			}
			row = append(row, i.Host, strconv.Itoa(i.WorkerCount), percent(i.Load.CPU), percent(i.Load.Memory), strconv.Itoa(i.Load.Jobs),
				strings.Join(i.Roles, ","), strings.Join(sorted(metadata), ","))
		}
		g.Add(row...)
	}
	return g
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

func (a *app) leaderCommand() *cobra.Command {
	return a.roleFlag(&cobra.Command{
		Use: "leader", Short: "Who leads a role; exits with 1 if nobody does", Args: cobra.NoArgs,
		RunE: a.asks(func(ctx context.Context, control *tenure.Control, _ []string) error {
			leader, err := control.Leader(ctx, a.role())
			if err != nil {
				return err
			}
			if leader.Token != 0 {
				if instance, err := control.Registry().Instance(ctx, leader.InstanceID); err == nil {
					leader.Address = instance.Address
				}
			}
			switch a.format {
			case out.Table:
				fmt.Fprintln(a.out, out.Plain(leader.InstanceID))
				return nil
			case out.Wide:
				g := out.Grid{Head: []string{"ROLE", "LEADER", "TOKEN", "SINCE", "LEASE", "ADDRESS"}}
				g.Add(out.Role(leader.Role), leader.InstanceID, strconv.FormatInt(leader.Token, 10), out.At(leader.Since, time.Now()),
					fmt.Sprintf("%.1fs", leader.Remaining.Seconds()), leader.Address)
				g.Write(a.out, "")
				return nil
			}
			return out.Value(a.out, a.format, leader)
		}),
	})
}

func (a *app) tasksCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tasks", Short: "The tasks: next run, last run and its result", Args: cobra.NoArgs,
		RunE: a.asks(func(ctx context.Context, control *tenure.Control, _ []string) error {
			all, err := control.Tasks().List(ctx)
			if a.truncated(err) != nil {
				return err
			}
			return list(a, all, "no task has run here yet", func(wide bool) out.Grid { return tasksGrid(all, wide) })
		}),
	}
}

func tasksGrid(all []tenure.TaskStatus, wide bool) out.Grid {
	now := time.Now()
	g := out.Grid{Head: []string{"TASK", "STATE", "NEXT", "LAST", "RESULT"}}
	if wide {
		g.Head = append(g.Head, "ROLE", "SCHEDULE", "ON", "FAILURES", "SKIPPED", "ERROR")
	}
	for _, t := range all {
		next, last, result := "", "", ""
		if !t.Next.IsZero() {
			if next = "in " + out.For(t.Next.Sub(now)); t.Next.Before(now) {
				next = out.For(now.Sub(t.Next)) + " late"
			}
		}
		if !t.Last.Started.IsZero() {
			last, result = out.At(t.Last.Started, now), string(t.Last.State)
			if !t.Last.Finished.IsZero() {
				result += " in " + out.For(t.Last.Finished.Sub(t.Last.Started))
			}
			if t.Failures > 0 {
				result += fmt.Sprintf(", %d times in a row", t.Failures)
			}
		}
		row := []string{t.Name, taskState(t), next, last, result}
		if wide {
			problem := t.Last.Error
			if t.Err != nil {
				problem = t.Err.Error()
			}
			row = append(row, out.Role(t.Role), t.Schedule, t.Last.InstanceID, strconv.Itoa(t.Failures), strconv.FormatInt(t.Skipped, 10), problem)
		}
		g.Add(row...)
	}
	return g
}

// taskState is the state of a task in a few words.
func taskState(t tenure.TaskStatus) string {
	switch {
	case t.Err != nil:
		return "unreadable"
	case t.Paused && t.Pause.By != "":
		return "paused by " + t.Pause.By
	case t.Paused:
		return "paused"
	case t.Running:
		return "running"
	case t.Trigger != "":
		return "triggered"
	case t.Overdue:
		return "overdue"
	case t.Failures > 0:
		return "failing"
	}
	return "ok"
}

func (a *app) termsCommand() *cobra.Command {
	limit := 20
	command := a.roleFlag(&cobra.Command{
		Use: "terms", Short: "Who led a role from when to when, and why not any more", Args: cobra.NoArgs,
		RunE: a.asks(func(ctx context.Context, control *tenure.Control, _ []string) error {
			all, err := control.Terms(ctx, a.role(), limit)
			if err != nil {
				return err
			}
			return list(a, all, "nobody has led "+out.Role(a.role())+" yet", func(bool) out.Grid {
				now := time.Now()
				g := out.Grid{Head: []string{"LEADER", "TOKEN", "BEGAN", "ENDED", "FOR", "GAP BEFORE", "END"}}
				for _, t := range all {
					lasted, gap := "", ""
					if !t.Began.IsZero() && !t.Ended.IsZero() {
						lasted = out.For(t.Ended.Sub(t.Began))
					}
					if t.Gap > 0 {
						gap = out.For(t.Gap)
					}
					g.Add(t.InstanceID, strconv.FormatInt(t.Token, 10), out.At(t.Began, now), out.At(t.Ended, now), lasted, gap, t.Reason)
				}
				return g
			})
		}),
	})
	command.Flags().IntVar(&limit, "limit", limit, "how many, the newest")
	return command
}

func (a *app) historyCommand() *cobra.Command {
	limit := 20
	command := &cobra.Command{
		Use: "history TASK", Short: "The last runs of a task that have ended", Args: cobra.ExactArgs(1),
		RunE: a.asks(func(ctx context.Context, control *tenure.Control, args []string) error {
			all, err := control.Tasks().Runs(ctx, args[0], limit)
			if err != nil {
				return err
			}
			return list(a, all, "no run of "+out.Plain(args[0])+" has ended yet", func(wide bool) out.Grid {
				now := time.Now()
				g := out.Grid{Head: []string{"STARTED", "TOOK", "RESULT", "ATTEMPT", "ON", "ERROR"}}
				if wide {
					g.Head = append(g.Head, "SLOT", "TOKEN", "RUN", "TRIGGER")
				}
				for _, r := range all {
					row := []string{out.At(r.Started, now), out.For(r.Finished.Sub(r.Started)), string(r.State), strconv.Itoa(r.Attempt), r.InstanceID, r.Error}
					if wide {
						row = append(row, out.At(r.Slot, now), strconv.FormatInt(r.Token, 10), r.ID, r.Trigger)
					}
					g.Add(row...)
				}
				return g
			})
		}),
	}
	command.Flags().IntVar(&limit, "limit", limit, "how many, the newest")
	return command
}

func (a *app) commandsCommand() *cobra.Command {
	limit := 20
	command := &cobra.Command{
		Use: "audit", Short: "What was asked of instances and tasks: by whom, and what became of it", Args: cobra.NoArgs,
		RunE: a.asks(func(ctx context.Context, control *tenure.Control, _ []string) error {
			all, err := control.Commands(ctx, limit)
			if err != nil {
				return err
			}
			return list(a, all, "nothing was asked yet", func(bool) out.Grid {
				now := time.Now()
				g := out.Grid{Head: []string{"ASKED", "BY", "WHAT", "OF", "STATE", "ERROR"}}
				for _, c := range all {
					of := cmp.Or(c.InstanceID, c.Argument)
					if c.InstanceID != "" && c.Argument != "" {
						of += " to " + c.Argument
					}
					what := c.Kind
					if c.Kind == "resign" || c.Kind == "transfer" {
						what += " " + out.Role(c.Role)
					}
					g.Add(out.At(c.Asked, now), c.By, what, of, c.State, c.Error)
				}
				return g
			})
		}),
	}
	command.Flags().IntVar(&limit, "limit", limit, "how many, the newest")
	return command
}

// lookInterval is how often events -f reads the log, and wait leader asks.
const lookInterval = time.Second

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	limit := 20
	command := &cobra.Command{
		Use: "events", Short: "What changed: leaders, terms, instances; -f follows", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			control, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.bound(command)
			recent, err := control.Registry().Recent(ctx, limit)
			cancel()
			if err != nil {
				return err
			}
			if !follow && !a.format.Person() {
				return list(a, recent, "", nil)
			}
			a.writeChanges(recent)
			if !follow {
				if len(recent) == 0 {
					fmt.Fprintln(a.out, "nothing has changed yet")
				}
				return nil
			}
			return a.follow(command.Context(), control, recent)
		},
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on, until interrupted; json is then jsonl")
	command.Flags().IntVar(&limit, "limit", limit, "how many entries to begin with, the newest")
	return command
}

// follow writes each change after those until ctx is done. While Redis gives no answer it says so,
// once, and goes on.
func (a *app) follow(ctx context.Context, control *tenure.Control, recent []tenure.Change) error {
	after, failing := "", false
	if len(recent) > 0 {
		after = recent[len(recent)-1].ID
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(lookInterval):
		}
		asked, cancel := context.WithTimeout(ctx, a.flags.timeout)
		changes, problem := control.Registry().Log(asked, after, 1000)
		if errors.Is(problem, tenure.ErrNotFound) {
			fmt.Fprintln(a.err, "tenure: changes may be missing here: the log is not kept back so far")
			changes, problem = control.Registry().Recent(asked, 1000)
		}
		cancel()
		if ctx.Err() != nil {
			break
		}
		switch {
		case problem != nil && !failing:
			failing = true
			fmt.Fprintln(a.err, "tenure: "+out.Plain(problem.Error()))
		case problem == nil:
			failing = false
		}
		a.writeChanges(changes)
		if len(changes) > 0 {
			after = changes[len(changes)-1].ID
		}
	}
	return nil //nolint:nilerr // the error was written; ctx has ended it
}

// writeChanges writes a line a change.
func (a *app) writeChanges(changes []tenure.Change) {
	for _, c := range changes {
		if a.format.Person() {
			fmt.Fprintln(a.out, out.Plain(out.At(c.Time, time.Now())+"  "+changeText(c)))
			continue
		}
		_ = out.Value(a.out, out.Lines, c) // as a terminal that is gone
	}
}
