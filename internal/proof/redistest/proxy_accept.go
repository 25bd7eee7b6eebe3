package redistest

import (
	"errors"
	"net"
	"time"
)

// reopenBound is how long the port of a healed proxy may be in somebody else's hands.
const reopenBound = 10 * time.Second

// serve starts to accept connections.
func (p *Proxy) serve(ln net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		_ = ln.Close() // never used
		return
	}
	p.listener = ln
	p.wg.Go(func() { p.accept(ln) }) // ends when the listener is closed, in cut; Close waits
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pollInterval) // out of files, perhaps
			continue
		}
		p.admit(ln, conn.(*net.TCPConn))
	}
}

// admit starts a link for a client, unless the proxy was cut meanwhile.
func (p *Proxy) admit(ln net.Listener, client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != ln {
		reset(client)
		return
	}
	p.accepted.Add(1)
	l, ctx := newLink(p, client, p.faults)
	p.links[l] = struct{}{}
	p.wg.Go(func() { l.run(ctx) }) // ends with its connections, at the latest through kill; Close waits
}

// forget is called by a link that has ended.
func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	for way := range l.queue {
		p.waiting[way].Add(-l.queue[way].clear())
	}
}

// cut resets every connection and closes the listener, whose address refuses connections then.
func (p *Proxy) cut() {
	p.mu.Lock()
	ln := p.listener
	p.listener = nil
	p.mu.Unlock()
	if ln != nil {
		_ = ln.Close() // nothing to be done about it
	}
	p.Reset()
}

// reopen ends what cut began.
func (p *Proxy) reopen() {
	err := poll(reopenBound, func() error {
		p.mu.Lock()
		needed := p.listener == nil && !p.closed
		p.mu.Unlock()
		if !needed {
			return nil
		}
		ln, err := net.Listen("tcp", p.addr)
		if err == nil {
			p.serve(ln)
		}
		return err
	})
	if err != nil {
		p.t.Errorf("redistest: heal proxy: %v", err)
	}
}

// someLinks returns the links that pick picks; pick is called with mu held.
func (p *Proxy) someLinks(pick func(*link) bool) []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []*link
	for l := range p.links {
		if pick(l) {
			some = append(some, l)
		}
	}
	return some
}

// reset closes a connection with RST.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // both fail on a closed connection only
	_ = conn.Close()
}
