//go:build unix

package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	readyBound = 60 * time.Second // for a server to answer, on a starved machine
	stopGrace  = 20 * time.Second // for a graceful stop: Redis waits 10 s for replicas that lag behind
	closeGrace = 2 * time.Second  // for the stop at the end, where nothing is to be kept
)

// ErrNoServer says that there is no redis-server to start.
var ErrNoServer = errors.New("redis-server not found: `make install-redis` installs it, " +
	"TENURE_REDIS_SERVER names another binary")

var errNotRunning = errors.New("server is not running")

// Server is a redis-server process of the harness's own, on a port and in a folder of its own. The
// port stays the same through every restart.
//
// Addr, Options and Client are safe for concurrent use. What starts, stops and signals is for one
// goroutine at a time.
type Server struct {
	config config
	binary string
	dir    string
	port   int

	mu       sync.Mutex
	proc     *process // nil before the first start
	paused   bool
	master   *Server // nil: this one is a master
	detached bool    // a replica whose master cannot be reached
}

// Start starts a server that ends with the test.
func Start(t TB, opts ...Option) *Server {
	t.Helper()
	s, err := Launch(opts...)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the redis-server at %s:\n%s", s.Addr(), s.logTail(0))
		}
		if err := s.Close(); err != nil {
			t.Errorf("redistest: close server: %v", err)
		}
	})
	return s
}

// Launch starts a server that ends with [Server.Close], at the latest with this process.
func Launch(opts ...Option) (*Server, error) {
	name := os.Getenv("TENURE_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	binary, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%w (%v)", ErrNoServer, err)
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, dir: dir}
	for _, opt := range opts {
		opt(&s.config)
	}
	s.master = s.config.master
	if err := s.launch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// launch starts the server on the first port that is free.
func (s *Server) launch() (err error) {
	for range portAttempts {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.start(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// Close ends the server and removes its folder. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	proc, paused := s.proc, s.paused
	s.mu.Unlock()
	if proc != nil && !proc.ended() {
		if paused || !gracefully(proc) {
			if err := proc.kill(); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(s.dir)
}

// gracefully reports whether the process has ended of its own will; that it had to be killed is no
// error at the end.
func gracefully(proc *process) bool { return proc.stop(closeGrace) == nil }

// Addr returns the address, an IP literal and a port.
func (s *Server) Addr() string { return loopback(s.port) }

// Options returns new client options for the server, to be changed at will.
func (s *Server) Options() *redis.Options {
	opts := &redis.Options{Addr: s.Addr(), Username: s.config.username, Password: s.config.password}
	if s.config.secured != nil {
		opts.TLSConfig = s.config.secured.Trusted()
	}
	return opts
}

// Client returns a client with the default options that is closed with the test.
func (s *Server) Client(t TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(s.Options())
	t.Cleanup(func() {
		if err := client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("redistest: close client: %v", err)
		}
	})
	return client
}

// start starts the process and waits until it answers.
func (s *Server) start() error {
	s.mu.Lock()
	running := s.proc != nil && !s.proc.ended()
	s.mu.Unlock()
	if running {
		return errors.New("server runs already")
	}
	if err := s.writeConf(); err != nil {
		return err
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own copy
	stat, err := log.Stat()
	if err != nil {
		return err
	}
	cmd := exec.Command(s.binary, s.args()...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), s.config.env...)
	proc, err := startProcess(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc, s.paused = proc, false
	s.mu.Unlock()
	if err := poll(readyBound, func() error { return s.ready(proc, stat.Size()) }); err != nil {
		return errors.Join(err, proc.kill())
	}
	return nil
}

func (s *Server) args() []string {
	if s.config.conf != "" { // Sentinel takes all of it from the file, which it rewrites
		return []string{filepath.Join(s.dir, sentinelConf), "--sentinel"}
	}
	args := []string{"--bind", "127.0.0.1", "--protected-mode", "yes", "--save", "", "--repl-diskless-sync-delay", "0"}
	if s.config.persist {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	} else { // a replica would come back with what its first synchronisation left on disk
		args = append(args, "--appendonly", "no", "--rdb-del-sync-files", "yes")
	}
	args = append(args, s.config.args...)
	args = append(args, "--dir", s.dir, "--daemonize", "no", "--loglevel", "notice", "--logfile", "")
	if s.config.secured != nil {
		args = append(args, s.config.secured.args(s.port)...)
	} else {
		args = append(args, "--port", strconv.Itoa(s.port))
	}
	if host, port, ok := s.replicaOf(); ok {
		args = append(args, "--replicaof", host, port)
	}
	return args
}

// ready is nil when the process serves, final when it has ended. Its own log says that the one who
// answers is this process: another server may have taken the port.
func (s *Server) ready(proc *process, logFrom int64) error {
	ended := proc.ended() // before the log is read: all of it is there then
	log := s.logTail(logFrom)
	switch {
	case ended && strings.Contains(log, "Address already in use"):
		return final{fmt.Errorf("%w: %s", errPortTaken, s.Addr())}
	case ended:
		return final{fmt.Errorf("redis-server ended (%v):\n%s", proc.err, log)}
	case s.config.conf == "" && !strings.Contains(log, "Ready to accept connections"):
		return fmt.Errorf("redis-server is not ready:\n%s", log)
	}
	reply, err := s.ping()
	if err == nil && strings.HasPrefix(reply, "-LOADING") {
		err = errors.New(strings.TrimSpace(reply))
	}
	return err
}

// ping asks without a client, since any answer will do: -NOAUTH too comes from a server that
// serves.
func (s *Server) ping() (reply string, err error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if s.config.secured != nil {
		conn = tls.Client(conn, s.config.secured.Trusted())
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

// logTail returns the log from an offset on, of a long one the end.
func (s *Server) logTail(from int64) string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	const most = 8 << 10
	log = log[min(from, int64(len(log))):]
	return string(log[max(0, len(log)-most):])
}

// Version is what the server says of itself on the command line; "" if there is none.
func Version() string {
	name := os.Getenv("TENURE_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	out, err := exec.Command(name, "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
