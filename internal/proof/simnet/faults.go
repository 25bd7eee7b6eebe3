package simnet

import "time"

// Way is a direction of traffic, seen from the client.
type Way uint8

// The directions. Cutting only Replies makes requests take effect of which no answer comes back.
const (
	Requests Way = 1 << iota
	Replies
	Both = Requests | Replies
)

func (w Way) String() string { return [...]string{"none", "requests", "replies", "both"}[w&Both] }

// Faults says how the traffic of a host suffers all the time. Probabilities are per segment: what
// go-redis writes at once, a command or a pipeline, and what the server answers to it; a pub/sub
// message. Zero is a healthy network.
type Faults struct {
	MinLatency, MaxLatency time.Duration // one way; both 0: 200 µs to 2 ms

	DelayRequest, DelayReply float64       // a segment, and what follows on its connection, takes longer by
	DelayMin, DelayMax       time.Duration // DelayMin to DelayMax

	LoseRequest, LoseReply float64 // a segment and all that would follow on its connection is lost, silently
	Cut                    float64 // the connection is reset instead of taking the segment

	Dribble float64 // a segment arrives in pieces, the last of them up to DelayMax later
	Tear    float64 // only the first bytes of a segment arrive, within a frame, and nothing that follows on its connection

	Duplicate       float64       // a request is executed twice, as if a client had sent it again;
	DuplicateWithin time.Duration // the copy, whose reply nobody gets, comes 0 to DuplicateWithin later, whatever became of the connection

	Stuck float64 // what a partition held arrives when it heals (else its connection is dead in that direction)
}

// SetFaults sets the faults of host, or with "" of every host, present and to come.
func (n *Network) SetFaults(host string, f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if host == "" {
		n.faults = f
	}
	for _, h := range n.each(host) {
		h.faults = f
	}
}

// Partition cuts host ("": every host) off in the given direction for d; with d ≤ 0, and until
// then, Heal ends it. A longer partition of the same direction prevails. What arrives meanwhile is
// held, or lost, as Faults.Stuck says.
func (n *Network) Partition(host string, way Way, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.each(host) {
		n.event(h.name, "partition", way.String(), int64(d))
		h.cut |= way
		until := align(n.Elapsed()+d, h.slot)
		for _, one := range []Way{Requests, Replies} {
			switch {
			case way&one == 0:
			case d <= 0:
				h.until[one] = 1<<63 - 1
			default:
				h.until[one] = max(h.until[one], until)
			}
		}
		if d > 0 {
			// Ends by itself; does nothing after Close.
			time.AfterFunc(until-n.Elapsed(), func() { n.heal(h, false) })
		}
	}
}

// Heal ends the partitions of host, or with "" of every host.
func (n *Network) Heal(host string) {
	n.mu.Lock()
	hosts := n.each(host)
	n.mu.Unlock()
	for _, h := range hosts {
		n.heal(h, true)
	}
}

// heal opens the directions whose time has come, or all.
func (n *Network) heal(h *host, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	opened := Way(0)
	for _, one := range []Way{Requests, Replies} {
		if h.cut&one != 0 && (all || h.until[one] <= n.Elapsed()) {
			opened |= one
			h.until[one] = 0
		}
	}
	if opened == 0 || n.closed {
		return
	}
	h.cut &^= opened
	n.event(h.name, "heal", opened.String(), 0)
	close(h.healed)
	h.healed = make(chan struct{})
	for _, c := range append([]*conn(nil), h.conns...) {
		for _, half := range []*half{c.up, c.down} {
			if half.parked && half.way&opened != 0 {
				half.heal()
			}
		}
		c.forget()
	}
}

// Cut resets every connection of host, or with "" of every host, within 10 µs: each at an instant
// of its own, so that what the calls on them do next does not begin at one instant. What was on its
// way is lost.
func (n *Network) Cut(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.each(host) {
		n.event(h.name, "cut", Both.String(), int64(len(h.conns)))
		for _, c := range h.conns {
			c.resetSoon()
		}
	}
}

// Deafen lets every subscription of host die without a sign, as behind a middlebox that has
// forgotten it: the connection stays open and nothing passes any more. Others are not touched.
func (n *Network) Deafen(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.each(host) {
		for _, c := range h.conns {
			if c.subscribed.Load() && !c.closed {
				n.event(h.name, "deafened", Both.String(), int64(c.id))
				c.up.clear()
				c.down.clear()
			}
		}
	}
}

// Hears reports whether host has a subscription over which messages arrive.
func (n *Network) Hears(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.each(host) {
		for _, c := range h.conns {
			if c.subscribed.Load() && !c.closed && !c.gone && c.err == nil && !c.down.dead && h.cut&Replies == 0 {
				return true
			}
		}
	}
	return false
}

// Crash is the death of the process on host: its connections end, what it had written is still
// delivered, and nothing that its clients try from now on leaves the machine. Cancel what runs
// there only after Crash, so that no farewell gets out. A Dialer and a Client made later belong to
// its next life.
func (n *Network) Crash(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.each(host) {
		n.event(h.name, "crash", "", int64(h.life))
		h.life++
		h.dials = 0
		for _, c := range append([]*conn(nil), h.conns...) {
			c.buf, c.read = nil, 0
			c.fail(errCrashed)
			c.down.clear()
			c.up.send(segment{kind: finish})
			c.up.dead = true
		}
		close(h.healed) // wake its dials
		h.healed = make(chan struct{})
	}
}
