//go:build unix

package sidecar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure"
)

// Config says what to run and how to end it.
type Config struct {
	Command    []string
	Grace      time.Duration  // between the stop signal and SIGKILL
	Margin     time.Duration  // see Margin
	StopSignal syscall.Signal //
	Poll       time.Duration  // how often the deadline is looked at
	Namespace  string
	// Status is the state of the election.
	Status func() tenure.ElectionStatus
	// Started is called with the pid of each command.
	Started func(pid int, term tenure.Term)
	// Left is called with how many processes SIGKILL has not ended, and their pids and names.
	Left func(count int, who string)
}

// Result is how a command ended.
type Result struct {
	Code int    // as a shell has it
	By   string // ByItself, ByStop or ByDeadline
	Text string // why it could not be started; ""
}

// Runner runs the command in each term.
type Runner struct {
	Config

	mu       sync.Mutex
	orders   *os.File // of the guardian that is there; nil: none
	guardian int      // its pid
}

// Reap buries the dead children of this process that are not of the command: it is to be called at
// each SIGCHLD. The first process of a container gets the orphans of all others that run there,
// such as those of a probe, and each counts as a process until it is buried.
func (r *Runner) Reap() {
	children := ownChildren()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pid := range children {
		if pid != r.guardian {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// Signal forwards a signal to the command, if there is one.
func (r *Runner) Signal(signal syscall.Signal) { r.order(orderSignal, int64(signal)) }

func (r *Runner) order(kind string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	raw, err := r.orders.SyscallConn()
	if err != nil { // there is no guardian
		return
	}
	line := fmt.Appendf(nil, "%s %d\n", kind, n)
	// A guardian that is frozen may leave the pipe full. One try: this process has to kill in time.
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = syscall.Write(int(fd), line)
		return true
	})
}

// deadline is when nothing may live, as a time of now(). false: the term is over. It is counted
// from before the status was read, by the clock of the machine that shows less: one of them may not
// count a suspension.
func (r *Runner) deadline(term tenure.Term) (until time.Duration, leads bool) {
	began := now()
	s := r.Status()
	if s.Token != term.Token || s.Deadline.IsZero() || !term.Valid() {
		return 0, false
	}
	return began + min(time.Until(s.Deadline), time.Until(s.Deadline.Round(0))), true
}

// Run runs the command in a term, until it ends or ctx does. When it returns, nothing of the
// command lives.
func (r *Runner) Run(ctx context.Context, term tenure.Term) (Result, error) {
	until, leads := r.deadline(term)
	for ; !leads; until, leads = r.deadline(term) { // the status follows the term by a moment
		select {
		case <-ctx.Done():
			return Result{By: ByStop}, nil
		case <-time.After(time.Millisecond):
		}
	}
	guardian, reports, err := r.guard(until, term)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		r.mu.Lock()
		_ = r.orders.Close()
		r.orders, r.guardian = nil, 0
		r.mu.Unlock()
	}()
	lines := make(chan string, 4)
	go read(reports, lines) // ends with the guardian, whose end of the pipe is the only one
	result, ended := r.feed(ctx, term, until, lines)
	if !ended { // the guardian is dead or frozen, or this process was frozen itself
		r.killAll(guardian)
	}
	_ = guardian.Wait()
	for line := range lines { // what it has reported meanwhile
		if !ended {
			result, ended = r.hear(line, term)
		}
	}
	_ = reports.Close()
	if !ended {
		return Result{Code: 128 + int(syscall.SIGKILL), By: ByDeadline}, errors.New("the guardian of the command is dead or frozen: all was killed")
	}
	return result, nil
}

// Lapses waits for the end of a term whose command was ended since no renewal was heard of in time.
// It returns false if one was after all: the term goes on, without the command.
func (r *Runner) Lapses(ctx context.Context, term tenure.Term) bool {
	for {
		until, leads := r.deadline(term)
		if !leads {
			return true
		}
		if until-now() > r.Grace+r.Margin { // the command would not have been ended
			return false
		}
		select {
		case <-ctx.Done():
			return true
		case <-time.After(r.Poll):
		}
	}
}

// feed reports the deadline to the guardian, and returns what that says of the end. false: it has
// said nothing in time.
func (r *Runner) feed(ctx context.Context, term tenure.Term, until time.Duration, lines <-chan string) (Result, bool) {
	poll := time.NewTicker(r.Poll)
	defer poll.Stop()
	done := ctx.Done()
	for {
		last := time.NewTimer(max(until-r.Margin/2-now(), 0))
		select {
		case line, open := <-lines:
			last.Stop()
			if !open {
				return Result{}, false
			}
			if result, ended := r.hear(line, term); ended {
				return result, true
			}
			continue
		case <-done:
			done = nil
			r.order(orderStop, 0)
		case <-poll.C:
			if later, leads := r.deadline(term); leads && done != nil {
				until = later
				r.order(orderUntil, int64(until))
			}
		case <-last.C:
			if now() >= until-r.Margin/2 {
				return Result{}, false
			}
		}
		last.Stop()
	}
}

// hear takes a report.
func (r *Runner) hear(line string, term tenure.Term) (Result, bool) {
	kind, rest, _ := strings.Cut(line, " ")
	number, text, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil:
	case kind == reportStarted:
		r.Started(n, term)
	case kind == reportLeft:
		r.Left(n, text)
	case kind == reportEnded:
		return Result{Code: n, By: text}, true
	case kind == reportFailed:
		return Result{Code: n, By: ByItself, Text: text}, true
	}
	return Result{}, false
}

// guard starts a guardian.
func (r *Runner) guard(until time.Duration, term tenure.Term) (*exec.Cmd, *os.File, error) {
	theirs, orders, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	reports, their, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	self, err := executable()
	if err != nil {
		return nil, nil, err
	}
	args := []string{os.Args[0], GuardCommand}
	for _, file := range []*os.File{theirs, their} { // with their numbers: 3 and 4 may be of the command
		if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFD, 0); err != nil {
			return nil, nil, err
		}
	}
	for _, n := range []int64{int64(theirs.Fd()), int64(their.Fd()), int64(r.Grace), int64(r.Margin), int64(r.StopSignal), int64(until)} {
		args = append(args, strconv.FormatInt(n, 10))
	}
	cmd := &exec.Cmd{
		Path: self, Args: append(args, r.Command...), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: apart(),
		Env: append(os.Environ(), "TENURE_TOKEN="+strconv.FormatInt(term.Token, 10), "TENURE_ROLE="+term.Role, "TENURE_INSTANCE_ID="+term.InstanceID,
			"TENURE_NAMESPACE="+r.Namespace),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err = cmd.Start()
	_, _ = theirs.Close(), their.Close()
	if err != nil {
		return nil, nil, err
	}
	r.orders, r.guardian = orders, cmd.Process.Pid
	return cmd, reports, nil
}

// killAll kills the guardian and all that it has left, until none lives.
func (r *Runner) killAll(guardian *exec.Cmd) {
	_ = guardian.Process.Kill()
	var kept kept
	var immune immune
	for {
		left := signalAll(0, syscall.SIGKILL)
		if immune.tell(left) {
			r.Left(left, living())
		}
		var alone bool // no child is left, see guardian.bury
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != nil || pid <= 0 {
				alone = err == syscall.ECHILD || kept.alone()
				break
			}
		}
		if left == 0 && alone {
			return
		}
		<-time.After(buryTick)
	}
}
