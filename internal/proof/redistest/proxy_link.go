package redistest

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// link is one client's connection through the proxy: four goroutines, a reader and a writer per
// direction, with a queue between them so that what waits does not keep later bytes from being
// read.
type link struct {
	p      *Proxy
	client *net.TCPConn
	cancel context.CancelFunc // closes done
	done   <-chan struct{}
	raw    atomic.Bool // not RESP from here on: replies are passed on as they are
	queue  [2]queue

	faults *faults // guarded by p.mu
	lost   bool    // bytes were swallowed; guarded by p.mu

	mu      sync.Mutex
	target  *net.TCPConn // nil before it was dialled
	awaited []awaited    // what the client waits for, in order
	mute    bool         // no reply goes to the client any more
}

// awaited is an answer that is due to the client.
type awaited struct {
	own   bool   // the proxy gives it, else the target
	reply []byte // the proxy's own
	mute  bool   // it is lost, and with it every later one: a stream has no holes
}

func newLink(p *Proxy, client *net.TCPConn, f *faults) (*link, context.Context) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{p: p, client: client, cancel: cancel, done: ctx.Done(), faults: f}
	for way := range l.queue {
		l.queue[way].more = make(chan struct{}, 1)
	}
	return l, ctx
}

// kill resets both connections, which ends every goroutine of the link.
func (l *link) kill() {
	l.cancel()
	reset(l.client)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.target != nil {
		reset(l.target)
	}
}

// run serves the link and returns when both directions have ended or the link was killed.
func (l *link) run(ctx context.Context) {
	defer l.p.forget(l)
	defer l.kill() // the connections have ended in peace before, or a reset is what they need
	var wg sync.WaitGroup
	defer wg.Wait()
	// The goroutines below end with their connection or with kill; the line above waits for them.
	wg.Go(func() { l.read(requests, l.client) })
	target, ok := l.dial(ctx)
	if !ok {
		l.kill() // the closest that an accepted connection comes to being refused
		return
	}
	wg.Go(func() { l.write(requests, target) })
	if target != nil {
		wg.Go(func() { l.read(replies, target) })
		wg.Go(func() { l.write(replies, l.client) })
	}
}

// dial connects to the target, or to nothing while requests are swallowed.
func (l *link) dial(ctx context.Context) (target *net.TCPConn, ok bool) {
	l.p.mu.Lock()
	l.lost = l.faults.way[requests].drop
	unheard := l.lost
	l.p.mu.Unlock()
	if unheard {
		return nil, true
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.p.target)
	if err != nil {
		return nil, false
	}
	l.mu.Lock()
	l.target = conn.(*net.TCPConn)
	l.mu.Unlock()
	if ctx.Err() != nil { // killed before it was there to be reset
		l.kill()
	}
	return l.target, true
}

// read cuts a stream into frames.
func (l *link) read(way direction, conn *net.TCPConn) {
	r := bufio.NewReader(conn)
	for raw := false; ; {
		var f frame
		var err error
		switch {
		case raw || way == replies && l.raw.Load():
			f, err = readSome(r)
		case way == requests:
			f, err = readRequest(r)
		default:
			f, err = readReply(r)
		}
		if errors.Is(err, errNotRESP) {
			raw, err = true, nil
			l.raw.Store(true)
		}
		if way == replies {
			l.settle(f)
		} else if len(f.raw) > 0 {
			l.put(way, parcel{frame: f})
		}
		if err != nil {
			l.put(way, parcel{end: true})
			return
		}
	}
}

// readSome reads what there is, of a stream that is not RESP.
func readSome(r *bufio.Reader) (frame, error) {
	if _, err := r.Peek(1); err != nil {
		return frame{}, err
	}
	raw := make([]byte, r.Buffered())
	n, err := r.Read(raw)
	return frame{raw: raw[:n]}, err
}

func (l *link) put(way direction, it parcel) {
	it.since, it.luck = time.Now(), rand.Float64()
	if !it.end {
		l.p.waiting[way].Add(1)
	}
	l.queue[way].put(it)
}

// settle passes on a reply of the target and the proxy's own replies that were due after it.
func (l *link) settle(f frame) {
	if len(f.raw) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !f.push() && len(l.awaited) > 0 {
		l.mute = l.mute || l.awaited[0].mute
		l.awaited = l.awaited[1:]
	}
	l.reply(f)
	l.replyOwn()
}

// replyOwn sends the proxy's own replies whose turn it is. The caller holds mu.
func (l *link) replyOwn() {
	for len(l.awaited) > 0 && l.awaited[0].own {
		l.mute = l.mute || l.awaited[0].mute
		l.reply(frame{raw: l.awaited[0].reply})
		l.awaited = l.awaited[1:]
	}
}

// reply sends a reply to a client that still hears us. The caller holds mu.
func (l *link) reply(f frame) {
	if l.mute {
		l.p.lose(l, replies, len(f.raw))
	} else {
		l.put(replies, parcel{frame: f})
	}
}

// submit decides what becomes of a request whose time has come and reports whether the target is to
// get it.
func (l *link) submit(cmd []string, f faults) bool {
	if len(cmd) == 0 || l.raw.Load() {
		return true
	}
	var due awaited
	if f.answer != nil {
		due.reply, due.own = f.answer(cmd)
	}
	if due.own {
		l.p.scripted.Add(1)
		due.mute = len(due.reply) == 0
	} else {
		switch name := strings.ToLower(cmd[0]); {
		case strings.HasSuffix(name, "subscribe"):
			return true // confirmed by pushes, one per channel
		case name == "psync" || name == "sync":
			l.raw.Store(true)
		}
		due.mute = f.loseReply != nil && f.loseReply(cmd)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited = append(l.awaited, due)
	l.replyOwn()
	return !due.own
}
