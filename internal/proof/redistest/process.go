//go:build unix

package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// killBound is how long a SIGKILL may take to be seen: long, since the machine may be starved.
const killBound = 30 * time.Second

// process is an operating system process that dies with this one.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was reaped
	err  error         // what Wait returned; read after done
}

// forks runs functions on one thread that lives as long as this process does. On Linux a process
// that asked to die with its parent dies with the *thread* that forked it, and Go ends threads when
// it likes.
var forks = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go serveForks(jobs) // ends with the process: that is its purpose; NoLeaks knows it by name
	return jobs
})

func serveForks(jobs <-chan func()) {
	runtime.LockOSThread()
	for job := range jobs {
		job()
	}
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	dieWithParent(cmd)
	started := make(chan error)
	forks() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go p.reap() // ends with the process: kill and stop end it and wait for done
	return p, nil
}

func (p *process) reap() {
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait reports whether the process ends within bound.
func (p *process) wait(bound time.Duration) bool {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// kill ends the process at once and returns when it is gone. An ended process is no error.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if !p.wait(killBound) {
		return fmt.Errorf("process %d outlives SIGKILL by %v", p.pid(), killBound)
	}
	return nil
}

// stop asks the process to end and kills it after grace. It is an error if it had to. It asks again
// and again: a Redis that writes its first append-only file refuses to stop and forgets that it was
// asked.
func (p *process) stop(grace time.Duration) error {
	const again = 100 * time.Millisecond
	for end := time.Now().Add(grace); time.Now().Before(end); {
		for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGCONT} { // a frozen process would not hear of it
			if err := p.signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
		}
		if p.wait(again) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("process %d did not end within %v of SIGTERM", p.pid(), grace), p.kill())
}

func (p *process) signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// pause freezes the process and returns when none of its threads runs any more.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return poll(killBound, func() error {
		switch {
		case p.ended():
			return final{fmt.Errorf("process %d ended: %w", p.pid(), os.ErrProcessDone)}
		case !frozen(p.pid()):
			return fmt.Errorf("process %d still runs", p.pid())
		}
		return nil
	})
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }
