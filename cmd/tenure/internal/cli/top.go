package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
)

// What a terminal is told. The screen of before comes back at the end.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // another screen, no cursor, lines are cut at the edge
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	restOfLine  = "\x1b[K"
	restBelow   = "\x1b[J"
)

func (a *app) topCommand() *cobra.Command {
	interval, least, once := 2*time.Second, 1, false
	command := &cobra.Command{
		Use: "top", Short: "What status shows, instances and tasks, live; q ends it", Args: cobra.NoArgs,
		Long: `top shows what tenure status shows, and all instances and tasks, again and again: those that
somebody should look at first. q and Ctrl-C end it. Without a terminal, and with --once, it writes
plain text, a frame per interval.`,
		RunE: func(command *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return fmt.Errorf("--interval %v: it must be at least 100ms", interval)
			}
			if !a.format.Person() {
				return errors.New("top is for people: -o must be table or wide (fix: tenure status -o json)")
			}
			t := &top{app: a, least: least}
			if once {
				return t.once(command)
			}
			restore, ok := a.raw()
			if !ok {
				return t.plain(command.Context(), interval)
			}
			defer restore()
			return t.live(command.Context(), interval)
		},
	}
	f := command.Flags()
	f.DurationVar(&interval, "interval", interval, "between two looks")
	f.BoolVar(&once, "once", false, "one frame, and the exit code of status")
	f.Var((*limitValue)(&least), "min-instances", "how many active instances are healthy")
	f.StringVarP(&a.flags.role, "role", "r", "", "a role to show as well (TENURE_ROLE)")
	return command
}

// top draws one frame after the other.
type top struct {
	*app
	least int
	last  *clusterView // the last answer; nil: there is none yet
	at    time.Time
	err   error // why there is no younger one
}

// look asks, and keeps the last answer if there is no other.
func (t *top) look(ctx context.Context) {
	bound, cancel := t.question(ctx)
	defer cancel()
	t.stale = nil
	view, err := t.view(bound, t.least)
	if t.err = err; err == nil {
		t.last, t.at = &view, time.Now()
	}
	if t.stale != nil {
		t.err = t.stale
	}
}

// once writes one frame, as status exits.
func (t *top) once(command *cobra.Command) error {
	ctx := command.Context()
	if t.look(ctx); t.last == nil {
		return t.err
	}
	t.frame(t.out, 0)
	if !t.last.Healthy && t.stale == nil {
		return &exitError{code: exitNot}
	}
	return t.late(nil)
}

// plain writes a frame per interval, until ctx is done.
func (t *top) plain(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if t.look(ctx); ctx.Err() != nil {
			return context.Canceled
		}
		if t.last == nil && codeOf(t.err) == exitCannot && !errors.Is(t.err, tenure.ErrUnreachable) {
			return t.err
		}
		t.frame(t.out, 0)
		fmt.Fprintln(t.out)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Canceled
		}
	}
}

// live draws on a screen of its own, which it leaves as it was.
func (t *top) live(ctx context.Context, interval time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	looked, busy := make(chan struct{}, 1), false
	defer func() {
		if cancel(); busy {
			<-looked
		}
	}()
	_, _ = io.WriteString(t.out, enterScreen+home+"no answer yet, q quits")
	defer func() { _, _ = io.WriteString(t.out, leaveScreen) }()
	keys, resized := keysOf(ctx, os.Stdin), resizes(ctx)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for due := true; ; {
		if !busy && due {
			due, busy = false, true
			go func() { // ends with ctx, at the latest with the timeout of a question; awaited above
				t.look(ctx)
				looked <- struct{}{}
			}()
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			if key == 'q' || key == 'Q' || key == 3 { // Ctrl-C
				return nil
			}
			due = true
		case <-looked:
			busy = false
			t.draw()
		case <-resized:
			if !busy {
				t.draw()
			}
		case <-tick.C:
			due = true
		}
	}
}

// draw draws a frame that fits the terminal.
func (t *top) draw() {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	var b bytes.Buffer
	t.frame(&b, height-1)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	var screen strings.Builder
	screen.WriteString(home)
	for _, line := range lines[:min(len(lines), height-1)] {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		screen.WriteString(line + restOfLine + "\r\n")
	}
	screen.WriteString(restBelow + "q quits")
	_, _ = io.WriteString(t.out, screen.String())
}

// frame writes what is known: what status says, the instances and the tasks. height bounds the
// lines; 0: all of them.
func (t *top) frame(w io.Writer, height int) {
	var head bytes.Buffer
	for _, text := range t.warnings() {
		for _, line := range wrap(out.Plain(strings.ReplaceAll(text, "\n", " ")), 80) {
			fmt.Fprintln(&head, line)
		}
		fmt.Fprintln(&head)
	}
	if t.last != nil {
		t.status(&head, height)
	}
	_, _ = w.Write(head.Bytes())
	if t.last == nil {
		return
	}
	forInstances, forTasks := 0, 0 // as many as there are
	if height > 0 {
		left := max(height-bytes.Count(head.Bytes(), []byte("\n"))-6, 2) // but for the heads of two tables, and what is said of the rest
		forTasks = max(min(len(t.last.Tasks), left/2), left-len(t.last.all), 1)
		forInstances = max(left-min(forTasks, len(t.last.Tasks)), 1)
	}
	fmt.Fprintln(w)
	all := t.last.leadNow()
	slices.SortStableFunc(all, func(a, b tenure.Instance) int { return rank(a.State) - rank(b.State) })
	section(w, instancesGrid(all, t.format == out.Wide), "no instance", forInstances)
	fmt.Fprintln(w)
	tasks := slices.Clone(t.last.Tasks)
	slices.SortStableFunc(tasks, func(a, b tenure.TaskStatus) int { return urgency(a) - urgency(b) })
	section(w, tasksGrid(tasks, t.last.now(), t.format == out.Wide), "no task has run here yet", forTasks)
}

// status writes what status says. If height does not do for it and for the tables, the roles take
// what is left, at least a third.
func (t *top) status(w *bytes.Buffer, height int) {
	const tables = 8 // two with a head, a row, what is said of the rest and the line before
	above := w.Len()
	writeStatus(w, t.last, 0)
	if over := bytes.Count(w.Bytes(), []byte("\n")) + tables - height; height > 0 && over > 0 {
		var roles bytes.Buffer
		t.last.writeRoles(&roles, 0)
		w.Truncate(above)
		writeStatus(w, t.last, max(bytes.Count(roles.Bytes(), []byte("\n"))-over, height/3, 1))
	}
}

// warnings say why what follows is old, or not whole.
func (t *top) warnings() (texts []string) {
	if t.err != nil {
		text := "not known: " + strings.TrimPrefix(t.err.Error(), "tenure: ")
		if t.stale == nil && t.last != nil {
			text += ". What follows is " + out.For(time.Since(t.at)) + " old"
		}
		texts = append(texts, text)
	}
	if t.last != nil && t.last.cut != nil {
		texts = append(texts, notWhole(t.last.cut))
	}
	return texts
}

// section writes a table of at most so many rows.
func section(w io.Writer, g out.Grid, empty string, most int) {
	more := len(g.Rows) - most
	if most > 0 && more > 0 {
		g.Rows = g.Rows[:most]
	}
	g.Write(w, empty)
	if most > 0 && more > 0 {
		fmt.Fprintf(w, "… and %d more\n", more)
	}
}

// rank puts those first that somebody should look at.
func rank(state tenure.InstanceState) int {
	order := []tenure.InstanceState{tenure.InstanceDown, tenure.InstanceDrifted, tenure.InstanceUnknown, tenure.InstanceJoining, tenure.InstanceDraining, tenure.InstanceActive}
	if i := slices.Index(order, state); i >= 0 {
		return i
	}
	return 2
}

func urgency(t tenure.TaskStatus) int {
	if t.Err != nil || t.Overdue || t.Failures > 0 {
		return 0
	}
	return 1
}
