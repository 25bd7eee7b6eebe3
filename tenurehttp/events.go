package tenurehttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
)

// The times of a stream of events.
const (
	pingInterval = 15 * time.Second // between two signs of life, if nothing happens
	writeBound   = 10 * time.Second // for one write: a client that does not read is given up
	closeBound   = time.Second      // likewise, once the handler is closed
	linger       = 10 * time.Second // for which changes are followed after the last client has left
	retryAfter   = 2 * time.Second  // which a client waits before it comes back
	askAgain     = time.Minute      // between two questions whether the client may still read
)

// hub follows the changes of the cluster while somebody wants to hear of them, once for all
// clients. It keeps the last ones. Each client reads them at its own pace: one that is slow holds
// up nobody, and one that falls behind too far is told to begin anew.
type hub struct {
	h *Handler

	mu       sync.Mutex
	streams  map[*stream]struct{}
	follower *follower // nil: nobody listens
	known    bool      // the last changes are there
	ring     []entry
	first    int           // number of the first one in ring
	news     chan struct{} // closed when there is something new
}

// follower is one time of following. What comes of an earlier one counts no more.
type follower struct{ hub *hub }

// entry is a change, and its place among those of the same ID.
type entry struct {
	change tenure.Change
	nth    int
	text   []byte // the event, as it is sent to every client
}

// id is what a client names to go on behind it.
func (e entry) id() string {
	if e.nth == 0 {
		return e.change.ID
	}
	return e.change.ID + "+" + strconv.Itoa(e.nth)
}

func (b *hub) init(h *Handler) {
	b.h, b.news, b.streams = h, make(chan struct{}), make(map[*stream]struct{})
}

// enter lets a client in, if there is room.
func (b *hub) enter(s *stream) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.streams) >= b.h.opts.MaxStreams {
		return false
	}
	b.streams[s] = struct{}{}
	if b.follower == nil {
		f := &follower{b}
		b.follower = f
		ctx, end := context.WithCancel(context.Background())
		go f.rest(end)   // ends with the handler, or if nobody listens
		go f.follow(ctx) // ends with rest
	}
	return true
}

func (b *hub) leave(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.streams, s)
}

// cut has no client that does not read hold up the end of its stream. The handler is closed.
func (b *hub) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.streams {
		s.hurry()
	}
}

// rest ends the following once nobody has listened for a while.
func (f *follower) rest(end func()) {
	defer end()
	b, idle := f.hub, false
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case <-b.h.done:
			return
		case <-tick.C:
		}
		b.mu.Lock()
		over := idle && len(b.streams) == 0
		idle = len(b.streams) == 0
		if over {
			b.follower, b.known = nil, false
			b.forgetLast()
		}
		b.mu.Unlock()
		if over {
			return
		}
	}
}

// forgetLast forgets the last entry of the log: further changes of it may have been on their way to
// a follower that has ended. Whoever follows next reads it again.
func (b *hub) forgetLast() {
	n := len(b.ring)
	for n > 0 && b.ring[n-1].change.ID == b.ring[len(b.ring)-1].change.ID {
		n--
	}
	b.ring = b.ring[:n:n]
}

// follow takes the changes until ctx is done.
func (f *follower) follow(ctx context.Context) {
	for change, err := range f.hub.h.control.Registry().Watch(ctx) {
		f.hub.h.now.expire() // before a client hears of it, and reads
		switch {
		case change.Type == tenure.ChangeSnapshot:
			f.resume(ctx, change.ID)
		case err == nil:
			f.note(false, change)
		}
	}
}

// note takes changes, and wakes the clients. anew: what was known before may have a gap after it.
func (f *follower) note(anew bool, changes ...tenure.Change) {
	b := f.hub
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.follower != f {
		return
	}
	if anew {
		b.ring, b.first = nil, b.first+len(b.ring)+1
	}
	for _, c := range changes {
		e := entry{change: c}
		if n := len(b.ring); n > 0 && b.ring[n-1].change.ID == c.ID {
			e.nth = b.ring[n-1].nth + 1
		}
		e.text = eventText("change", e.id(), c)
		b.ring = append(b.ring, e)
	}
	if over := len(b.ring) - maxLog; over > 0 {
		b.ring, b.first = b.ring[over:], b.first+over // clients may still read it: nothing is written over
	}
	b.known = true
	close(b.news)
	b.news = make(chan struct{})
}

// resume begins at a position, behind which each change follows: what was missed since the last one
// that is known is read. If that cannot be, every client begins anew.
func (f *follower) resume(ctx context.Context, position string) {
	f.hub.mu.Lock()
	last := ""
	if n := len(f.hub.ring); n > 0 {
		last = f.hub.ring[n-1].change.ID
	}
	f.hub.mu.Unlock()
	registry := f.hub.h.control.Registry()
	var missed []tenure.Change
	gone := last == "" && position != "" || later(last, position)
	if !gone && last != position {
		var err error
		missed, err = registry.Log(ctx, last, maxLog)
		gone = err != nil || len(missed) == 0 || later(position, missed[len(missed)-1].ID)
	}
	if gone {
		missed, _ = registry.Recent(ctx, maxLog) // without it no client can go on where it was, and begins anew
	}
	for len(missed) > 0 && later(missed[len(missed)-1].ID, position) { // it comes again
		missed = missed[:len(missed)-1]
	}
	f.note(gone, missed...)
}

// later reports whether an entry of the log was written after another one. "" was before all.
func later(id, than string) bool {
	number := func(id string) (n [2]uint64) {
		ms, seq, _ := strings.Cut(id, "-")
		n[0], _ = strconv.ParseUint(ms, 10, 64)
		n[1], _ = strconv.ParseUint(seq, 10, 64)
		return n
	}
	a, b := number(id), number(than)
	return a[0] > b[0] || a[0] == b[0] && a[1] > b[1]
}

// cursor is where a client stands.
type cursor struct {
	next  int
	after string // the ID behind which it wants to go on; read once
	begun bool
}

// read returns what a client has not got yet: whether it must begin anew, from which position, and
// the changes. Then it waits for news.
func (b *hub) read(c *cursor) (anew bool, position string, changes []entry, news <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known {
		return false, "", nil, b.news
	}
	end := b.first + len(b.ring)
	if !c.begun {
		c.begun, c.next = true, -1
		for i, e := range b.ring {
			if e.id() == c.after {
				c.next = b.first + i + 1
			}
		}
	}
	if c.next < b.first {
		c.next = end
		if len(b.ring) > 0 {
			position = b.ring[len(b.ring)-1].id()
		}
		return true, position, nil, b.news
	}
	changes = b.ring[c.next-b.first:]
	c.next = end
	return false, "", changes, b.news
}

// sign is the sign of life that a client gets while nothing happens. As long as the log could not
// be read no change is heard of: the client must read the snapshot now and then.
func (b *hub) sign() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known {
		return []byte(": ping\n\n")
	}
	return eventText("snapshot", "", tenure.Change{Type: tenure.ChangeSnapshot})
}

// events streams the changes, see docs/http.md.
func (h *Handler) events(w http.ResponseWriter, r *request) error {
	if h.isClosed() {
		return stopped()
	}
	header := w.Header()
	if r.Method == http.MethodHead {
		header.Set("Content-Type", "text/event-stream")
		return nil
	}
	s := &stream{w: w, control: http.NewResponseController(w), closed: h.done}
	if !h.hub.enter(s) {
		return &problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: fmt.Sprintf("%d clients follow the events already", h.opts.MaxStreams), retry: 5}
	}
	defer h.hub.leave(s)
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // a proxy must not collect what it gets
	fmt.Fprintf(&s.text, "retry: %d\n\n", retryAfter.Milliseconds())
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	var again <-chan time.Time // nil: reads are open
	if h.opts.GuardReads {
		ask := time.NewTicker(askAgain)
		defer ask.Stop()
		again = ask.C
	}
	for at := (cursor{after: r.Header.Get("Last-Event-ID")}); ; {
		anew, position, changes, news := h.hub.read(&at)
		if anew {
			s.text.Write(eventText("snapshot", position, tenure.Change{ID: position, Type: tenure.ChangeSnapshot}))
		}
		for _, e := range changes {
			s.text.Write(e.text)
		}
		switch err := s.send(); {
		case errors.Is(err, http.ErrNotSupported):
			return &problem{Status: http.StatusInternalServerError, Code: "misconfigured", Detail: heldBack}
		case err != nil: // the client has gone
			return nil
		}
		select {
		case <-news:
		case <-ping.C:
			s.text.Write(h.hub.sign())
		case <-again:
			if _, err := h.authorize(r.Request, ActionRead); err != nil { // the client hears why when it comes back
				return nil
			}
		case <-r.Context().Done():
			return nil
		case <-h.done:
			s.hurry() // what the server has to write behind it
			return nil
		}
	}
}

// heldBack is why there is no stream.
const heldBack = "the events cannot be sent as they come: what stands before this handler, such as http.TimeoutHandler, " +
	"holds answers back until they end (fix: leave the path of the events out of it)"

// stream is what one client gets.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	closed  <-chan struct{} // once the handler is
	begun   bool            // the header was sent
	text    bytes.Buffer
}

// hurry bounds what is written from now on. Some writers have no deadlines.
func (s *stream) hurry() { _ = s.control.SetWriteDeadline(time.Now().Add(closeBound)) }

// flushes reports whether the innermost writer can send what it has. Writers of frameworks say that
// they can, whatever is behind them: those of gin and echo panic then.
func flushes(w http.ResponseWriter) bool {
	for {
		outer, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			break
		}
		w = outer.Unwrap()
	}
	switch w.(type) {
	case http.Flusher, interface{ FlushError() error }:
		return true
	}
	return false
}

// eventText is an event as it is sent. The data are one line: JSON has no line breaks.
func eventText(name, id string, c tenure.Change) []byte {
	data, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	text := fmt.Appendf(nil, "event: %s\n", name)
	if id != "" {
		text = fmt.Appendf(text, "id: %s\n", id)
	}
	return fmt.Appendf(text, "data: %s\n\n", data)
}

// send writes what was added. The error is http.ErrNotSupported, and nothing was written, if the
// client would get nothing before the end.
func (s *stream) send() error {
	if s.text.Len() == 0 {
		return nil
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(writeBound)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	select {
	case <-s.closed: // the deadline is later than that of cut
		s.hurry()
	default:
	}
	if !s.begun {
		if !flushes(s.w) {
			return http.ErrNotSupported
		}
		if err := s.control.Flush(); err != nil {
			return err
		}
		s.begun = true
	}
	if _, err := s.w.Write(s.text.Bytes()); err != nil {
		return err
	}
	s.text.Reset()
	if err := s.control.Flush(); err != nil {
		return err
	}
	// It is for this write: HTTP/2 ends a stream whose deadline passes, though nothing is written.
	if err := s.control.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
