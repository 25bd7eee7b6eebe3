package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// LAN is a network of machines of its own: each node is a network namespace with one address, all
// of them on one bridge, which lies in a namespace too. Nothing of it is connected with the host's
// network. Pairs of nodes can be cut from each other, in silence.
type LAN struct {
	prefix string
	nodes  map[string]*lanNode
}

type lanNode struct {
	lan  *LAN
	name string
	ns   string
	addr string
	mac  string
}

// ErrNoNamespaces says that this process may not make network namespaces, or has no iproute2.
var ErrNoNamespaces = errors.New("redistest: no network namespaces can be made here")

var lans atomic.Int32 // of this process

// NewLAN makes one, which ends with the test. It skips the test if none can be made.
func NewLAN(t TB, nodes ...string) *LAN {
	t.Helper()
	l := &LAN{prefix: fmt.Sprintf("tn%d-%d-", os.Getpid(), lans.Add(1)), nodes: map[string]*lanNode{}}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Errorf("redistest: %v", err)
		}
	})
	if err := l.build(nodes); errors.Is(err, ErrNoNamespaces) {
		skip(t, err)
	} else if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return l
}

// skip skips the test, if that is a test.
func skip(t TB, err error) {
	t.Helper()
	if test, ok := t.(interface{ Skipf(string, ...any) }); ok {
		test.Skipf("%v", err)
	}
	t.Fatalf("%v", err)
}

func (l *LAN) build(nodes []string) error {
	hub := l.prefix + "hub"
	if err := ip("netns", "add", hub); err != nil {
		return fmt.Errorf("%w: %w", ErrNoNamespaces, err)
	}
	l.nodes[""] = &lanNode{lan: l, ns: hub}
	if err := ip("-n", hub, "link", "add", "br0", "up", "type", "bridge"); err != nil {
		return fmt.Errorf("%w: %w", ErrNoNamespaces, err)
	}
	for i, name := range nodes {
		n := &lanNode{lan: l, name: name, ns: l.prefix + name, addr: fmt.Sprintf("192.0.2.%d", i+1), mac: fmt.Sprintf("02:00:00:00:00:%02x", i+1)}
		if err := ip("netns", "add", n.ns); err != nil {
			return err
		}
		l.nodes[name] = n
		port := fmt.Sprint("p", i)
		for _, args := range [][]string{
			{"-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", n.ns},
			{"-n", hub, "link", "set", port, "master", "br0", "up"},
			{"-n", n.ns, "link", "set", "eth0", "address", n.mac, "up"},
			{"-n", n.ns, "link", "set", "lo", "up"},
			{"-n", n.ns, "addr", "add", n.addr + "/24", "dev", "eth0"},
		} {
			if err := ip(args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// close removes the namespaces, and with them all that is in them.
func (l *LAN) close() (err error) {
	for _, n := range l.nodes {
		err = errors.Join(err, ip("netns", "del", n.ns))
	}
	return err
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Addr is the address of a node.
func (l *LAN) Addr(node string) string { return l.nodes[node].addr }

// Cut cuts nodes from others: frames between them go nowhere from now on, both ways, connections
// that stand included.
func (l *LAN) Cut(t TB, nodes, others []string) {
	t.Helper()
	l.neighbours(t, nodes, others, "02:00:00:00:00:ff")
}

// Heal ends that.
func (l *LAN) Heal(t TB, nodes, others []string) {
	t.Helper()
	l.neighbours(t, nodes, others, "")
}

// neighbours makes nodes and others send to each other at that hardware address; "": at the right
// one.
func (l *LAN) neighbours(t TB, nodes, others []string, mac string) {
	t.Helper()
	for _, a := range nodes {
		for _, b := range others {
			for _, pair := range [][2]*lanNode{{l.nodes[a], l.nodes[b]}, {l.nodes[b], l.nodes[a]}} {
				to := mac
				if to == "" {
					to = pair[1].mac
				}
				if err := ip("-n", pair[0].ns, "neigh", "replace", pair[1].addr, "lladdr", to, "dev", "eth0", "nud", "permanent"); err != nil {
					t.Fatalf("redistest: %v", err)
				}
			}
		}
	}
}

// Dialer dials as a process on that node does; for the option Dialer of go-redis.
func (l *LAN) Dialer(node string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	n := l.nodes[node]
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: 2 * time.Second, KeepAlive: 5 * time.Second}
		var conn net.Conn
		err := n.within(func() (err error) {
			conn, err = dialer.DialContext(ctx, network, addr)
			return err
		})
		return conn, err
	}
}

// within runs fn on a thread that is in the namespace of the node: a socket belongs to the
// namespace of the thread that makes it.
func (n *lanNode) within(fn func() error) error {
	result := make(chan error, 1)
	go func() { // ends with fn; its thread ends with it, since it stays locked: it is in a namespace that nothing else is to be in
		runtime.LockOSThread()
		if err := setns(filepath.Join("/var/run/netns", n.ns)); err != nil {
			result <- err
			return
		}
		result <- fn()
	}()
	return <-result
}

// setns moves this thread into a network namespace.
func setns(path string) error {
	number, known := map[string]uintptr{"amd64": 308, "arm64": 268}[runtime.GOARCH]
	if !known {
		return fmt.Errorf("%w: setns on %s", ErrNoNamespaces, runtime.GOARCH)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, _, errno := syscall.RawSyscall(number, file.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
		return fmt.Errorf("setns: %w", errno)
	}
	return nil
}

// run starts a program on the node, which is killed with the test. It returns when its port
// answers.
func (n *lanNode) run(t TB, port int, name string, args ...string) {
	t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", n.ns, name}, args...)...)
	log, err := os.CreateTemp("", "redistest-lan-")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
	t.Cleanup(func() {
		if p != nil {
			if err := p.kill(); err != nil {
				t.Errorf("redistest: %v", err)
			}
		}
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s on %s:\n%s", name, n.name, text)
		}
		_ = log.Close()
		_ = os.Remove(log.Name())
	})
	if err == nil {
		dial := n.lan.Dialer(n.name)
		err = poll(readyBound, func() error {
			if p.ended() {
				return final{fmt.Errorf("%s ended: %w", name, p.err)}
			}
			conn, err := dial(context.Background(), "tcp", net.JoinHostPort(n.addr, fmt.Sprint(port)))
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
	if err != nil {
		t.Fatalf("redistest: %s on %s: %v", name, n.name, err)
	}
}

// lanServer is the redis-server to run on nodes, and a folder for what they write, which is removed
// with the test.
func lanServer(t TB) (binary, dir string) {
	t.Helper()
	binary = os.Getenv("TENURE_REDIS_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	binary, err := exec.LookPath(binary)
	if err != nil {
		skip(t, fmt.Errorf("%w (%w)", ErrNoServer, err))
	}
	dir, err = os.MkdirTemp("", "redistest-lan-")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return binary, dir
}
