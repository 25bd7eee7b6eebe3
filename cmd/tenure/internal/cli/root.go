// Package cli has the commands of tenure.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// The exit codes, which are a contract: see docs/cli.md.
const (
	exitOK      = 0 // healthy, done
	exitNot     = 1 // not healthy, nobody leads, not found, refused
	exitCannot  = 2 // it cannot be asked: arguments, settings, Redis; or its answer cannot be written
	exitUnknown = 3 // it may have taken effect, or may yet
)

// exitRun is that of tenure run if it is tenure that failed, as env and timeout have it.
const exitRun = 125

// exitError ends the program with a code. Without a text nothing is written.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// app is one call of the program.
type app struct {
	out, err io.Writer
	aside    *out.Aside // what err is, of a command that may not be held up by it; nil: it is written to
	settings *settings.Settings
	flags    struct {
		redis, api, namespace, role, output, config, by string
		timeout                                         time.Duration
	}
	format out.Format
	source source.Source
	env    tenure.EnvOptions
	stale  *source.StaleError // an answer that was shown is old; nil: none
}

// Main runs a command and returns its exit code.
func Main(args []string) int {
	if code, guarded := guard(args); guarded {
		return code
	}
	logging.Disable() // go-redis writes each lost connection to stderr; what matters is in the error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	output := &out.Sink{To: os.Stdout, Failed: cancel}
	a := &app{out: output, err: os.Stderr}
	defer a.close()
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	command, err := root.ExecuteContextC(ctx)
	if unwritten := output.Err(); unwritten != nil {
		err = &exitError{exitCannot, fmt.Sprintf("the output cannot be written: %v", unwritten)}
	}
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	if isRun(command, args) { // whatever the error is: all other codes are those of the program
		code = exitRun
	}
	var exit *exitError
	if errors.As(err, &exit) && exit.text == "" {
		return exit.code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.err, "tenure: "+interruption(err))
		return 130
	}
	a.complain(err)
	return code
}

// isRun reports whether a call is that of tenure run: also if an unknown flag before that word has
// kept it from being found.
func isRun(found *cobra.Command, args []string) bool {
	for _, arg := range args {
		if found.HasParent() || arg == "--" {
			break
		}
		for _, command := range found.Commands() {
			if arg == command.Name() {
				return command.Name() == "run"
			}
		}
	}
	return found.CommandPath() == "tenure run"
}

// interruption says that a command was interrupted. What an instance was asked for is not taken
// back by that.
func interruption(err error) string {
	if errors.Is(err, errMaybe) {
		return "interrupted: what was asked for may still be done (fix: tenure audit shows what became of it)"
	}
	return "interrupted"
}

// complain writes an error with its likely fix.
func (a *app) complain(err error) {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "tenure: "), ": tenure: ", ": ")
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "  ")
		fmt.Fprintln(a.err, "tenure: "+out.Plain(line))
	}
	if hint := hintFor(err); hint != "" && !strings.Contains(text, "(fix: ") {
		fmt.Fprintln(a.err, "  fix: "+hint)
	}
}

// hintFor is what to do about an error that does not say so itself.
func hintFor(err error) string {
	for _, known := range []struct {
		err  error
		hint string
	}{
		{tenure.ErrUnreachable, "look whether Redis runs there: tenure doctor"},
		{tenure.ErrMisconfigured, "tenure doctor looks at rights and settings"},
		{tenure.ErrNotTaken, "look whether the instance is active: tenure instances"},
		{tenure.ErrNotReady, "look whether the instance is active and may lead: tenure instances"},
		{tenure.ErrNoLeader, "tenure status says why nobody leads"},
		{tenure.ErrRegistered, "what a program has comes back: take it out there first, and wait for a minute"},
		{tenure.ErrTriggerWaiting, "wait for that run: tenure tasks"},
	} {
		if errors.Is(err, known.err) {
			return known.hint
		}
	}
	return ""
}

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, errMaybe):
		return exitUnknown
	}
	for _, no := range []error{
		tenure.ErrNoLeader, tenure.ErrNotLeader, tenure.ErrNotReady, tenure.ErrTransferring, tenure.ErrNotTaken, tenure.ErrCommandFailed,
		tenure.ErrStopped, tenure.ErrDrainTimeout, tenure.ErrTriggerWaiting, tenure.ErrRegistered, tenure.ErrNotFound,
	} {
		if errors.Is(err, no) {
			return exitNot
		}
	}
	return exitCannot
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tenure",
		Short: "Who leads, who is there, does the work get done",
		Long: `tenure shows and steers the leader election of a service: who leads since when and
how safely, why nobody leads and until when, whether everybody is there, and
whether the work gets done. "tenure run" runs any program only while it leads.

Redis and namespace come from flags, from TENURE_REDIS_URL and TENURE_NAMESPACE, or
from a config file. With --api the HTTP API of a program is asked in place of Redis. Exit codes: 0 healthy or done, 1 not, 2 cannot ask, 3 not known.`,
		Example: `  export TENURE_REDIS_URL=redis://localhost:6379 TENURE_NAMESPACE=shop
  tenure status
  tenure run --role reports -- python3 reports.py reports.db`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: a.prepare,
		CompletionOptions: cobra.CompletionOptions{DisableDescriptions: true},
	}
	f := root.PersistentFlags()
	f.StringVar(&a.flags.redis, "redis", "", "URL of Redis: redis://, rediss:// (TLS), unix://; ?master_name=… asks Sentinel (TENURE_REDIS_URL)")
	f.StringVar(&a.flags.api, "api", "", "URL of the HTTP API of a program, asked in place of Redis (TENURE_API)")
	f.StringVarP(&a.flags.namespace, "namespace", "n", "", "namespace: the name of the service (TENURE_NAMESPACE)")
	f.StringVarP(&a.flags.output, "output", "o", "table", "table, wide, json, jsonl or yaml (TENURE_OUTPUT)")
	f.StringVar(&a.flags.config, "config", "", "config file (TENURE_CONFIG)")
	f.DurationVar(&a.flags.timeout, "timeout", 10*time.Second, "how long an answer is waited for (TENURE_TIMEOUT)")
	f.StringVar(&a.flags.by, "by", "", "who asks, in the audit stream; default user@host (TENURE_BY)")
	// What stands behind a command or a flag is no file, but for --config and the program of run.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for flag, may := range map[string]cobra.CompletionFunc{
		"config": cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"output": cobra.FixedCompletions([]string{"table", "wide", "json", "jsonl", "yaml"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		_ = root.RegisterFlagCompletionFunc(flag, may) // it is there
	}
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return &exitError{exitCannot, fmt.Sprintf("%v (fix: %s --help)", err, command.CommandPath())}
	})
	root.AddCommand(a.statusCommand(), a.instancesCommand(), a.leaderCommand(), a.tasksCommand(), a.termsCommand(), a.eventsCommand(), a.commandsCommand(),
		a.resignCommand(), a.transferCommand(), a.roleCommand(), a.taskCommand(), a.waitCommand(), a.runCommand(), a.topCommand(), a.demoCommand(), a.doctorCommand(), a.aclCommand(), a.healthcheckCommand(), a.versionCommand(),
		a.instanceCommand("drain", "Have an instance hand over all that it leads, and lead nothing",
			"drain moves all that the instance leads to others. It stays up and takes no lead until undrain.\nThe drain ends with the process: one that is started anew under the ID may lead.", "%s is drained: it leads nothing",
			func(c source.Source) func(context.Context, string) error { return c.Drain }),
		a.instanceCommand("undrain", "End a drain", "", "%s may lead again", func(c source.Source) func(context.Context, string) error { return c.Undrain }),
		a.instanceCommand("rm", "Remove the record of an instance that is gone for good",
			"rm removes the record at once. An instance that lives enters again with its next heartbeat.", "%s is removed",
			func(c source.Source) func(context.Context, string) error { return c.Remove }),
	)
	root.InitDefaultCompletionCmd()
	for _, command := range root.Commands() {
		if command.HasSubCommands() {
			mustName(command)
		}
	}
	return root
}

// mustName has a command that only has others refuse to be called without one of them. Without
// this it would show its help, and end with 0.
func mustName(command *cobra.Command) {
	command.Args = cobra.ArbitraryArgs
	command.DisableFlagsInUseLine = true
	command.RunE = func(command *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %.100q for %q (fix: %s --help)", args[0], command.CommandPath(), command.CommandPath())
		}
		var names []string
		for _, each := range command.Commands() {
			names = append(names, each.Name())
		}
		return fmt.Errorf("%q needs a command: %s", command.CommandPath(), strings.Join(names, ", "))
	}
}

// prepare reads the settings before a command runs.
func (a *app) prepare(command *cobra.Command, _ []string) error {
	if command.Name() == "help" || command.HasParent() && command.Parent().Name() == "completion" {
		return nil // what is wrong with the settings is looked up there, and a shell asks at each start
	}
	loaded, err := settings.Load(a.flags.config)
	if err != nil {
		return err
	}
	a.settings = loaded
	flags := command.Flags()
	for _, flag := range []struct{ flag, setting string }{
		{"redis", "redis_url"}, {"api", "api"}, {"namespace", "namespace"}, {"output", "output"}, {"timeout", "timeout"}, {"by", "by"}, {"role", "role"},
	} {
		if found := flags.Lookup(flag.flag); found != nil && found.Changed {
			value := found.Value.String()
			if flag.flag == "role" { // TENURE_ROLE is the role itself, as for OptionsFromEnv
				value = out.NamedRole(value)
			}
			if err := loaded.Flag(flag.setting, flag.flag, value); err != nil {
				return err
			}
		}
	}
	if text := loaded.Text("timeout"); text != "" {
		timeout, err := time.ParseDuration(text)
		if err != nil || timeout <= 0 {
			return fmt.Errorf("timeout = %q: it must be a duration such as 10s", text)
		}
		a.flags.timeout = timeout
	}
	if flags.Lookup("role") != nil {
		if err := checkAnyRole(a.role()); err != nil {
			return err
		}
	}
	text := loaded.Text("output")
	if text == "" {
		text = string(out.Table)
	}
	a.format, err = out.ParseFormat(text)
	return err
}

// connect makes the source that commands ask.
func (a *app) connect() (source.Source, error) {
	if a.source != nil {
		return a.source, nil
	}
	api, err := a.settings.API()
	if err != nil {
		return nil, err
	}
	if api == nil {
		return a.connectRedis("")
	}
	if a.settings.IsFlag("by") {
		return nil, errors.New("--by: through the API it is its credentials that say who asks (fix: without --by)")
	}
	connected, err := source.NewAPI(source.APIOptions{
		URL: api.URL, Credentials: source.Credentials{Token: api.Token, User: api.User, Password: api.Password}, Secrets: api.Secrets, Authorities: api.Authorities,
		Namespace: a.settings.Text("namespace"), Timeout: a.flags.timeout,
	})
	if err != nil {
		return nil, err
	}
	a.source = connected
	return connected, nil
}

// options reads the options. An error says what is wrong with them: doctor would say the same.
func (a *app) options() (tenure.EnvOptions, error) {
	env, err := a.settings.Options()
	if err != nil {
		return env, &exitError{exitCannot, err.Error()}
	}
	return env, nil
}

// connectRedis makes the source that asks Redis itself. use is the command that knows no other; "":
// any.
func (a *app) connectRedis(use string) (*source.Redis, error) {
	if use != "" {
		if err := a.needsRedis(use); err != nil {
			return nil, err
		}
	}
	env, err := a.options()
	if err != nil {
		return nil, err
	}
	a.env = env
	if use != "doctor" { // which looks at the client that the service has
		source.Patient(env.Redis, a.flags.timeout)
	}
	connected := &source.Redis{Client: env.Redis, Namespace: env.Options.Namespace, Timeout: a.flags.timeout}
	a.source = connected
	by := a.settings.Text("by")
	if by == "" {
		by = whoami()
	}
	keys := map[string]string{}
	if key := env.Options.Election.LeaderKey; key != "" {
		keys[env.Options.Election.Role] = key
	}
	connected.Control, err = tenure.NewControl(env.Redis, tenure.ControlOptions{
		Namespace: env.Options.Namespace, By: by, LeaderKeys: keys,
		DriftedAfter: env.Options.Registry.DriftedAfter, DownAfter: env.Options.Registry.DownAfter, // so that states are those of the service
	})
	return connected, err
}

// needsRedis refuses --api for a command that the API does not serve.
func (a *app) needsRedis(use string) error {
	unnamed := use != "acl" && a.settings.Text("redis_url") == "" && a.settings.Text("redis_host") == ""
	if a.settings.IsFlag("api") || unnamed && a.settings.Text("api") != "" {
		return fmt.Errorf("tenure %s needs Redis itself: the API does not serve it (fix: --redis in place of --api)", use)
	}
	return nil
}

// whoami is user@host, as far as that is printable.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	by := []byte(name + "@" + host)
	for i, b := range by {
		if b <= ' ' || b > '~' {
			by[i] = '?'
		}
	}
	return string(by[:min(len(by), 128)])
}

// bound is the context of a command that asks one question.
func (a *app) bound(command *cobra.Command) (context.Context, context.CancelFunc) {
	return a.question(command.Context())
}

// question is the context of one question.
func (a *app) question(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, a.flags.timeout, fmt.Errorf("%w: no answer within %v", tenure.ErrUnreachable, a.flags.timeout))
}

func (a *app) close() {
	if a.aside != nil {
		a.aside.Close()
	}
	if a.source != nil {
		a.source.Close()
	}
}

// errMaybe marks what may have taken effect.
var errMaybe = errors.New("it is not known what became of it")
