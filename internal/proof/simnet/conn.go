package simnet

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// conn is a connection, and as a net.Conn its client end. Network.mu guards it all, but for the
// fields of the server end, which belong to the goroutine that executes for that server.
type conn struct {
	net      *Network
	host     *host
	id       int // per host
	up, down *half

	// client end
	buf      []byte // arrived, from read on not yet read
	read     int
	err      error // what Read answers after buf
	closed   bool
	deadline time.Time
	changed  *sync.Cond  // buf, err, closed or deadline
	alarm    *time.Timer // wakes a Read at its deadline; armed by Read, and stopped when it returns

	// server end
	server     *Server
	gone       bool // closed by the server; guarded by Network.mu
	peer       *server.Peer
	in         []byte // the beginning of a request
	subscribed atomic.Bool
	inTx       bool
}

// lifeDials is how many dials of one life have numbers of their own.
const lifeDials = 10_000

func newConn(h *host) *conn {
	h.dials++
	c := &conn{net: h.net, host: h, id: h.life*lifeDials + h.dials, changed: sync.NewCond(&h.net.mu)}
	slot := h.slot + time.Duration(2*(1+c.id%(hostSlots/2-1)))
	c.up = newHalf(c, Requests, slot)
	c.down = newHalf(c, Replies, slot+1)
	return c
}

func (c *conn) attach(s *Server) {
	c.server = s
	c.peer = server.NewPeer(bufio.NewWriter(serverEnd{c}))
	s.conns = append(s.conns, c)
	c.host.conns = append(c.host.conns, c)
}

// fail makes the client end answer err, once what has arrived is read.
func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
		c.changed.Broadcast()
	}
}

// reset breaks the connection at once: what is on its way is lost. The server hears of it.
func (c *conn) reset() {
	c.fail(syscall.ECONNRESET)
	c.down.clear()
	if !c.up.dead {
		c.up.clear()
		c.up.dead = false
		c.up.send(segment{kind: finish})
		c.up.dead = true
	}
}

// resetSoon resets the connection at the next instant that is its own.
func (c *conn) resetSoon() {
	n := c.net
	at := align(n.Elapsed()+1, c.down.slot)
	// Fires once; does nothing after Close.
	time.AfterFunc(at-n.Elapsed(), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.closed && !c.closed {
			c.reset()
		}
	})
}

func (c *conn) Read(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		wait, expires := time.Until(c.deadline), !c.deadline.IsZero()
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case expires && wait <= 0:
			return 0, os.ErrDeadlineExceeded
		case c.read < len(c.buf):
			size := copy(p, c.buf[c.read:])
			if c.read += size; c.read == len(c.buf) {
				c.buf, c.read = c.buf[:0], 0
			}
			return size, nil
		case c.err != nil:
			return 0, c.err
		}
		if expires {
			wait = c.own(wait)
			if c.alarm == nil {
				c.alarm = time.AfterFunc(wait, c.wake)
			} else {
				c.alarm.Reset(wait)
			}
		}
		c.changed.Wait()
		if expires {
			c.alarm.Stop()
		}
	}
}

// own gives a wait that is up to 10 µs longer and ends at an instant that is the connection's own:
// two calls that began at one instant do not time out at one.
func (c *conn) own(wait time.Duration) time.Duration {
	now := c.net.Elapsed()
	if end := now + wait; end > now && end < 1<<62 {
		return align(end, c.down.slot) - now
	}
	return wait
}

func (c *conn) wake() {
	c.net.mu.Lock()
	c.changed.Broadcast()
	c.net.mu.Unlock()
}

// Write never blocks: what it was given is on its way, or lost.
func (c *conn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case errors.Is(c.err, io.EOF):
		return 0, syscall.EPIPE
	case c.err != nil:
		return 0, c.err
	}
	c.up.send(segment{data: append([]byte(nil), p...)})
	return len(p), nil
}

// Close sends a FIN behind what was written.
func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.changed.Broadcast()
	c.down.clear()
	c.up.send(segment{kind: finish})
	c.forget()
	return nil
}

// forget takes a closed connection that has nothing more to deliver off its host, and tells a
// server to which no FIN came, in place of a keep-alive. It may let go of the lock for a moment.
func (c *conn) forget() {
	if !c.closed || len(c.up.queue) > 0 || c.net.closed {
		return
	}
	for i, other := range c.host.conns {
		if other == c {
			c.host.conns = append(c.host.conns[:i:i], c.host.conns[i+1:]...)
			break
		}
	}
	if !c.gone {
		c.server.arrive(arrival{conn: c, segment: segment{kind: finish}})
	}
}

func (c *conn) LocalAddr() net.Addr  { return address(c.host.name) }
func (c *conn) RemoteAddr() net.Addr { return address(c.server.addr) }

// SetDeadline and SetReadDeadline may be called during a Read.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.deadline = t
	c.changed.Broadcast()
	return nil
}

// SetWriteDeadline does nothing: no write waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn serves go-redis's check of an idle connection: it answers from what has arrived,
// without a descriptor.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return idleCheck{c}, nil }

type idleCheck struct{ c *conn }

func (i idleCheck) Read(func(uintptr) bool) error {
	i.c.net.mu.Lock()
	defer i.c.net.mu.Unlock()
	if i.c.read < len(i.c.buf) {
		return syscall.EBADMSG // bytes that nobody asked for
	}
	return i.c.err
}

func (i idleCheck) Write(func(uintptr) bool) error { return syscall.ENOTSUP }
func (i idleCheck) Control(func(uintptr)) error    { return syscall.ENOTSUP }

// serverEnd is where the server writes.
type serverEnd struct{ c *conn }

func (e serverEnd) Write(p []byte) (int, error) {
	e.c.net.mu.Lock()
	defer e.c.net.mu.Unlock()
	if !e.c.gone && !e.c.closed {
		e.c.down.send(segment{data: append([]byte(nil), p...)})
	}
	return len(p), nil
}
