package sidecar

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prepare must be called before Run: it makes this process the parent of every descendant whose own
// parent dies, such as a guardian. It refuses a /proc in which no descendant would be found.
func Prepare() error {
	self, err := readLink("/proc/self")
	switch {
	case err != nil:
		return fmt.Errorf("/proc is not there, or shows another pid namespace (fix: mount proc): %w", err)
	case self != strconv.Itoa(os.Getpid()):
		return errors.New("/proc shows another pid namespace (fix: mount proc in this one, such as unshare --mount-proc)")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("it cannot be a child subreaper: %w", err)
	}
	for _, pid := range ownChildren() {
		p, _ := readProcess(pid)
		strangers[pid] = p.began
	}
	return nil
}

// strangers are the children that this process has had before it was prepared, with when they
// began: those of a shell that has become this program by exec. They are not of the command. Who is
// left by one of them later is: nobody can tell.
var strangers = make(map[int]string)

func (p process) isStranger() bool {
	began, is := strangers[p.pid]
	return is && began == p.began && p.parent == os.Getpid()
}

// apart starts a process in a session of its own: a signal from the terminal is not for it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// attached is apart, and has the process die with the thread that starts it.
func attached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// process is one entry of /proc.
type process struct {
	pid, parent int
	began       string // tells it from another one that gets its number; "": it is a child that is hidden
	dead        bool   // a zombie, with all its threads
}

// keptAfter is for how long nothing else was seen before those of kept are taken for all.
const keptAfter = time.Second

// kept tells whether all the children that are left are strangers, or dead and kept by a debugger:
// it is first to reap what it traces, and may never do so.
type kept struct{ since time.Duration } // of now(); 0: they are not, as far as was seen

// alone is to be asked while no child can be reaped. One look may miss who forks and exits.
func (k *kept) alone() bool {
	living, keeps, known := descendants()
	switch {
	case !known || len(living) > 0 || !keeps:
		k.since = 0
	case k.since == 0:
		k.since = now()
	}
	return k.since != 0 && now()-k.since >= keptAfter
}

// isTraced reports whether a process has a tracer.
func isTraced(pid int) bool {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, tracer, found := bytes.Cut(status, []byte("\nTracerPid:\t"))
	return found && !bytes.HasPrefix(tracer, []byte("0\n"))
}

// readProcess reads an entry; false: it is gone.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	end := bytes.LastIndexByte(stat, ')') // the name may hold anything
	if end < 0 {
		return process{}, false
	}
	fields := bytes.Fields(stat[end+1:]) // from the state on, which is the third field
	if len(fields) < 20 {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return process{pid: pid, parent: parent, began: string(fields[19]), dead: isDead(fields[0][0]) && !threadsLive(pid)}, err == nil
}

func isDead(state byte) bool { return state == 'Z' || state == 'X' }

// threadsLive reports whether a zombie has threads that go on: its first one has ended alone.
func threadsLive(pid int) bool {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if _, state, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" ")); found && len(state) > 0 && !isDead(state[0]) {
			return true
		}
	}
	return false
}

// descendants are the living ones of this process, and keeps says that it has children that
// are strangers or traced, and no other ones; known is false: it is not known who they are. Every
// one that has lost its parent is a child of ours.
func descendants() (living []process, keeps, known bool) {
	own := ownChildren() // before the others: none is reaped meanwhile, so that who is not seen is hidden
	entries, err := readDir("/proc")
	if err != nil {
		return nil, false, false
	}
	children := make(map[int][]process)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, there := readProcess(pid); there {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	for _, pid := range own {
		if !slices.ContainsFunc(children[os.Getpid()], func(p process) bool { return p.pid == pid }) {
			children[os.Getpid()] = append(children[os.Getpid()], process{pid: pid, parent: os.Getpid()})
		}
	}
	mine := children[os.Getpid()]
	keeps = len(mine) > 0 && !slices.ContainsFunc(mine, func(p process) bool { return !p.isStranger() && !isTraced(p.pid) })
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			if p.isStranger() {
				continue
			}
			if !p.dead {
				living = append(living, p)
			}
			queue = append(queue, p.pid) // a zombie's threads may have children still
		}
		delete(children, queue[0])
	}
	return living, keeps, true
}

// ownChildren are the pids of the children of this process, also of those that a /proc with hidepid
// hides: they have made themselves undumpable, or are of another user. Who they have started is a
// child of this one once they are dead.
func ownChildren() (pids []int) {
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		for field := range bytes.FieldsSeq(text) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// signalAll sends a signal to every descendant, and returns how many there were. A number that
// another process has got meanwhile is not hit.
func signalAll(_ int, signal syscall.Signal) int {
	living, _, known := descendants()
	if !known {
		return 1 // nobody is taken for dead
	}
	for _, p := range living {
		sendTo(p, signal)
	}
	return len(living)
}

// living names the first descendants.
func living() string {
	all, _, _ := descendants()
	var names []string
	for _, p := range all[:min(len(all), 5)] {
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
		names = append(names, fmt.Sprintf("%d (%s)", p.pid, strings.ReplaceAll(strings.TrimSuffix(string(name), "\n"), "\n", " ")))
	}
	return strings.Join(names, ", ")
}

// sendTo sends a signal to one process. If the kernel gives no handle of it (an old one, a seccomp
// profile, no descriptor that is free), its number must do.
func sendTo(p process, signal syscall.Signal) {
	fd, err := pidfdOpen(p.pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	} else if errors.Is(err, unix.ESRCH) {
		return
	}
	if p.began != "" { // else it is a child, whose number is its own until it is reaped
		again, there := readProcess(p.pid)
		if !there || again.began != p.began {
			return
		}
	}
	if unix.PidfdSendSignal(fd, signal, nil, 0) != nil { // fd is -1 without a handle
		_ = syscall.Kill(p.pid, signal)
	}
}

// Variables for the tests.
var (
	pidfdOpen = unix.PidfdOpen
	readDir   = os.ReadDir
	readLink  = os.Readlink
)
