//go:build unix

package campaign

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// write is one entry of the resource's log.
type write struct {
	token    int64
	at       time.Duration // when it arrived
	accepted bool
}

// run is one execution of the children's task, as the resource saw it.
type run struct {
	id         string
	slot       int64
	attempt    int
	token      int64
	start, end time.Duration // by the child; end 0: it never said
}

// resource is what leaders write to: it refuses a token below the highest that it has seen, and logs everything.
type resource struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu      sync.Mutex
	highest int64
	writes  []write
	runs    map[string]*run
	order   []string // of the runs
	conns   map[net.Conn]bool
}

// newResource starts one that listens in dir until it is closed.
func newResource(dir string) (*resource, error) {
	listener, err := net.Listen("unix", filepath.Join(dir, "resource"))
	if err != nil {
		return nil, err
	}
	r := &resource{listener: listener, runs: map[string]*run{}, conns: map[net.Conn]bool{}}
	r.serving.Go(func() { // ends with the listener; close waits
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns[conn] = true
			r.mu.Unlock()
			r.serving.Go(func() { r.serve(conn) }) // ends with the connection
		}
	})
	return r, nil
}

func (r *resource) addr() string { return r.listener.Addr().String() }

func (r *resource) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.serving.Wait()
}

func (r *resource) serve(conn net.Conn) {
	defer func() {
		r.mu.Lock()
		delete(r.conns, conn)
		r.mu.Unlock()
		_ = conn.Close()
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer := "refused\n"
		if r.take(lines.Text()) {
			answer = "accepted\n"
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// take decides about one line.
func (r *resource) take(line string) (accepted bool) {
	var what, id string
	var token, slot int64
	var at time.Duration
	var attempt int
	if _, err := fmt.Sscan(line, &what, &token, &at); err != nil {
		return false
	}
	if rest := strings.Fields(line); len(rest) == 6 {
		_, _ = fmt.Sscan(strings.Join(rest[3:], " "), &slot, &attempt, &id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	accepted = token >= r.highest
	r.highest = max(r.highest, token)
	r.writes = append(r.writes, write{token: token, at: monotonic(), accepted: accepted})
	switch what {
	case "start":
		key := fmt.Sprint(id, "/", attempt)
		r.runs[key] = &run{id: id, slot: slot, attempt: attempt, token: token, start: at}
		r.order = append(r.order, key)
	case "end":
		if started := r.runs[fmt.Sprint(id, "/", attempt)]; started != nil {
			started.end = at
		}
	}
	return accepted
}

// log is everything so far.
func (r *resource) log() (writes []write, runs []run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	writes = append(writes, r.writes...)
	for _, key := range r.order {
		runs = append(runs, *r.runs[key])
	}
	return writes, runs
}
