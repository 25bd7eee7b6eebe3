//go:build unix

package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"

	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// resource is what leaders write to: it refuses a token below the highest that it has seen, and
// logs every write. It is a service of the cluster's process: no fault reaches it.
type resource struct {
	path    string
	journal *journal

	mu      sync.Mutex
	highest int64
	conns   map[net.Conn]struct{}
	closed  bool
}

// startResource serves until the cluster ends.
func startResource(t redistest.TB, dir string, j *journal) *resource {
	t.Helper()
	r := &resource{path: filepath.Join(dir, "resource"), journal: j, conns: map[net.Conn]struct{}{}}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path, Net: "unix"})
	if err != nil {
		t.Fatalf("fleet: fenced resource: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { // ends with the listener; awaited by the clean-up
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if r.enter(conn) {
				wg.Go(func() { r.serve(conn) }) // ends with the connection; likewise
			}
		}
	})
	t.Cleanup(func() {
		if err := errors.Join(listener.Close(), r.close()); err != nil {
			t.Errorf("fleet: close the fenced resource: %v", err)
		}
		wg.Wait()
	})
	return r
}

func (r *resource) enter(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = conn.Close()
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *resource) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var all error
	for conn := range r.conns {
		all = errors.Join(all, conn.Close())
	}
	return all
}

// serve answers one process until it is gone.
func (r *resource) serve(conn net.Conn) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.closed {
			_ = conn.Close()
		}
		delete(r.conns, conn)
	}()
	in := bufio.NewReader(conn)
	for {
		var e Entry
		if _, err := fmt.Fscanf(in, "%s %d %d\n", &e.Who, &e.Life, &e.Token); err != nil {
			return
		}
		answer := "refused\n"
		if r.write(e) {
			answer = "accepted\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// write is the whole of what a resource has to do: remember the highest token, refuse lower ones.
func (r *resource) write(e Entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Kind, e.OK = Wrote, e.Token >= r.highest
	r.highest = max(r.highest, e.Token)
	e.At = hostclock.Now()
	r.journal.add(e)
	return e.OK
}

// writer is a process's connection to the resource. It is safe for concurrent use.
type writer struct {
	of process

	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
}

func dialResource(path string, of process) (*writer, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &writer{of: of, conn: conn, in: bufio.NewReader(conn)}, nil
}

// write writes under a token.
func (w *writer) write(token int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := fmt.Fprintf(w.conn, "%s %d %d\n", w.of.who, w.of.life, token); err != nil {
		return err
	}
	_, err := w.in.ReadString('\n')
	return err
}
