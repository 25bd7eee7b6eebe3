package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Lease binds the lease scripts to one role. What never changes is boxed once, so that a renewal
// allocates little.
type Lease struct {
	*Store
	given *Store // with the client that was given, see within
	role  string
	key   string // lease
	keys  []any  // lease, since, term hash, history of terms, and the log of the namespace if one script may write both
	id    any

	ttl, emptyWait, margin, restartGuard, channel, roleArg any
	careful                                                any // TTL, or HoldOff if that is longer

	last  *atomic.Pointer[renewal]
	apart *apart
	way   any // see Way
}

// renewal is what the renewals of a term have in common, boxed once.
type renewal struct {
	nonce, origin       string
	token, since, floor int64
	holdOff             time.Duration

	args [6]any // in this order: nonce, token, hold-off, origin, since, floor
}

// common returns those of a request.
func (s *Lease) common(r lease.Request) [6]any {
	last := s.last.Load()
	if last == nil || last.nonce != r.Nonce || last.token != r.Token || last.holdOff != r.HoldOff || last.origin != r.Origin || last.since != r.Since || last.floor != r.Floor {
		last = &renewal{
			nonce: r.Nonce, token: r.Token, holdOff: r.HoldOff, origin: r.Origin, since: r.Since, floor: r.Floor,
			args: [6]any{r.Nonce, r.Token, r.HoldOff.Milliseconds(), r.Origin, r.Since, r.Floor},
		}
		s.last.Store(last)
	}
	return last.args
}

// ForRole returns the lease of a role.
func (s *Store) ForRole(r store.Role) *Lease {
	log := s.keys.Log()
	keys := []any{r.Key, store.LeaseSince(r.Key), store.LeaseTerm(r.Key), store.LeaseTerms(r.Key), log}
	if s.spread && store.HashTag(log) != store.HashTag(r.Key) {
		keys = keys[:4]
	}
	within := s.within(r.Attempt).ofTag(r.Key)
	var common any
	if within.Pipelines() {
		common = s.tag(r.Key)
	}
	return &Lease{
		Store:        within,
		given:        s,
		way:          common,
		role:         r.Name,
		key:          r.Key,
		keys:         keys,
		id:           r.Holder,
		ttl:          r.TTL.Milliseconds(),
		careful:      max(r.TTL, r.HoldOff).Milliseconds(),
		emptyWait:    upMilliseconds(r.EmptyWait),
		margin:       upMilliseconds(r.Margin),
		restartGuard: restartGuardArg(r.RestartGuard),
		channel:      store.LeaseEvents(r.Key),
		last:         new(atomic.Pointer[renewal]),
		apart:        new(apart),
		roleArg:      r.Name,
	}
}

// tagged are the stores of the hash tags of a cluster.
type tagged struct {
	mu  sync.Mutex
	all map[string]*Store
}

// ofTag is the store for the leases of one hash tag. On a cluster they have batches of their own:
// calls to a node that hangs hold up none to another.
func (s *Store) ofTag(key string) *Store {
	if !s.spread {
		return s
	}
	s.tagged.mu.Lock()
	defer s.tagged.mu.Unlock()
	tag := s.tag(key)
	if s.tagged.all[tag] == nil {
		own := *s
		own.renewals, own.elects = newBatches(maxPipelines), newBatches(maxPipelines)
		if s.tagged.all == nil {
			s.tagged.all = make(map[string]*Store)
		}
		s.tagged.all[tag] = &own
	}
	return s.tagged.all[tag]
}

// within is the store with a client whose calls end after one attempt: a call that hangs holds a
// connection, which may have died without a sign, and one of the few calls that are in flight at
// most. It shares the pool of the client that was given, but has none of its hooks (go-redis
// v9.17.3 to v9.23.0). A cluster's client has no such face.
func (s *Store) within(attempt time.Duration) *Store {
	client, ok := s.rdb.(*redis.Client)
	if !ok || client == nil || attempt <= 0 {
		return s
	}
	if read := client.Options().ReadTimeout; 0 < read && read <= attempt {
		return s
	}
	bounded := *s
	bounded.rdb = s.bounded.client(client, attempt)
	return &bounded
}

// boundedClients are the clients whose calls end after one attempt, one for each bound that a role
// has.
type boundedClients struct {
	mu    sync.Mutex
	after map[time.Duration]*redis.Client
}

func (b *boundedClients) client(of *redis.Client, attempt time.Duration) *redis.Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.after[attempt] == nil {
		if b.after == nil {
			b.after = make(map[time.Duration]*redis.Client)
		}
		b.after[attempt] = of.WithTimeout(attempt)
	}
	return b.after[attempt]
}

// upMilliseconds is a wait as Redis counts it: one of less than a millisecond is not none.
func upMilliseconds(d time.Duration) int64 {
	return max((d + time.Millisecond - 1).Milliseconds(), 0)
}

// restartGuardArg keeps a guard of less than a millisecond from turning into "the default".
func restartGuardArg(d time.Duration) int64 {
	switch {
	case d < 0:
		return -1
	case d == 0:
		return 0
	}
	return max(d.Milliseconds(), 1)
}

func (s *Lease) args(sc *script, room int) []any {
	return append(sc.args("3", 3+room), s.keys[:3]...)
}

// turnArgs are args of a script that begins or ends a term.
func (s *Lease) turnArgs(sc *script, room int) []any {
	count := "4"
	if len(s.keys) == 5 {
		count = "5"
	}
	return append(sc.args(count, len(s.keys)+room), s.keys...)
}

func (s *Lease) Acquire(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return s.ask(ctx, s.elects, s.scripts.acquire, s.acquireArgs(r))
}

func (s *Lease) acquireArgs(r lease.Request) []any {
	var rank any = int64(r.Rank)
	if r.Mute {
		rank = ""
	}
	return append(s.turnArgs(s.scripts.acquire, 15), s.id, r.Nonce, s.ttl, r.NotAfter, r.Floor, r.HoldOff.Milliseconds(), s.emptyWait,
		s.margin, s.restartGuard, s.channel, s.roleArg, s.careful, rank, r.Slice.Milliseconds(), r.Counts.Milliseconds())
}

func (s *Lease) Renew(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return s.ask(ctx, s.renewals, s.scripts.renew, s.renewArgs(r))
}

func (s *Lease) renewArgs(r lease.Request) []any {
	draining := "0"
	if r.Draining {
		draining = "1"
	}
	sc := s.scripts.renew
	same := s.common(r)
	args := append(s.args(sc, 15), s.id, same[0], same[1], s.ttl, r.NotAfter, same[2], s.margin, same[3], draining, same[4], same[5], s.careful)
	if r.Heir != "" {
		args = append(args, r.Heir, s.channel, s.roleArg)
	}
	return args
}

func (s *Lease) Release(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	sc := s.scripts.release
	return s.ask(ctx, s.elects, sc, append(s.turnArgs(sc, 10), s.id, r.Nonce, r.Token, s.channel, s.roleArg, r.Floor, r.Heir,
		r.Reserve.Milliseconds(), r.Why, r.Ago.Milliseconds()))
}

func (s *Lease) Leader(ctx context.Context) (store.LeaseReply, error) {
	sc := s.scripts.leader
	return s.ask(ctx, s.elects, sc, s.args(sc, 0))
}

func (s *Lease) ForgetTerms(ctx context.Context, token int64) (store.LeaseReply, error) {
	sc := s.scripts.forgetRole
	return s.ask(ctx, s.elects, sc, append(append(sc.args("4", 5), s.keys[:4]...), token))
}

func (s *Lease) Terms(ctx context.Context, limit int) ([]store.TermEntry, error) {
	cmd := redis.NewXMessageSliceCmd(ctx, "xrevrange", s.keys[3], "+", "-", "count", limit)
	if err := s.read(ctx, store.LeaseTerms(s.key), cmd); err != nil {
		return nil, s.explain("XREVRANGE", err)
	}
	entries := make([]store.TermEntry, 0, len(cmd.Val()))
	for _, message := range cmd.Val() {
		text := func(field string) string {
			value, _ := message.Values[field].(string)
			return value
		}
		entries = append(entries, store.TermEntry{
			Event: bounded(text("event")), Token: store.Natural(text("token")), Holder: bounded(text("holder")),
			At: store.Natural(text("at")), Reason: bounded(text("reason")), Since: store.Natural(text("since")),
		})
	}
	return entries, nil
}

// Vacancy reads what the history says while nobody holds the lease.
func (s *Lease) Vacancy(ctx context.Context) (v store.Vacancy, err error) {
	cmd := redis.NewSliceCmd(ctx, "hmget", s.keys[2], "token", "ttl", "hold", "armed", "until", "released", "reserved", "heir")
	if err := s.read(ctx, store.LeaseTerm(s.key), cmd); err != nil {
		return v, s.explain("HMGET", err)
	}
	var texts [8]string
	for i := range min(len(texts), len(cmd.Val())) {
		texts[i], _ = cmd.Val()[i].(string)
	}
	return store.Vacancy{
		Token: store.Natural(texts[0]), TTL: store.Natural(texts[1]), Hold: store.Natural(texts[2]), Armed: store.Natural(texts[3]),
		Until: store.Natural(texts[4]), Released: texts[5] == "1", Reserved: store.Natural(texts[6]), Heir: bounded(texts[7]),
	}, nil
}

func (s *Lease) ask(ctx context.Context, b *batches, sc *script, args []any) (store.LeaseReply, error) {
	cmd, err := b.do(s.Store, request{ctx: ctx, script: sc, key: s.key, args: args, newCmd: newText})
	if err != nil {
		return store.LeaseReply{}, err
	}
	return parseLeaseReply(cmd.(*redis.StringCmd).Val())
}

// verdicts are the words of the lease scripts. leader answers held or free.
var verdicts = map[string]lease.Verdict{
	"won": lease.Won, "held": lease.Held, "rollcall": lease.RollCall, "stale": lease.Stale, "kept": lease.Kept, "lost": lease.Lost,
	"done": lease.Done, "free": lease.Unknown,
}

// parseLeaseReply reads the line that answer() in scripts.lua writes.
func parseLeaseReply(line string) (store.LeaseReply, error) {
	var fields [10]string
	rest := line
	for i := range fields {
		var ok bool
		if fields[i], rest, ok = strings.Cut(rest, " "); !ok {
			return store.LeaseReply{}, fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, line)
		}
	}
	verdict, ok := verdicts[fields[0]]
	if !ok {
		return store.LeaseReply{}, fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, line)
	}
	var numbers [5]int64
	for i := range numbers {
		n, err := strconv.ParseInt(fields[i+1], 10, 64)
		if err != nil {
			return store.LeaseReply{}, fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, line)
		}
		numbers[i] = n
	}
	best, rank, ok := parseBest(fields[9])
	if !ok {
		return store.LeaseReply{}, fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, line)
	}
	absent := func(text string) string {
		if text == "-" {
			return ""
		}
		return text
	}
	holder, held := strings.CutPrefix(rest, "=")
	if !held && rest != "-" {
		return store.LeaseReply{}, fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, line)
	}
	if !held {
		holder = ""
	}
	return store.LeaseReply{
		Answer: lease.Answer{
			Verdict:   verdict,
			Now:       numbers[0],
			Token:     numbers[1],
			TTL:       store.Milliseconds(numbers[2]),
			Wait:      store.Milliseconds(numbers[3]),
			Since:     numbers[4],
			Origin:    bounded(absent(fields[6])),
			Offered:   fields[8] == "heir",
			Ready:     fields[8] == "ready",
			Reclaimed: fields[7] == "reclaimed",
			Best:      best,
			BestIs:    rank,
		},
		Reason: absent(fields[7]),
		Holder: bounded(holder),
	}, nil
}

// parseBest reads the best candidate: its rank, a colon and its ID.
func parseBest(text string) (id string, rank lease.Rank, ok bool) {
	if text == "-" {
		return "", 0, true
	}
	number, id, ok := strings.Cut(text, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || !store.IDPattern.MatchString(id) {
		return "", 0, false
	}
	return id, lease.Rank(n), true
}

// bounded cuts a text as cut() in scripts.lua does, if that has not: a server may answer anything.
func bounded(text string) string {
	const most, mark = 128, "…"
	if len(text) <= most+len(mark) {
		return text
	}
	return text[:most] + mark
}
