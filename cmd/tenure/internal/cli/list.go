package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// asks is a command that asks within the timeout. If the answer is an old one, that is its error.
func (a *app) asks(do func(ctx context.Context, from source.Source, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		from, err := a.connect()
		if err != nil {
			return err
		}
		ctx, cancel := a.bound(command)
		defer cancel()
		return a.late(do(ctx, from, args))
	}
}

// late is the error of a command that has shown an old answer, unless it has failed otherwise.
func (a *app) late(err error) error {
	if err == nil && a.stale != nil {
		return a.stale
	}
	return err
}

// usable passes on an error that came without an answer. It warns of an answer that is not whole,
// and notes one that is old.
func (a *app) usable(err error) error {
	var old *source.StaleError
	switch {
	case errors.As(err, &old):
		a.stale = old
		return nil
	case errors.Is(err, tenure.ErrTruncated):
		fmt.Fprintln(a.err, "tenure: "+out.Plain(notWhole(err)))
		return nil
	}
	return err
}

// notWhole says of an answer that it is not whole, and why.
func notWhole(err error) string {
	return "the listing is not whole: " + strings.TrimPrefix(err.Error(), "tenure: ")
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

// answer writes a text for people, or what programs get in its place.
func (a *app) answer(text string, value any) error {
	if !a.format.Person() {
		return out.Value(a.out, a.format, value)
	}
	fmt.Fprintln(a.out, out.Plain(text))
	return nil
}

func (a *app) roleFlag(command *cobra.Command) *cobra.Command {
	command.Flags().StringVarP(&a.flags.role, "role", "r", "", "the role; without it the default one, also called default (TENURE_ROLE)")
	return command
}

func (a *app) role() string { return a.settings.Text("role") }

func (a *app) instancesCommand() *cobra.Command {
	states := statesValue[tenure.InstanceState]{all: allStates}
	command := &cobra.Command{
		Use: "instances [ID]", Short: "Who is there: state, last heartbeat, what it leads, load", Args: first(cobra.MaximumNArgs(1), checkInstance),
		RunE: a.asks(func(ctx context.Context, from source.Source, args []string) error {
			var all []tenure.Instance
			if len(args) == 1 {
				one, err := from.Instance(ctx, args[0])
				if err := a.usable(err); err != nil {
					return err
				}
				all = []tenure.Instance{one}
			} else {
				var err error
				all, err = from.Instances(ctx, states.wanted)
				if err := a.usable(err); err != nil {
					return err
				}
			}
			return list(a, all, "no instance", func(wide bool) out.Grid { return instancesGrid(all, wide) })
		}),
	}
	command.PreRunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && len(states.wanted) > 0 {
			return errors.New("--state chooses among all instances: an ID is one of them (fix: without the other)")
		}
		return nil
	}
	command.Flags().Var(&states, "state", "only those in a state: "+statesText(allStates))
	return command
}

// shownLed is how many roles that an instance leads a table names, so that what follows can be
// seen.
const shownLed = 3

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
		led := strings.Join(leads, ",")
		if more := len(leads) - shownLed; !wide && more > 0 {
			led = fmt.Sprintf("%s and %d more", strings.Join(leads[:shownLed], ","), more)
		}
		up := ""
		if !i.StartedAt.IsZero() && !i.LastHeartbeat.IsZero() {
			up = out.For(i.LastHeartbeat.Sub(i.StartedAt) + i.Age)
		}
		row := []string{i.ID, string(i.State), led, out.For(i.Age) + " ago", up, i.Version, i.Address}
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
		RunE: a.asks(func(ctx context.Context, from source.Source, _ []string) error {
			leader, err := from.Leader(ctx, a.role())
			if err := a.usable(err); err != nil {
				return err
			}
			if a.stale != nil && leader.InstanceID == "" {
				return nil
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
	var prefix string
	states := statesValue[string]{all: taskStates}
	command := &cobra.Command{
		Use: "tasks", Short: "The tasks: next run, last run and its result", Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return checkPrefix(prefix) },
	}
	command.RunE = a.asks(func(ctx context.Context, from source.Source, _ []string) error {
		all, err := from.Tasks(ctx, prefix)
		if err := a.usable(err); err != nil {
			return err
		}
		ofRole := command.Flags().Changed("role") // TENURE_ROLE is about elections: it hides no task
		all = slices.DeleteFunc(all, func(t tenure.TaskStatus) bool {
			return ofRole && t.Role != a.role() || len(states.wanted) > 0 && !slices.ContainsFunc(states.wanted, func(state string) bool { return isTaskIn(t, state) })
		})
		empty := "no task has run here yet"
		if prefix != "" || ofRole || len(states.wanted) > 0 {
			empty = "no such task"
		}
		now := time.Now()
		if a.format.Person() {
			now = from.Now(ctx)
		}
		return list(a, all, empty, func(wide bool) out.Grid { return tasksGrid(all, now, wide) })
	})
	command.Flags().StringVar(&prefix, "prefix", "", "only those whose names begin so")
	command.Flags().StringVarP(&a.flags.role, "role", "r", "", "only those of a role; default is the default one")
	command.Flags().Var(&states, "state", "only those in a state, in another one too perhaps: "+statesText(taskStates))
	return command
}

// shownPause is how many characters of who paused a task, and why, a table shows, so that what
// follows can be seen.
const shownPause = 48

// tasksGrid is a table of the tasks, at a time by Redis's clock.
func tasksGrid(all []tenure.TaskStatus, now time.Time, wide bool) out.Grid {
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
				result += timesInARow(t.Failures)
			}
		}
		state := taskState(t)
		if state == "paused" {
			if state = pauseText(t.Pause); !wide {
				state = clipped(state, shownPause)
			}
		}
		row := []string{t.Name, state, next, last, result}
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

// timesInARow follows what is said of a failure.
func timesInARow(failures int) string {
	if failures == 1 {
		return ""
	}
	return fmt.Sprintf(", %d times in a row", failures)
}

// taskState is the state of a task: one of taskStates.
func taskState(t tenure.TaskStatus) string {
	switch {
	case t.Err != nil:
		return "unreadable"
	case t.Paused:
		return "paused"
	case t.Running:
		return "running"
	case t.Held:
		return "held"
	case t.Trigger != "":
		return "triggered"
	case t.Overdue:
		return "overdue"
	case t.Failures > 0:
		return "failing"
	}
	return "ok"
}

// isTaskIn reports whether a task is in a state, beside others perhaps: the failing ones are those
// that status counts, also while they run again, and a run that is on when its task is paused is
// one that runs.
func isTaskIn(t tenure.TaskStatus, state string) bool {
	switch state {
	case "paused":
		return t.Paused
	case "running":
		return t.Running
	case "held":
		return t.Held
	case "triggered":
		return t.Trigger != ""
	case "overdue":
		return t.Overdue
	case "failing":
		return t.Failures > 0
	}
	return taskState(t) == state
}

// clipped is a text of at most so many characters.
func clipped(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// pauseText says who paused a task, and why.
func pauseText(p tenure.TaskPause) string {
	text := "paused"
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

func (a *app) termsCommand() *cobra.Command {
	limit := 20
	command := a.roleFlag(&cobra.Command{
		Use: "terms", Short: "Who led a role from when to when, and why not any more", Args: cobra.NoArgs,
		RunE: a.asks(func(ctx context.Context, from source.Source, _ []string) error {
			all, err := from.Terms(ctx, a.role(), limit)
			if err := a.usable(err); err != nil {
				return err
			}
			return list(a, all, none(limit, "no term of "+out.Role(a.role())+" is known: nobody has led it yet, or Redis has lost what it knew"), func(bool) out.Grid {
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
	limitFlag(command, &limit, "how many, the newest")
	return command
}

// none is what a list without entries says.
func none(limit int, text string) string {
	if limit == 0 {
		return "--limit 0 asks for none"
	}
	return text
}

func (a *app) historyCommand() *cobra.Command {
	limit := 20
	command := &cobra.Command{
		Use: "history TASK", Short: "The last runs of a task that have ended", Args: first(cobra.ExactArgs(1), checkTask),
		RunE: a.asks(func(ctx context.Context, from source.Source, args []string) error {
			all, err := from.Runs(ctx, args[0], limit)
			if err := a.usable(err); err != nil {
				return err
			}
			return list(a, all, none(limit, "no run of "+out.Plain(args[0])+" has ended yet, or there is no such task"), func(wide bool) out.Grid {
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
	limitFlag(command, &limit, "how many, the newest")
	return command
}

func (a *app) commandsCommand() *cobra.Command {
	limit := 20
	command := &cobra.Command{
		Use: "audit", Short: "What was asked of instances and tasks: by whom, and what became of it", Args: cobra.NoArgs,
		RunE: a.asks(func(ctx context.Context, from source.Source, _ []string) error {
			all, err := from.Commands(ctx, limit)
			if err := a.usable(err); err != nil {
				return err
			}
			return list(a, all, none(limit, "nothing was asked yet"), func(bool) out.Grid {
				now := time.Now()
				g := out.Grid{Head: []string{"ASKED", "BY", "WHAT", "OF", "STATE", "ERROR"}}
				for _, c := range all {
					of := cmp.Or(c.InstanceID, c.Argument)
					if c.InstanceID != "" && c.Argument != "" {
						of += " to " + c.Argument
					}
					what := c.Kind
					switch {
					case c.Kind == "resign", c.Kind == "transfer":
						what += " " + out.Role(c.Role)
					case c.Kind == "forget" && c.Argument == "":
						what, of = what+" role", out.Role(c.Role)
					}
					g.Add(out.At(c.Asked, now), c.By, what, of, c.State, c.Error)
				}
				return g
			})
		}),
	}
	limitFlag(command, &limit, "how many, the newest")
	return command
}

// lookInterval is how often wait leader asks.
const lookInterval = 250 * time.Millisecond

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	limit := 20
	command := &cobra.Command{
		Use: "events", Short: "What changed: leaders, terms, instances; -f follows", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			from, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.bound(command)
			recent, err := from.Recent(ctx, max(limit, 1))
			cancel()
			if err := a.usable(err); err != nil {
				return err
			}
			after := ""
			if len(recent) > 0 {
				after = recent[len(recent)-1].ID
			}
			recent = recent[max(len(recent)-limit, 0):]
			if !follow && !a.format.Person() {
				return a.late(list(a, recent, "", nil))
			}
			a.writeChanges(recent)
			if !follow {
				if len(recent) == 0 {
					fmt.Fprintln(a.out, none(limit, "nothing has changed yet"))
				}
				return a.late(nil)
			}
			if a.stale != nil {
				a.complain(a.stale)
			}
			from.Follow(command.Context(), after, a.writeChanges, func(problem string) {
				fmt.Fprintln(a.err, "tenure: "+out.Plain(strings.TrimPrefix(problem, "tenure: ")))
			})
			return nil
		},
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on, until interrupted; json is then jsonl")
	limitFlag(command, &limit, "how many entries to begin with, the newest")
	return command
}

// writeChanges writes a line a change.
func (a *app) writeChanges(changes []tenure.Change) {
	for _, c := range changes {
		if a.format.Person() {
			fmt.Fprintln(a.out, out.Plain(out.At(c.Time, time.Now())+"  "+changeText(c)))
			continue
		}
		if a.format == out.YAML { // each is the next element of one list
			_ = out.Value(a.out, out.YAML, []tenure.Change{c}) // the Sink ends the command
			continue
		}
		_ = out.Value(a.out, out.Lines, c)
	}
}
