package simnet

import (
	"io"
	"math/rand/v2"
	"time"
)

type kind uint8

const (
	payload kind = iota
	finish       // the sender has closed
)

// segment is what one Write gave.
type segment struct {
	at      time.Duration // of its delivery
	kind    kind
	data    []byte
	repeat  bool // execute the requests of this segment once more,
	repeats time.Duration
}

// half is one direction of a connection: a queue that one timer empties. Network.mu guards it.
type half struct {
	conn   *conn
	way    Way
	slot   time.Duration // the residue of its deliveries
	rand   *rand.Rand
	queue  []segment
	first  [1]segment // holds the queue of one that is usual
	last   time.Duration
	timer  *time.Timer // runs fire; pending only while the queue is not empty, harmless after Close
	parked bool        // the queue waits for a partition to heal
	dead   bool        // nothing sent from now on arrives
}

func newHalf(c *conn, way Way, slot time.Duration) *half {
	return &half{conn: c, way: way, slot: slot, rand: c.net.random(c.host.name, c.id<<2|int(way))}
}

func (h *half) draw(p float64) bool { return p > 0 && h.rand.Float64() < p }

func (h *half) align(at time.Duration) time.Duration { return align(at, h.slot) }

// between draws a duration from lo to hi.
func (h *half) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(h.rand.Int64N(int64(hi-lo)+1))
}

func (h *half) latency() time.Duration {
	f := &h.conn.host.faults
	if f.MinLatency == 0 && f.MaxLatency == 0 {
		return h.between(200*time.Microsecond, 2*time.Millisecond)
	}
	return h.between(f.MinLatency, f.MaxLatency)
}

// send draws the fate of s and queues it.
func (h *half) send(s segment) {
	c, n, f := h.conn, h.conn.net, &h.conn.host.faults
	if h.dead || n.closed {
		return
	}
	delay := h.latency()
	if s.kind == payload {
		lose, late := f.LoseRequest, f.DelayRequest
		if h.way == Replies {
			lose, late = f.LoseReply, f.DelayReply
		}
		switch {
		case h.draw(f.Cut):
			n.event(c.host.name, "cut", h.way.String(), int64(c.id))
			c.reset()
			return
		case h.draw(lose):
			n.event(c.host.name, "lost", h.way.String(), int64(c.id))
			h.dead = true
			return
		case h.draw(late):
			delay += h.between(f.DelayMin, f.DelayMax)
			n.event(c.host.name, "delayed", h.way.String(), int64(delay))
		}
		if h.way == Requests && h.draw(f.Duplicate) {
			s.repeat, s.repeats = true, h.between(0, f.DuplicateWithin)
		}
	}
	at := n.Elapsed() + delay
	if s.kind == payload && len(s.data) > 1 {
		switch {
		case h.draw(f.Tear):
			n.event(c.host.name, "torn", h.way.String(), int64(c.id))
			h.push(h.piece(&s), at)
			h.dead = true
			return
		case h.draw(f.Dribble):
			n.event(c.host.name, "dribbled", h.way.String(), int64(c.id))
			last := at + h.between(0, f.DelayMax)
			for range 3 {
				if len(s.data) > 1 {
					h.push(h.piece(&s), at)
				}
			}
			at = last
		}
	}
	h.push(s, at)
}

// piece takes bytes off the front of s, never all.
func (h *half) piece(s *segment) segment {
	size := 1 + h.rand.IntN(len(s.data)-1)
	front := segment{data: s.data[:size:size]}
	s.data = s.data[size:]
	return front
}

// push queues s for delivery at that instant, or behind what is queued.
func (h *half) push(s segment, at time.Duration) {
	s.at = h.next(at)
	if len(h.queue) == 0 {
		h.queue = h.first[:0]
	}
	h.queue = append(h.queue, s)
	if len(h.queue) == 1 {
		h.arm()
	}
}

// next gives the delivery at or after at, and after all earlier ones.
func (h *half) next(at time.Duration) time.Duration {
	h.last = h.align(max(at, h.last+1))
	return h.last
}

func (h *half) arm() {
	wait := h.queue[0].at - h.conn.net.Elapsed()
	if h.timer == nil {
		h.timer = time.AfterFunc(wait, h.fire)
	} else {
		h.timer.Reset(wait)
	}
}

// clear loses what is on its way and all that would follow.
func (h *half) clear() {
	h.queue, h.dead, h.parked = nil, true, false
}

// fire delivers what is due.
func (h *half) fire() {
	c, n := h.conn, h.conn.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(h.queue) > 0 && !h.parked && !n.closed {
		s := h.queue[0]
		switch {
		case s.at > n.Elapsed():
			h.arm()
			return
		case c.host.cut&h.way != 0:
			n.event(c.host.name, "held", h.way.String(), int64(c.id))
			h.parked = true
			return
		}
		copy(h.queue, h.queue[1:])
		h.queue = h.queue[:len(h.queue)-1]
		switch {
		case h.way == Requests:
			c.server.arrive(arrival{conn: c, segment: s})
			c.forget()
		case s.kind == finish:
			c.fail(io.EOF)
		case !c.closed:
			n.reply(c, s.data)
		}
	}
}

// reply is the arrival of data at the client.
func (n *Network) reply(c *conn, data []byte) {
	detail := ""
	if data[0] == '-' {
		detail = string(data[1:min(len(data), 60)])
	}
	n.event(c.host.name, "reply", detail, int64(len(data)))
	c.buf = append(c.buf, data...)
	c.changed.Broadcast()
}

// heal ends the wait for a partition: what was held arrives now, in order, or the direction is
// dead.
func (h *half) heal() {
	c, n := h.conn, h.conn.net
	h.parked = false
	if !h.draw(c.host.faults.Stuck) {
		n.event(c.host.name, "held-lost", h.way.String(), int64(len(h.queue)))
		h.clear()
		return
	}
	n.event(c.host.name, "held-sent", h.way.String(), int64(len(h.queue)))
	now := n.Elapsed()
	h.last = now
	for i := range h.queue {
		h.queue[i].at = h.next(max(now+h.latency(), h.queue[i].at))
	}
	h.arm()
}
