//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
	"github.com/tenure-go/tenure/cmd/tenure/internal/sidecar"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
	"github.com/tenure-go/tenure/internal/store"
)

// guard makes this process a guardian, if it was started as one.
func guard(args []string) (code int, guarded bool) {
	if len(args) == 0 || args[0] != sidecar.GuardCommand {
		return 0, false
	}
	return sidecar.Guard(args[1:]), true
}

// runOptions are the flags of tenure run.
type runOptions struct {
	restart, stopSignal, id, ttl, address string
	grace                                 time.Duration
	quiet                                 bool
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	command := a.roleFlag(&cobra.Command{
		Use: "run [--role ROLE] -- COMMAND...", Short: "Run any program only while this process leads", Args: cobra.MinimumNArgs(1),
		Long: `run takes part in the election of a role, and runs the program while it leads. The program
finds TENURE_TOKEN (the fencing token), TENURE_ROLE, TENURE_INSTANCE_ID and TENURE_NAMESPACE in its
environment. Before the lease can have expired the program and all its descendants are
dead: they get the stop signal, and SIGKILL after --grace. A guardian process sees to it
even if this one is frozen or killed.

If the program ends by itself, the lease is released at once and another instance leads within
milliseconds. --restart says what this process does then: no (exit with the code of the
program), on-failure (unless that is 0, stand back for a second or more and campaign again)
or always.

Exit codes: that of the program, 128 + n if signal n has killed it; 0 after SIGINT or SIGTERM;
125 if tenure fails, 126 if the program cannot be started, 127 if it is not found.`,
		Example: `  tenure run --role reports -- python3 reports.py reports.db
  tenure run --role backup --restart always -- sh -c 'while :; do backup; sleep 60; done'`,
		RunE: func(command *cobra.Command, args []string) error {
			if command.Flags().Changed("grace") && o.grace <= 0 {
				return &exitError{exitRun, fmt.Sprintf("--grace %v: it must be more than 0", o.grace)}
			}
			return a.run(command.Context(), o, args)
		},
	})
	command.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault) // a program may be a file
	f := command.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.restart, "restart", "no", "after the program has ended by itself: no, on-failure or always")
	f.DurationVar(&o.grace, "grace", 0, "between the stop signal and SIGKILL; at most a quarter of the lease, less with a long renewal interval or drift margin, which is the default (at most 10s, and 3/4 of TENURE_SHUTDOWN_TIMEOUT)")
	f.StringVar(&o.stopSignal, "stop-signal", "TERM", "the stop signal")
	f.StringVar(&o.id, "id", "", "ID of this instance (TENURE_INSTANCE_ID); default the host's name and the pid")
	f.StringVar(&o.ttl, "lease-ttl", "", "how long a lease lasts, at least 1s (TENURE_LEASE_TTL); default 30s")
	f.StringVar(&o.address, "address", "", "where others reach this instance (TENURE_ADDRESS)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "write nothing but errors")
	return command
}

// run takes part until the command has ended for good, or ctx.
func (a *app) run(ctx context.Context, o runOptions, command []string) error {
	// Who does not read what is said holds neither the program up nor the lease.
	a.aside = out.NewAside(a.err)
	a.err = a.aside
	if err := sidecar.Prepare(); err != nil {
		return &exitError{exitRun, err.Error()}
	}
	config, coordinator, err := a.runConfig(o, command)
	if err != nil {
		return &exitError{exitRun, err.Error()}
	}
	say := func(text string, args ...any) {
		if !o.quiet {
			fmt.Fprintln(a.err, "tenure: "+out.Plain(fmt.Sprintf(text, args...)))
		}
	}
	config.Started = func(pid int, term tenure.Term) {
		say("%s leads %s with token %d: %s has pid %d", term.InstanceID, out.Role(term.Role), term.Token, command[0], pid)
	}
	config.Left = func(count int, who string) { // an error: also with --quiet
		fmt.Fprintln(a.err, out.Plain(fmt.Sprintf("tenure: SIGKILL has not ended %d of the processes of %s: %s (fix: let none run as another user)", count, command[0], who)))
	}
	runner := &sidecar.Runner{Config: config}
	campaign, stop := context.WithCancel(ctx)
	defer stop()
	campaign, done := store.WithDone(campaign)
	defer forward(runner, stop)()
	waits := waiter{status: config.Status, say: func(text string) {
		if campaign.Err() == nil { // who stops waits for nobody
			say("%s %s", coordinator.InstanceID(), text)
		}
	}}
	defer coordinator.Observe(waits.hear)()
	// Who reads what is said may end first. A signal that was ignored would be so for the command
	// too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	var last atomic.Pointer[sidecar.Result] // how the command ended for good
	err = coordinator.Run(campaign, func(ctx context.Context, term tenure.Term) error {
		result, err := runner.Run(ctx, term)
		if err != nil { // which the log has
			return err
		}
		switch {
		case result.By == sidecar.ByStop:
			say("%s has ended with the term", command[0])
			return nil
		case result.By == sidecar.ByDeadline:
			say("%s was ended since no renewal of the lease came through", command[0])
			if runner.Lapses(ctx, term) { // the command has not failed, and this process is not to stand back for it
				return nil
			}
			return errors.New("no renewal came through in time")
		case result.Text != "":
			fmt.Fprintln(a.err, "tenure: "+out.Plain(result.Text))
		default:
			say("%s has ended with code %d", command[0], result.Code)
		}
		if o.restart == "no" || o.restart == "on-failure" && result.Code == 0 {
			last.Store(&result)
			done.Store(result.Code == 0)
			stop()
			return nil
		}
		switch {
		case result.Code == 0:
			return tenure.ErrResigned
		case isStop(result.Code) && told(ctx, result.Code): // it has not failed
			return nil
		}
		return fmt.Errorf("%s has ended with code %d", command[0], result.Code)
	})
	switch result := last.Load(); {
	case result != nil && result.Code != 0 && !told(ctx, result.Code):
		return &exitError{code: result.Code}
	case result != nil:
		return nil
	case err != nil:
		return &exitError{exitRun, err.Error()}
	}
	return nil
}

// isStop reports whether an exit code says that SIGTERM or SIGINT has ended a program.
func isStop(code int) bool {
	return code == 128+int(syscall.SIGTERM) || code == 128+int(syscall.SIGINT)
}

// told reports whether ctx has ended, which says that this process was told to stop. A service
// manager sends the signal to the command too, which may end of it first.
func told(ctx context.Context, code int) bool {
	if isStop(code) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return ctx.Err() != nil
}

// forward hands signals that do not stop this process on to the command, and buries the children
// that are not of the command, until it is called back.
// Under nohup SIGHUP stays ignored, here and by what is started. If it says that the terminal is
// gone, stop is called: nobody would know of what goes on.
func forward(runner *sidecar.Runner, stop func()) (end func()) {
	began := hasTerminal()
	signals, dead, done := make(chan os.Signal, 16), make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT, syscall.SIGWINCH)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(dead, syscall.SIGCHLD)
	go func() { // ends with done
		runner.Reap() // who has died before
		for {
			select {
			case <-dead:
				runner.Reap()
			case s := <-signals:
				if s == syscall.SIGHUP && began && !hasTerminal() {
					stop()
				} else if number, is := s.(syscall.Signal); is {
					runner.Signal(number)
				}
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(signals); signal.Stop(dead); close(done) }
}

// hasTerminal reports whether this process has a terminal that controls it.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// withoutWork leaves out of an error the name of the function here whose error it is: the program
// is meant.
func withoutWork() func(groups []string, a slog.Attr) slog.Attr {
	named := regexp.MustCompile(`leader work \S+/cli\.\S+: `)
	return func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "error" {
			a.Value = slog.StringValue(named.ReplaceAllString(a.Value.String(), ""))
		}
		return a
	}
}

// runConfig checks the flags and makes the coordinator.
func (a *app) runConfig(o runOptions, command []string) (config sidecar.Config, coordinator *tenure.Coordinator, err error) {
	stopSignal := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(o.stopSignal), "SIG"))
	switch {
	case o.restart != "no" && o.restart != "on-failure" && o.restart != "always":
		return config, nil, fmt.Errorf("--restart %s: it must be no, on-failure or always", o.restart)
	case stopSignal == 0:
		return config, nil, fmt.Errorf("--stop-signal %s: there is no such signal (fix: TERM, INT or QUIT)", o.stopSignal)
	}
	for _, given := range []struct{ name, flag, value string }{{"instance_id", "id", o.id}, {"lease_ttl", "lease-ttl", o.ttl}, {"address", "address", o.address}} {
		if given.value != "" {
			if err := a.settings.Flag(given.name, given.flag, given.value); err != nil {
				return config, nil, err
			}
		}
	}
	if err := a.needsRedis("run"); err != nil {
		return config, nil, err
	}
	if mode := os.Getenv(settings.Prefix + "_ELECTION"); mode != "" && mode != string(tenure.EnvElect) {
		return config, nil, fmt.Errorf("%s_ELECTION = %.100q: tenure run runs its program by an election, and in no other way (fix: unset that, or do not start it)", settings.Prefix, mode)
	}
	env, err := a.options()
	if err != nil {
		return config, nil, err
	}
	a.source = &source.Redis{Client: env.Redis}
	opts := env.Options
	if opts.InstanceID == "" { // several may run on a host
		host, _ := os.Hostname()
		opts.InstanceID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if opts.Election.LeaseTTL == 0 {
		opts.Election.LeaseTTL = 30 * time.Second
	}
	ttl := opts.Election.LeaseTTL
	if opts.ShutdownTimeout == 0 {
		opts.ShutdownTimeout = min(ttl+5*time.Second, 24*time.Hour) // the longest that there is
	}
	if ttl < time.Second {
		return config, nil, fmt.Errorf("--lease-ttl %v: it must be at least 1s", ttl)
	}
	level := slog.LevelWarn
	if o.quiet {
		level = slog.LevelError
	}
	opts.Logger = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutWork()}))
	if coordinator, err = tenure.New(env.Redis, opts); err != nil {
		return config, nil, err
	}
	election := coordinator.Options().Election
	most, stop := sidecar.MaxGrace(ttl, election.Safety.DriftMargin, election.RenewInterval), opts.ShutdownTimeout/4*3 // the rest is for its burial, and the release
	if o.grace == 0 {
		o.grace = min(most, stop, 10*time.Second)
	}
	switch {
	case o.grace > most:
		return config, nil, fmt.Errorf("--grace %v: it must be at most a quarter of the lease, less with a long renewal interval or drift margin: %v (fix: a longer --lease-ttl)", o.grace, most)
	case o.grace > stop:
		return config, nil, fmt.Errorf("--grace %v: it must be at most 3/4 of TENURE_SHUTDOWN_TIMEOUT, %v", o.grace, stop)
	}
	config = sidecar.Config{
		Command: command, Grace: o.grace, Margin: sidecar.Margin(ttl), StopSignal: stopSignal, Namespace: opts.Namespace,
		// A renewal moves the deadline, and nothing reports it: a look at the status costs no round
		// trip. What is known late is known to be earlier than it is, which is safe.
		Poll:   election.RenewInterval / 4,
		Status: coordinator.Elector().Status,
	}
	return config, coordinator, nil
}
