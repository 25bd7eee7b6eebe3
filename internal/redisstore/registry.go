package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

func (s *Store) Heartbeat(ctx context.Context, b store.Heartbeat) (store.HeartbeatReply, error) {
	line, err := s.text(ctx, s.scripts.beat, s.beatArgs(b))
	if err != nil {
		return store.HeartbeatReply{}, err
	}
	return parseBeatReply(line)
}

func (s *Store) beatArgs(b store.Heartbeat) []any {
	sc := s.scripts.beat
	keys := "7"
	if len(b.Metrics) > 0 {
		keys = "8"
	}
	args := append(sc.args(keys, 19+2*len(b.Metrics)), s.keys.Heartbeat(b.ID), s.keys.Instances(), s.keys.Beats(), s.keys.Log(), s.keys.Inbox(b.ID),
		s.keys.Words(), s.keys.Told())
	if len(b.Metrics) > 0 {
		args = append(args, s.keys.Metrics(b.ID))
	}
	args = append(args, b.ID, b.Incarnation, oneIf(b.First), b.NotAfter, int64(b.TTL/time.Second), b.TakeOver.Milliseconds(), s.keys.Events(), b.Head, b.Started, b.Rest)
	if len(b.Metrics) > 0 {
		args = append(args, int64(b.MetricsTTL/time.Second))
		for _, m := range b.Metrics {
			args = append(args, m.Name, strconv.FormatFloat(m.Value, 'g', -1, 64))
		}
	}
	return args
}

// Carries reports whether the acquires of a lease can travel with the heartbeats: both go through
// the same client, to one slot.
func (s *Store) Carries(l store.Lease) bool {
	of, is := l.(*Lease)
	return is && s.Pipelines() && of.rdb == s.rdb && s.tag(of.key) == s.tag(s.keys.Instances())
}

func (s *Store) HeartbeatWith(ctx context.Context, b store.Heartbeat, rider *store.Rider) (reply store.HeartbeatReply, err error) {
	of := rider.Lease.(*Lease)
	answered := sync.OnceFunc(rider.Answered)
	defer answered()
	err, rider.Err = store.ErrCallEnded, store.ErrCallEnded // stand if the client ends this goroutine
	s.carried.doAll([]request{
		{store: of.Store, ctx: ctx, script: s.scripts.acquire, key: of.key, args: of.acquireArgs(rider.Request), newCmd: newText},
		{store: s, ctx: ctx, script: s.scripts.beat, key: s.keys.Instances(), args: s.beatArgs(b), newCmd: newText},
	}, func(i int, cmd redis.Cmder, failed error) {
		switch {
		case failed != nil && i == 0:
			rider.Err = failed
		case failed != nil:
			err = failed
		case i == 0:
			rider.Reply, rider.Err = parseLeaseReply(cmd.(*redis.StringCmd).Val())
		default:
			reply, err = parseBeatReply(cmd.(*redis.StringCmd).Val())
		}
	}, func(taken []int) {
		if slices.Contains(taken, 0) {
			answered()
		}
	})
	return reply, err
}

func parseBeatReply(line string) (store.HeartbeatReply, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 6 {
		return store.HeartbeatReply{}, malformedReply(line)
	}
	r := store.HeartbeatReply{Verdict: membership.Verdict(fields[0]), Now: store.Natural(fields[1]), Started: store.Natural(fields[2]), Commands: fields[4] == "1",
		Instances: int(min(store.Natural(fields[5]), store.MaxInstances))}
	if fields[3] != "-" {
		r.Other = fields[3]
	}
	switch r.Verdict {
	case membership.Joined, membership.Kept, membership.Recovered, membership.Overwritten, membership.Duplicate, membership.Stale:
	default:
		return store.HeartbeatReply{}, malformedReply(line)
	}
	if r.Now == 0 {
		return store.HeartbeatReply{}, malformedReply(line)
	}
	return r, nil
}

func (s *Store) Remove(ctx context.Context, id, incarnation string) (string, error) {
	sc := s.scripts.deregister
	return s.text(ctx, sc, append(sc.args("6", 9), s.keys.Heartbeat(id), s.keys.Instances(), s.keys.Beats(), s.keys.Log(), s.keys.Words(), s.keys.Told(), id, incarnation, s.keys.Events()))
}

func (s *Store) Instance(ctx context.Context, id string) (store.Entry, int64, error) {
	sc := s.scripts.instance
	reply, err := s.texts(ctx, sc, append(sc.args("2", 3), s.keys.Instances(), s.keys.Beats(), id))
	if err != nil {
		return store.Entry{}, 0, err
	}
	if len(reply) != 4 {
		return store.Entry{}, 0, malformedReply(reply)
	}
	if reply[1] != "1" {
		return store.Entry{}, 0, store.ErrNotFound
	}
	last, beaten := score(reply[2])
	return store.Entry{ID: id, Beaten: beaten, Last: last, Record: reply[3]}, store.Natural(reply[0]), nil
}

func (s *Store) Scan(ctx context.Context, cursor string, onlyNew bool) (store.ScanReply, error) {
	which := "all"
	if onlyNew {
		which = "new"
	}
	sc := s.scripts.scan
	reply, err := s.texts(ctx, sc, append(sc.args("2", 5), s.keys.Instances(), s.keys.Beats(), cursor, store.ScanCount, which))
	if err != nil {
		return store.ScanReply{}, err
	}
	return parseScanReply(cursor, reply)
}

func parseScanReply(cursor string, reply []string) (store.ScanReply, error) {
	if len(reply) < 3 || len(reply)%3 != 0 {
		return store.ScanReply{}, malformedReply(reply)
	}
	page := store.ScanReply{Next: reply[0], Now: store.Natural(reply[1]), Malformed: int(store.Natural(reply[2]))}
	_, before, _ := strings.Cut(cursor, " ")
	next, server, _ := strings.Cut(page.Next, " ")
	page.Anew = before != "" && server != "" && server != before
	if next == "0" {
		page.Next = next
	}
	for i := 3; i < len(reply); i += 3 {
		last, beaten := score(reply[i+1])
		page.Entries = append(page.Entries, store.Entry{ID: reply[i], Beaten: beaten, Last: last, Record: reply[i+2]})
	}
	return page, nil
}

func (s *Store) Count(ctx context.Context, drifted, down time.Duration) (store.CountReply, error) {
	sc := s.scripts.count
	line, err := s.text(ctx, sc, append(sc.args("3", 5), s.keys.Instances(), s.keys.Beats(), s.keys.Words(), drifted.Milliseconds(), down.Milliseconds()))
	if err != nil {
		return store.CountReply{}, err
	}
	return parseCountReply(line)
}

func parseCountReply(line string) (store.CountReply, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 8 {
		return store.CountReply{}, malformedReply(line)
	}
	var n [8]int
	for i, field := range fields {
		n[i] = int(store.Natural(field))
	}
	return store.CountReply{Records: n[0], Beats: n[1], Down: n[2], Drifted: n[3], Joining: n[4], Draining: n[5], Other: n[6], Strange: n[7]}, nil
}

func (s *Store) Losses(ctx context.Context) (held, lost int, err error) {
	held, lost, err = s.losses(ctx, s.keys.Hold(), s.keys.Lost())
	if err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") { // while a slot moves, keys that need not exist can be asked for one by one only
		if held, _, err = s.losses(ctx, s.keys.Hold(), s.keys.Hold()); err == nil {
			_, lost, err = s.losses(ctx, s.keys.Lost(), s.keys.Lost())
		}
	}
	return held, lost, err
}

func (s *Store) losses(ctx context.Context, hold, gone string) (held, lost int, err error) {
	sc := s.scripts.losses
	line, err := s.text(ctx, sc, append(sc.args("2", 2), hold, gone))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Split(line, " ")
	if len(fields) != 2 {
		return 0, 0, malformedReply(line)
	}
	return int(store.Natural(fields[0])), int(store.Natural(fields[1])), nil
}

func (s *Store) LogEnd(ctx context.Context) (string, error) {
	cmd := redis.NewXMessageSliceCmd(ctx, "xrevrange", s.keys.Log(), "+", "-", "count", 1)
	if err := s.read(ctx, s.keys.Log(), cmd); err != nil {
		return "", s.explain("XREVRANGE", err)
	}
	if len(cmd.Val()) == 0 {
		return "", nil
	}
	return cmd.Val()[0].ID, nil
}

func (s *Store) LogTail(ctx context.Context, limit int) ([]store.LogEntry, error) {
	cmd := redis.NewXMessageSliceCmd(ctx, "xrevrange", s.keys.Log(), "+", "-", "count", limit)
	if err := s.read(ctx, s.keys.Log(), cmd); err != nil {
		return nil, s.explain("XREVRANGE", err)
	}
	entries := make([]store.LogEntry, 0, len(cmd.Val()))
	for _, message := range slices.Backward(cmd.Val()) {
		text := func(field string) string {
			value, _ := message.Values[field].(string)
			return value
		}
		entries = append(entries, logEntry(message.ID, text("event"), text("instances"), text("role"), text("token"), text("reason"), text("count")))
	}
	return entries, nil
}

func (s *Store) Log(ctx context.Context, after string, limit int) (store.LogReply, error) {
	sc := s.scripts.readLog
	reply, err := s.texts(ctx, sc, append(sc.args("1", 3), s.keys.Log(), after, limit))
	if err != nil {
		return store.LogReply{}, err
	}
	return parseLogReply(reply)
}

func parseLogReply(reply []string) (store.LogReply, error) {
	const fields = 7
	if len(reply) == 0 || (len(reply)-1)%fields != 0 {
		return store.LogReply{}, malformedReply(reply)
	}
	log := store.LogReply{Gone: reply[0] != "1"}
	for i := 1; i < len(reply); i += fields {
		e := reply[i : i+fields]
		log.Entries = append(log.Entries, logEntry(e[0], e[1], e[2], e[3], e[4], e[5], e[6]))
	}
	return log, nil
}

// logEntry makes sense of the texts of an entry.
func logEntry(id, event, instances, role, token, reason, count string) store.LogEntry {
	return store.LogEntry{
		ID: id, Event: event, Instances: strings.Fields(instances), Role: bounded(role), Token: store.Natural(token), Reason: bounded(reason),
		Count: int(min(store.Natural(count), store.MaxInstances)),
	}
}

func (s *Store) Look(ctx context.Context, l store.Look) (store.LookReply, error) {
	if l.From == "" {
		l.From, l.Skip = "-inf", 0
	}
	sc := s.scripts.look
	reply, err := s.texts(ctx, sc, append(sc.args("4", 9), s.keys.Beats(), s.keys.Instances(), s.keys.Log(), s.keys.Told(), l.Silence.Milliseconds(), l.From, l.Skip,
		store.SweepBatch, s.keys.Events()))
	if err != nil {
		return store.LookReply{}, err
	}
	return parseLookReply(reply)
}

func parseLookReply(reply []string) (store.LookReply, error) {
	if len(reply) < 5 || store.Natural(reply[0]) == 0 {
		return store.LookReply{}, malformedReply(reply)
	}
	return store.LookReply{
		Now: store.Natural(reply[0]), Records: int(store.Natural(reply[1])), Beats: int(store.Natural(reply[2])), From: reply[3], Skip: store.Natural(reply[4]),
		IDs: reply[5:],
	}, nil
}

func (s *Store) Sweep(ctx context.Context, c store.Sweep) (store.SweepReply, error) {
	sc := s.scripts.sweep
	args := append(sc.args(strconv.Itoa(8+len(c.IDs)), 16+2*len(c.IDs)), s.keys.Beats(), s.keys.Instances(), s.keys.Hold(), s.keys.Removed())
	for _, id := range c.IDs {
		args = append(args, s.keys.Heartbeat(id))
	}
	args = append(args, s.keys.Words(), s.keys.Lost(), s.keys.Log(), s.keys.Told(), c.Drifted.Milliseconds(), c.Down.Milliseconds(), c.Window.Milliseconds(), oneIf(c.Mark), oneIf(c.Remove),
		c.Unwatched.Milliseconds(), s.keys.Events(), c.Incarnation)
	reply, err := s.texts(ctx, sc, withTexts(args, c.IDs))
	if err != nil {
		return store.SweepReply{}, err
	}
	return parseSweepReply(reply, len(c.IDs))
}

func parseSweepReply(reply []string, ids int) (store.SweepReply, error) {
	if len(reply) != 2+ids {
		return store.SweepReply{}, malformedReply(reply)
	}
	return store.SweepReply{HeldSince: store.Natural(reply[0]), Held: int(store.Natural(reply[1])), Verdicts: reply[2:]}, nil
}

// oneIf is a condition as a script reads it.
func oneIf(condition bool) string {
	if condition {
		return "1"
	}
	return "0"
}

func (s *Store) Adopt(ctx context.Context, incarnation string, ids []string) ([]string, error) {
	sc := s.scripts.adopt
	args := append(sc.args("5", 7+len(ids)), s.keys.Beats(), s.keys.Instances(), s.keys.Log(), s.keys.Words(), s.keys.Told(), s.keys.Events(), incarnation)
	return s.texts(ctx, sc, withTexts(args, ids))
}

func withTexts(args []any, texts []string) []any {
	for _, text := range texts {
		args = append(args, text)
	}
	return args
}

// texts runs a script that replies with a list of texts.
func (s *Store) texts(ctx context.Context, sc *script, args []any) ([]string, error) {
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
	return fmt.Errorf("%w: malformed reply %s", store.ErrUnreachable, text[:min(len(text), 300)])
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

func (s *Store) Metrics(ctx context.Context, ids []string) ([][]store.Metric, error) {
	sc := s.scripts.readMetrics
	args := sc.args(strconv.Itoa(len(ids)), len(ids))
	for _, id := range ids {
		args = append(args, s.keys.Metrics(id))
	}
	reply, err := s.texts(ctx, sc, args)
	if err != nil {
		return nil, err
	}
	all := make([][]store.Metric, len(ids))
	rest := reply
	for i := range ids {
		if len(rest) == 0 {
			return nil, malformedReply(reply)
		}
		n := 2 * int(min(store.Natural(rest[0]), store.MaxMetrics))
		if rest = rest[1:]; len(rest) < n {
			return nil, malformedReply(reply)
		}
		for j := 0; j < n; j += 2 {
			if m, ok := store.ParseMetric(rest[j], rest[j+1]); ok {
				all[i] = append(all[i], m)
			}
		}
		rest = rest[n:]
	}
	return all, nil
}

func (s *Store) Aggregate(ctx context.Context, mark string, entry []store.MetricSummary) error {
	sc := s.scripts.aggregate
	args := append(sc.args("1", 3+2*len(entry)), s.keys.AllMetrics(), store.MetricsHistory, mark)
	for _, m := range entry {
		args = append(args, m.Name, m.Text())
	}
	_, err := s.text(ctx, sc, args)
	return err
}

func (s *Store) Aggregates(ctx context.Context, limit int) ([]store.Aggregate, error) {
	cmd := redis.NewXMessageSliceCmd(ctx, "xrevrange", s.keys.AllMetrics(), "+", "-", "count", min(limit, store.MetricsHistory))
	if err := s.read(ctx, s.keys.AllMetrics(), cmd); err != nil {
		return nil, s.explain("XREVRANGE", err)
	}
	entries := make([]store.Aggregate, 0, len(cmd.Val()))
	for _, message := range cmd.Val() {
		entry := store.Aggregate{At: messageTime(message.ID)}
		for _, name := range slices.Sorted(maps.Keys(message.Values)) {
			text, _ := message.Values[name].(string)
			if m, ok := store.ParseMetricSummary(name, text); ok && len(entry.Metrics) < store.MaxMetrics {
				entry.Metrics = append(entry.Metrics, m)
			}
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// messageTime is when the entry of a stream was added: the first half of an ID that Redis gave it.
func messageTime(id string) time.Time {
	at, _, _ := strings.Cut(id, "-")
	milliseconds, _ := strconv.ParseInt(at, 10, 64) // anything else is no time
	return store.Time(milliseconds)
}
