//go:build unix

package sidecar

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The orders and reports, a line each.
const (
	orderUntil  = "until"  // the time of now() at which nothing may live
	orderStop   = "stop"   //
	orderSignal = "signal" // a number, for the command

	reportStarted = "started" // pid
	reportFailed  = "failed"  // exit code, and why
	reportEnded   = "ended"   // exit code, and how; none lives
	reportLeft    = "left"    // how many SIGKILL has not ended, and which
)

// How often a guardian looks at the clock, and at what it has killed, and how long that may take
// before it is reported.
const (
	watchTick = 100 * time.Millisecond
	buryTick  = 5 * time.Millisecond
	leftAfter = time.Second
)

// guardian starts the command and ends it.
type guardian struct {
	grace, margin time.Duration
	stopSignal    syscall.Signal
	report        *os.File

	until  time.Duration // of now()
	main   int           // pid of the command
	ended  bool          // the command has
	alone  bool          // no child is left, dead or alive, but those of kept
	kept   kept
	code   int
	by     string        // how, once it is to end
	killAt time.Duration // of now(), once it is to end
	immune immune
}

// Guard is the main function of a guardian. args are the files of the orders and the reports,
// grace, margin, stop signal, the first deadline and the command.
func Guard(args []string) int {
	runtime.LockOSThread() // the command dies with the thread that starts it
	var numbers [6]int64
	if len(args) <= len(numbers) {
		return 125
	}
	for i := range numbers {
		n, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil {
			return 125
		}
		numbers[i] = n
	}
	syscall.CloseOnExec(int(numbers[0]))
	syscall.CloseOnExec(int(numbers[1]))
	orders := os.NewFile(uintptr(numbers[0]), "orders")
	g := &guardian{
		by: ByItself, report: os.NewFile(uintptr(numbers[1]), "reports"), grace: time.Duration(numbers[2]), margin: time.Duration(numbers[3]), stopSignal: syscall.Signal(numbers[4]),
		until: time.Duration(numbers[5]),
	}
	if err := Prepare(); err != nil {
		g.say(reportFailed, "125 "+err.Error())
		return 0
	}
	// What is sent to all processes of a terminal, or by mistake, does not end a guardian. Signals
	// that are caught, unlike those that are ignored, are as usual for the command.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP,
		syscall.SIGTTIN, syscall.SIGTTOU)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup the command ignores it too
		signal.Notify(caught, syscall.SIGHUP)
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	if !g.start(args[len(numbers):]) {
		return 0
	}
	lines := make(chan string, 64)
	go read(orders, lines) // ends with the process
	g.watch(lines, died)
	return 0
}

// read hands the lines of a file out, and closes the channel at its end.
func read(file *os.File, lines chan<- string) {
	defer close(lines)
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		lines <- scanner.Text()
	}
}

func (g *guardian) say(kind, rest string) { fmt.Fprintf(g.report, "%s %s\n", kind, rest) }

// start starts the command, unless it is too late for that.
func (g *guardian) start(command []string) bool {
	if now() >= g.until-g.margin-g.grace {
		g.say(reportEnded, fmt.Sprintf("%d %s", 128+int(syscall.SIGKILL), ByDeadline))
		return false
	}
	path, err := exec.LookPath(command[0])
	if err == nil {
		g.main, err = syscall.ForkExec(path, command, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: attached()})
		err = explained(command[0], err)
	}
	if err != nil {
		code := CannotStart
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = NotFound
		}
		g.say(reportFailed, fmt.Sprintf("%d %.1000s", code, strings.ReplaceAll(err.Error(), "\n", " "))) // it names the command, of up to 128 KiB
		return false
	}
	g.say(reportStarted, strconv.Itoa(g.main))
	return true
}

// explained is why the kernel has not started a file that is there: it says neither which file, nor
// that it is another one that is not there.
func explained(name string, err error) error {
	var fix string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT):
		fix = " (fix: install the interpreter that its first line names, without a carriage return behind it, or its dynamic loader)"
	case errors.Is(err, syscall.ENOEXEC):
		fix = " (fix: begin a script with #!/bin/sh; a program must be one for this processor)"
	case errors.Is(err, syscall.EAGAIN):
		fix = " (fix: allow more processes: ulimit -u, or pids.max of the cgroup)"
	}
	return fmt.Errorf("%.200q: %w%s", name, err, fix)
}

// watch returns when the command and all its descendants are dead.
func (g *guardian) watch(lines <-chan string, died <-chan os.Signal) {
	for {
		left := g.bury()
		if g.ended && g.alone && left == 0 {
			g.say(reportEnded, fmt.Sprintf("%d %s", g.code, g.by))
			return
		}
		select {
		case line, open := <-lines:
			if !open { // whoever is to say how long the command may live has died
				lines = nil
				g.stop(ByStop)
			} else {
				g.obey(line)
			}
		case <-died:
		case <-time.After(g.tick()):
		}
	}
}

// tick is how long nothing has to be looked at.
func (g *guardian) tick() time.Duration {
	if (g.killAt != 0 || g.ended) && !g.immune.told {
		return buryTick
	}
	return min(max(g.until-g.margin-g.grace-now(), buryTick), watchTick)
}

func (g *guardian) obey(line string) {
	order, rest, _ := strings.Cut(line, " ")
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case order == orderStop:
		g.stop(ByStop)
	case err != nil:
	case order == orderUntil:
		g.until = max(g.until, time.Duration(n))
	case order == orderSignal && !g.ended:
		_ = syscall.Kill(g.main, syscall.Signal(n))
	}
}

// stop begins the end: the stop signal to all, also to those that are frozen.
func (g *guardian) stop(by string) {
	if g.killAt != 0 {
		return
	}
	if !g.ended {
		g.by = by
	}
	g.killAt = now() + g.grace
	signalAll(g.main, g.stopSignal)
	signalAll(g.main, syscall.SIGCONT)
}

// bury does what is due: it begins the end, kills, and reaps. left is how many live, 0 if nothing
// is to end. A list of processes is no snapshot: one that forks and exits again and again is never
// where the list has it. But whoever loses its parent is a child of ours from that moment on, so
// that nobody is left once there is no child. See kept for those that stay.
func (g *guardian) bury() (left int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			g.alone = err == syscall.ECHILD || g.ended && g.kept.alone()
			break
		}
		if pid == g.main {
			g.ended, g.code = true, exitCode(status)
		}
	}
	at := now()
	if at >= g.until-g.margin-g.grace {
		g.stop(ByDeadline)
	}
	switch {
	case g.killAt != 0 && (at >= g.killAt || at >= g.until-g.margin), g.ended && g.by == ByItself:
		// Its group dies at once, however long a list takes. Later another one may have the number.
		if g.main > 0 && !g.ended {
			_ = syscall.Kill(-g.main, syscall.SIGKILL)
		}
		left = signalAll(g.main, syscall.SIGKILL) // what it has left behind is not awaited: another one may lead
		if g.immune.tell(left) {
			g.say(reportLeft, fmt.Sprintf("%d %s", left, living()))
		}
		return left
	case g.killAt != 0 && g.ended: // until then nobody need be looked for, which costs
		return signalAll(g.main, 0)
	}
	return 0
}

// immune finds out whether somebody does not die of SIGKILL: a process of another user, or one that
// the kernel holds. Without a word nobody would know why the term does not end.
type immune struct {
	since time.Duration // of now(), when SIGKILL was first sent; 0: not yet
	told  bool
}

// tell is asked each time with how many got SIGKILL, and says once that it is to be told.
func (i *immune) tell(left int) bool {
	if i.since == 0 {
		i.since = now()
	}
	tell := !i.told && left > 0 && now()-i.since >= leftAfter
	i.told = i.told || tell
	return tell
}

// exitCode is that of a command as a shell has it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
