package source

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
)

// The bounds of a stream of events.
const (
	maxLog    = 1000
	maxEvent  = 4 << 20                // bytes of one event
	silence   = 45 * time.Second       // after which a stream is given up: a sign of life comes each 15 s
	comeBack  = 2 * time.Second        // after which the next one begins, unless the server says otherwise
	maxReturn = 30 * time.Second       // whatever it says
	minReturn = 500 * time.Millisecond // likewise: what asks again at once would be a flood
)

// eventID is what the ID of an event looks like: it is sent back as a header.
var eventID = regexp.MustCompile(`^[0-9]{1,20}-[0-9]{1,20}(\+[0-9]{1,6})?$`)

type logDocument struct {
	Log []tenure.Change `json:"log"`
	age
}

// stream follows the changes, over one connection after another.
type stream struct {
	*API
	take func([]tenure.Change)
	say  func(string)

	after   string // ID of the last entry of the log of which all changes were taken
	part    string // ID of the entry behind it of which some were, by the stream; "": of none
	taken   int    // how many of those
	last    string // Last-Event-ID
	read    string // what came up to here was read from the log already, in one piece
	retry   time.Duration
	failing bool
}

// Follow follows the stream of events. It comes back, behind the last one, as often as it is cut.
// As long as there is none, since what stands before the API holds it back, or too many follow
// already, it reads the log instead.
func (a *API) Follow(ctx context.Context, after string, take func([]tenure.Change), say func(string)) {
	s := &stream{API: a, take: take, say: say, after: after, last: after, retry: comeBack}
	for ctx.Err() == nil {
		err := s.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.fail(err); err != nil {
			s.readLog(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.retry):
		}
	}
}

// readLog takes what has come since, without a stream. What keeps it from that was said of the
// stream.
func (s *stream) readLog(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	log, err := s.missed(ctx)
	log = slices.DeleteFunc(log, func(c tenure.Change) bool { return !later(c.ID, s.after) }) // each is there once
	if err == nil && len(log) > 0 {
		s.takeLog(log)
		s.last = s.after
	}
}

// fail says what keeps it from hearing of changes, once.
func (s *stream) fail(err error) {
	if err != nil && !s.failing {
		s.say(err.Error())
	}
	s.failing = err != nil
}

// connect follows one connection, until it is cut.
func (s *stream) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() {
		cancel(fmt.Errorf("%w: the stream of events was silent for %v", tenure.ErrUnreachable, silence))
	})
	defer silent.Stop()
	r, err := s.request(ctx, http.MethodGet, "events", nil, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	if s.last != "" {
		r.Header.Set("Last-Event-ID", s.last)
	}
	response, err := s.send(r, "text/event-stream")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	s.fail(nil)
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	var e event
	for lines.Scan() {
		silent.Reset(silence)
		line := lines.Text()
		switch {
		case line == "":
			if err := s.event(ctx, e); err != nil {
				return err
			}
			e = event{}
		case strings.HasPrefix(line, ":"):
			s.look(ctx)
		default:
			if e.field(line); len(e.data) > maxEvent {
				return fmt.Errorf("an event has more than %d MiB", maxEvent>>20)
			}
			s.setRetry(line)
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the stream of events was cut: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil // the server has ended it in order: it comes back without a word
}

// event is one event as it is read.
type event struct {
	name, id string
	data     []byte
}

func (e *event) field(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "event":
		e.name = value
	case "id":
		e.id = value
	case "data":
		e.data = append(e.data, value...)
	}
}

// setRetry takes how long the server has a client wait before it comes back.
func (s *stream) setRetry(line string) {
	text, is := strings.CutPrefix(line, "retry:")
	if ms, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); is && err == nil && ms > 0 {
		s.retry = max(time.Duration(min(ms, maxReturn.Milliseconds()))*time.Millisecond, s.minReturn) // a greater one would overflow
	}
}

// event takes one event. After an error the next connection must begin where this one did.
func (s *stream) event(ctx context.Context, e event) error {
	switch e.name {
	case "snapshot":
		position, _, _ := strings.Cut(e.id, "+")
		if err := s.catchUp(ctx, position); err != nil {
			return err
		}
	case "change":
		var change tenure.Change
		if json.Unmarshal(e.data, &change) != nil || !later(change.ID, s.read) {
			break
		}
		if change.ID != s.part { // the one before was whole
			s.after, s.part, s.taken = cmp.Or(s.part, s.after), change.ID, 0
		}
		s.taken++
		s.take([]tenure.Change{change})
	}
	if eventID.MatchString(e.id) {
		s.last = e.id
	}
	return nil
}

// catchUp reads what may have been missed up to a position, behind which events follow. What the
// API has read for others may not reach so far yet. What keeps it from that may pass: it is asked
// again, and the error is that of a log that could not be read for as long as a question may take.
func (s *stream) catchUp(ctx context.Context, position string) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		log, err := s.missed(ctx)
		switch s.fail(err); {
		case ctx.Err() != nil && err != nil:
			return err
		case err != nil && !Passing(err):
			return nil
		}
		if len(log) > 0 {
			s.takeLog(log)
		}
		if err == nil && (position == "" || s.after != "" && !later(position, s.after)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// takeLog takes a part of the log that begins where it was read to.
func (s *stream) takeLog(log []tenure.Change) {
	rest := s.untaken(log)
	s.after, s.part = log[len(log)-1].ID, ""
	s.read = s.after
	if len(rest) > 0 {
		s.take(rest)
	}
}

// untaken are those changes of a part of the log that were not taken yet.
func (s *stream) untaken(log []tenure.Change) []tenure.Change {
	i := slices.IndexFunc(log, func(c tenure.Change) bool { return c.ID == s.part })
	if i < 0 || s.part == "" {
		return log
	}
	rest := log[i:]
	for n := s.taken; n > 0 && len(rest) > 0 && rest[0].ID == s.part; n-- {
		rest = rest[1:]
	}
	return rest
}

// missed reads the log behind the last entry that was taken as a whole.
func (s *stream) missed(ctx context.Context) ([]tenure.Change, error) {
	query := url.Values{"limit": {strconv.Itoa(maxLog)}}
	if s.after != "" {
		query.Set("after", s.after)
	}
	var d logDocument
	err := s.get(ctx, "log", query, &d)
	if errors.Is(err, tenure.ErrNotFound) {
		s.say(missing)
		s.after = "" // also if nothing is kept: whatever comes is behind it
		query.Del("after")
		err = s.get(ctx, "log", query, &d)
	}
	return d.Log, err
}

// look finds out, while nothing changes, whether changes can be heard of.
func (s *stream) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	s.fail(s.Ready(ctx))
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
	return than == "" || a[0] > b[0] || a[0] == b[0] && a[1] > b[1]
}
