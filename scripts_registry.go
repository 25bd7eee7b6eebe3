package tenure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// registryStore keeps the instances. Each method is one decision there, which may be asked for again when its answer was lost.
// They are bounded by ctx only as far as the client heeds it, and safe for concurrent use.
type registryStore interface {
	beatInstance(ctx context.Context, b beatCall) (beatReply, error)
	removeInstance(ctx context.Context, id, incarnation string) (verdict string, err error)
	readInstance(ctx context.Context, id string) (e instanceEntry, now int64, err error) // ErrNotFound
	scanInstances(ctx context.Context, cursor string, onlyNew bool) (scanReply, error)

	lookAtBeats(ctx context.Context, l lookCall) (lookReply, error)
	sweepInstances(ctx context.Context, s sweepCall) (sweepReply, error)
	adoptInstances(ctx context.Context, incarnation string, ids []string) (foreign []string, err error)
}

// beatCall registers an instance, or keeps it registered. The record comes in pieces: Redis's time goes between them.
type beatCall struct {
	id, incarnation string
	first           bool  // never registered before: the record of another incarnation is replaced
	notAfter        int64 // by Redis's clock, ms; 0: none
	ttl, takeOver   time.Duration
	head, rest      string // the record up to started_at, and after last_heartbeat
	started         int64  // Unix seconds; 0: now
}

// beatReply is the typed reply of a beat.
type beatReply struct {
	verdict string
	now     int64 // by Redis's clock, ms
	started int64
	other   string // the other incarnation; untrusted
}

// Verdicts of a beat.
const (
	beatJoined      = "joined"
	beatKept        = "kept"
	beatRecovered   = "recovered"
	beatOverwritten = "overwritten"
	beatDuplicate   = "duplicate"
	beatStale       = "stale"
)

// instanceEntry is one entry of the registry. All of it is untrusted, but that the ID is one.
type instanceEntry struct {
	id     string
	beaten bool
	last   int64 // beat, by Redis's clock, ms; 0 where there is none
	record string
}

// scanReply is one page of a listing.
type scanReply struct {
	next      string // cursor of the next page; "0": there is none
	now       int64
	malformed int
	entries   []instanceEntry
}

// lookCall asks who has been silent, longest first, one page at a time.
type lookCall struct {
	silence time.Duration
	from    string // score to go on from; "": the first page
	skip    int64
}

// lookReply is one page of the silent ones, and what the first one needs to know beside.
type lookReply struct {
	now            int64
	records, beats int
	from           string // of the next page; "": there is none
	skip           int64
	ids            []string
}

// sweepCall marks, or removes, the silent ones among the given instances.
type sweepCall struct {
	drifted, down time.Duration
	window        time.Duration // over which removals are counted against the cap
	mark, remove  bool          // what may be done about the silent
	unwatched     time.Duration // silence of a foreign instance that nobody has watched; 0: it was watched
	incarnation   string
	ids           []string
}

// sweepReply has a verdict for each instance of the call.
type sweepReply struct {
	// heldSince is when the hold that runs began, by Redis's clock in ms, and held how many it held
	// then. Both are 0 if none runs that this incarnation began.
	heldSince int64
	held      int
	verdicts  []string
}

// Verdicts of a sweep. What changed nothing has none of these.
const (
	sweepDrifted   = "drifted"
	sweepRecovered = "recovered"
	sweepDown      = "down"
	sweepLeft      = "left"
)

// Verdicts of the removal of one's own record.
const (
	removedLeft   = "left"
	removedAbsent = "absent"
)

const (
	scanCount  = 500 // entries that one page of a listing has, about
	sweepBatch = 100 // instances that one call sweeps
)

// hold is the key that is there while the removal of silent instances is held.
func (k keys) hold() string { return k.ns + ":beats:hold" }

// removed is the zset of the instances that sweeps have removed of late.
func (k keys) removed() string { return k.ns + ":beats:removed" }

func (s *redisStore) beatInstance(ctx context.Context, b beatCall) (beatReply, error) {
	sc := s.scripts.beat
	line, err := s.text(ctx, sc, append(sc.args("3", 13), s.keys.heartbeat(b.id), s.keys.instances(), s.keys.beats(), b.id, b.incarnation,
		oneIf(b.first), b.notAfter, int64(b.ttl/time.Second), b.takeOver.Milliseconds(), s.keys.events(), b.head, b.started, b.rest))
	if err != nil {
		return beatReply{}, err
	}
	return parseBeatReply(line)
}

func parseBeatReply(line string) (beatReply, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 4 {
		return beatReply{}, malformedReply(line)
	}
	r := beatReply{verdict: fields[0], now: natural(fields[1]), started: natural(fields[2])}
	if fields[3] != "-" {
		r.other = fields[3]
	}
	switch r.verdict {
	case beatJoined, beatKept, beatRecovered, beatOverwritten, beatDuplicate, beatStale:
	default:
		return beatReply{}, malformedReply(line)
	}
	if r.now == 0 {
		return beatReply{}, malformedReply(line)
	}
	return r, nil
}

func (s *redisStore) removeInstance(ctx context.Context, id, incarnation string) (string, error) {
	sc := s.scripts.deregister
	return s.text(ctx, sc, append(sc.args("3", 6), s.keys.heartbeat(id), s.keys.instances(), s.keys.beats(), id, incarnation, s.keys.events()))
}

func (s *redisStore) readInstance(ctx context.Context, id string) (instanceEntry, int64, error) {
	sc := s.scripts.instance
	reply, err := s.texts(ctx, sc, append(sc.args("2", 3), s.keys.instances(), s.keys.beats(), id))
	if err != nil {
		return instanceEntry{}, 0, err
	}
	if len(reply) != 4 {
		return instanceEntry{}, 0, malformedReply(reply)
	}
	if reply[1] != "1" {
		return instanceEntry{}, 0, ErrNotFound
	}
	last, beaten := score(reply[2])
	return instanceEntry{id: id, beaten: beaten, last: last, record: reply[3]}, natural(reply[0]), nil
}

func (s *redisStore) scanInstances(ctx context.Context, cursor string, onlyNew bool) (scanReply, error) {
	which := "all"
	if onlyNew {
		which = "new"
	}
	sc := s.scripts.scan
	reply, err := s.texts(ctx, sc, append(sc.args("2", 5), s.keys.instances(), s.keys.beats(), cursor, scanCount, which))
	if err != nil {
		return scanReply{}, err
	}
	return parseScanReply(reply)
}

func parseScanReply(reply []string) (scanReply, error) {
	if len(reply) < 3 || len(reply)%3 != 0 {
		return scanReply{}, malformedReply(reply)
	}
	page := scanReply{next: reply[0], now: natural(reply[1]), malformed: int(natural(reply[2]))}
	for i := 3; i < len(reply); i += 3 {
		last, beaten := score(reply[i+1])
		page.entries = append(page.entries, instanceEntry{id: reply[i], beaten: beaten, last: last, record: reply[i+2]})
	}
	return page, nil
}

func (s *redisStore) lookAtBeats(ctx context.Context, l lookCall) (lookReply, error) {
	if l.from == "" {
		l.from, l.skip = "-inf", 0
	}
	sc := s.scripts.look
	reply, err := s.texts(ctx, sc, append(sc.args("2", 6), s.keys.beats(), s.keys.instances(), l.silence.Milliseconds(), l.from, l.skip,
		sweepBatch))
	if err != nil {
		return lookReply{}, err
	}
	return parseLookReply(reply)
}

func parseLookReply(reply []string) (lookReply, error) {
	if len(reply) < 5 || natural(reply[0]) == 0 {
		return lookReply{}, malformedReply(reply)
	}
	return lookReply{
		now: natural(reply[0]), records: int(natural(reply[1])), beats: int(natural(reply[2])), from: reply[3], skip: natural(reply[4]),
		ids: reply[5:],
	}, nil
}

func (s *redisStore) sweepInstances(ctx context.Context, c sweepCall) (sweepReply, error) {
	sc := s.scripts.sweep
	args := append(sc.args(strconv.Itoa(4+len(c.ids)), 12+2*len(c.ids)), s.keys.beats(), s.keys.instances(), s.keys.hold(), s.keys.removed())
	for _, id := range c.ids {
		args = append(args, s.keys.heartbeat(id))
	}
	args = append(args, c.drifted.Milliseconds(), c.down.Milliseconds(), c.window.Milliseconds(), oneIf(c.mark), oneIf(c.remove),
		c.unwatched.Milliseconds(), s.keys.events(), c.incarnation)
	reply, err := s.texts(ctx, sc, withTexts(args, c.ids))
	if err != nil {
		return sweepReply{}, err
	}
	return parseSweepReply(reply, len(c.ids))
}

func parseSweepReply(reply []string, ids int) (sweepReply, error) {
	if len(reply) != 2+ids {
		return sweepReply{}, malformedReply(reply)
	}
	return sweepReply{heldSince: natural(reply[0]), held: int(natural(reply[1])), verdicts: reply[2:]}, nil
}

// oneIf is a condition as a script reads it.
func oneIf(condition bool) string {
	if condition {
		return "1"
	}
	return "0"
}

func (s *redisStore) adoptInstances(ctx context.Context, incarnation string, ids []string) ([]string, error) {
	sc := s.scripts.adopt
	args := append(sc.args("2", 4+len(ids)), s.keys.beats(), s.keys.instances(), s.keys.events(), incarnation)
	return s.texts(ctx, sc, withTexts(args, ids))
}

func withTexts(args []any, texts []string) []any {
	for _, text := range texts {
		args = append(args, text)
	}
	return args
}

// texts runs a script that replies with a list of texts.
func (s *redisStore) texts(ctx context.Context, sc *script, args []any) ([]string, error) {
	reply, err := s.list(ctx, sc, args)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(reply))
	for i, item := range reply {
		text, ok := item.(string)
		if !ok {
			return nil, malformedReply(reply)
		}
		texts[i] = text
	}
	return texts, nil
}

func malformedReply(reply any) error {
	text := fmt.Sprintf("%.300q", reply)
	return fmt.Errorf("%w: malformed reply %s", ErrUnreachable, text[:min(len(text), 300)])
}

// score reads the score of a beat. Somebody may have put anything there that a float64 holds.
func score(text string) (last int64, beaten bool) {
	if text == "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(f) {
		return 0, false
	}
	return int64(min(max(f, 0), 1<<53)), true
}
