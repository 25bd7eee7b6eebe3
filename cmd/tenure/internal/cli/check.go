package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/internal/store"
)

// mostInstances is how many instances Registry.WaitFor can wait for.
const mostInstances = 100_000

func checkInstance(id string) error {
	return checkName(id, "an instance", store.IDPattern, "tenure instances lists them")
}

// checkHeir is for an instance that may be any: "".
func checkHeir(id string) error {
	if id == "" {
		return nil
	}
	return checkInstance(id)
}

func checkTask(name string) error {
	return checkName(name, "a task", store.RolePattern, "tenure tasks lists them")
}

// checkPrefix checks the beginning of the name of a task.
func checkPrefix(prefix string) error {
	if prefix == "" || store.RolePattern.MatchString(prefix) {
		return nil
	}
	return fmt.Errorf("--prefix %.100q begins no name of a task: it must match %s", prefix, store.RolePattern)
}

func checkRole(name string) error {
	if slices.Contains(store.ReservedRoles, name) {
		return fmt.Errorf("%q is no name of a role: it is reserved (fix: tenure status lists them)", name)
	}
	return checkName(name, "a role", store.RolePattern, "tenure status lists them")
}

// checkAnyRole is for a role that may be the default one: "".
func checkAnyRole(name string) error {
	if name == "" {
		return nil
	}
	return checkRole(name)
}

func checkName(name, of string, pattern *store.Pattern, fix string) error {
	if pattern.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%.100q is no name of %s: it must match %s (fix: %s)", name, of, pattern, fix)
}

// checkUser checks the name of a Redis user, which becomes a word of a line of an ACL file.
func checkUser(name string) error {
	hostile := func(r rune) bool { return unicode.IsSpace(r) || out.Hostile(r) }
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, hostile) {
		return fmt.Errorf("--user %.100q: the name of a Redis user has no blanks and no control characters", name)
	}
	return nil
}

// checkTexts checks what is passed on as it is: JSON, in which the API gets it, has no other bytes.
func checkTexts(texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%.100q must be valid UTF-8", text)
		}
	}
	return nil
}

// checkNumber returns the number of instances that is waited for.
func checkNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostInstances || strconv.Itoa(n) != text {
		return 0, fmt.Errorf("%.100q is no number of instances from 1 to %d", text, mostInstances)
	}
	return n, nil
}

// first has the first argument checked, if there is one, after their number.
func first(number cobra.PositionalArgs, check func(string) error) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if err := number(command, args); err != nil || len(args) == 0 {
			return err
		}
		return check(args[0])
	}
}

// taskAndArgs is a task, and what it is run with.
func taskAndArgs(command *cobra.Command, args []string) error {
	if err := first(cobra.MinimumNArgs(1), checkTask)(command, args); err != nil {
		return err
	}
	return checkTexts(args[1:]...)
}

// limitValue is a flag that bounds a list.
type limitValue int

func (l *limitValue) String() string { return strconv.Itoa(int(*l)) }

func (l *limitValue) Type() string { return "int" }

func (l *limitValue) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return errors.New("it must be a number from 0 on")
	}
	*l = limitValue(n)
	return nil
}

// limitFlag adds --limit to a command.
func limitFlag(command *cobra.Command, limit *int, usage string) {
	command.Flags().Var((*limitValue)(limit), "limit", usage)
}

// spanValue is a flag that says for how long something is waited for.
type spanValue time.Duration

func (s *spanValue) String() string { return time.Duration(*s).String() }

func (s *spanValue) Type() string { return "duration" }

func (s *spanValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("it must be a duration above 0, such as 30s")
	}
	*s = spanValue(d)
	return nil
}

// allStates are those that an instance can be in.
var allStates = []tenure.InstanceState{
	tenure.InstanceJoining, tenure.InstanceActive, tenure.InstanceDraining, tenure.InstanceDrifted, tenure.InstanceDown, tenure.InstanceUnknown,
}

// taskStates are the words for the state of a task; of one that is in several of them the first.
var taskStates = []string{"unreadable", "paused", "running", "held", "triggered", "overdue", "failing", "ok"}

// statesText lists states for people.
func statesText[S ~string](states []S) string {
	texts := make([]string, len(states))
	for i, state := range states {
		texts[i] = string(state)
	}
	return strings.Join(texts, ", ")
}

// statesValue is a flag with states: separated by commas, or given more than once.
type statesValue[S ~string] struct {
	all    []S // that there are
	wanted []S
}

func (s *statesValue[S]) String() string { return statesText(s.wanted) }

func (s *statesValue[S]) Type() string { return "strings" }

func (s *statesValue[S]) Set(text string) error {
	if text == "" { // none is wanted in particular
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		if !slices.Contains(s.all, S(one)) {
			return fmt.Errorf("%.100q is none of %s", one, statesText(s.all))
		}
		s.wanted = append(s.wanted, S(one))
	}
	return nil
}
