package redistest

import (
	"net"
	"sync"
	"time"
)

// queue is what waits in one direction of a link. It has no limit: nothing pushes back on a sender,
// memory does.
type queue struct {
	more chan struct{} // of size 1: something was put

	mu      sync.Mutex
	parcels []parcel
}

// parcel is a frame or the end of the stream.
type parcel struct {
	frame
	end   bool
	since time.Time
	luck  float64 // the part of the jitter that falls to it
}

func (q *queue) put(it parcel) {
	q.mu.Lock()
	q.parcels = append(q.parcels, it)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// clear empties the queue and returns how many frames were in it.
func (q *queue) clear() (frames int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range q.parcels {
		if !it.end {
			frames++
		}
	}
	q.parcels = nil
	return frames
}

// next waits for a parcel; false: done was closed.
func (q *queue) next(done <-chan struct{}) (it parcel, ok bool) {
	for {
		q.mu.Lock()
		if len(q.parcels) > 0 {
			it, q.parcels = q.parcels[0], q.parcels[1:]
			q.mu.Unlock()
			return it, true
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-done:
			return parcel{}, false
		}
	}
}

// lose counts bytes that were swallowed.
func (p *Proxy) lose(l *link, way direction, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.lost = true
	p.lost[way].Add(int64(n))
}

// look returns the faults of now and a channel that is closed when they change. If they say that
// a parcel is lost, this is the moment at which it is: a Heal either comes before it or sees the
// loss.
func (p *Proxy) look(l *link, way direction) (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := *l.faults
	if f.way[way].drop {
		l.lost = true
	}
	return f, p.changed
}

// write delivers what waits in one direction, to nobody if conn is nil.
func (l *link) write(way direction, conn *net.TCPConn) {
	for {
		it, ok := l.queue[way].next(l.done)
		if !ok {
			return
		}
		l.deliver(way, conn, it)
		if it.end {
			return
		}
		l.p.waiting[way].Add(-1)
	}
}

// deliver waits until a parcel is to be written or swallowed, and does so.
func (l *link) deliver(way direction, conn *net.TCPConn, it parcel) {
	submitted := way == replies
	for {
		f, changed := l.p.look(l, way)
		w := f.way[way]
		pause := time.Until(it.since.Add(w.delay + time.Duration(it.luck*float64(w.jitter))))
		switch {
		case w.drop || conn == nil:
			l.p.lost[way].Add(int64(len(it.raw)))
			return
		case w.hold:
			pause = 1<<63 - 1
		case pause > 0:
		case it.end:
			endStream(way, conn)
			return
		default:
			if !submitted && !l.submit(it.args, f) {
				return
			}
			submitted = true
			n := len(it.raw)
			if w.bytes > 0 {
				n = min(n, w.bytes)
			}
			_, err := conn.Write(it.raw[:n])
			if err != nil {
				return // the other direction sees the end of this connection
			}
			l.p.passed[way].Add(int64(n))
			if it.raw = it.raw[n:]; len(it.raw) == 0 && w.bytes == 0 {
				return
			}
			pause = w.tick
		}
		if !l.sleep(pause, changed) || len(it.raw) == 0 && !it.end {
			return
		}
	}
}

// sleep waits for a time or for a change of the faults; it reports false when the link was killed.
func (l *link) sleep(d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-l.done:
		return false
	}
	return true
}

// endStream passes on the end of a stream. A client that is gone still has its requests processed;
// one whose server is gone has nothing to wait for.
func endStream(way direction, conn *net.TCPConn) {
	if way == requests {
		_ = conn.CloseWrite() // fails when there is nothing left to close
	} else {
		_ = conn.Close()
	}
}
