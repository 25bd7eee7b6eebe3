//go:build unix

package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

const (
	namespace = "real"
	leaderKey = namespace + ":leader"
	termKey   = leaderKey + ":term"

	patience = 60 * time.Second     // bounds what must happen; no test says how fast
	look     = 2 * time.Millisecond // between two looks at a condition
)

// stage is one election as a test sees it.
type stage struct {
	*testing.T
	ttl     time.Duration
	beliefs *chronicle
	players []*player
	fenced  *resource // what leaders write to; nil: nothing
}

// newStage sets up an election with leases of ttl. It needs real servers: it skips the test under
// -short, and only then.
func newStage(t *testing.T, ttl time.Duration) *stage {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real servers")
	}
	return &stage{T: t, ttl: ttl, beliefs: newChronicle(t)}
}

// newParallelStage is newStage for tests that may run beside others.
func newParallelStage(t *testing.T, ttl time.Duration) *stage {
	t.Helper()
	t.Parallel()
	return newStage(t, ttl)
}

// player is an elector that runs in this process, with a probe that looks at what it believes.
type player struct {
	*tenure.Elector
	name string
	log  *journal
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned
	err  error         // what Run returned; read after done
	idle chan struct{} // closed when the probe has ended
	work *resource     // what it writes to while it leads; nil: nothing

	mu        sync.Mutex
	deadlines map[int64]time.Duration // by token: the last that was seen
	endings   map[int64]ending        // by token
}

// ending is how the context of a term was seen to end.
type ending struct {
	at    time.Duration
	cause error
}

// young lets a test that is not about lost data do without the waits of a young Redis.
func young(o *tenure.Options) {
	o.Election.Safety.RestartGuard, o.Election.Safety.EmptyHistoryWait = -1, -1
}

// join starts an elector that is stopped with the test.
func (s *stage) join(name string, client redis.UniversalClient, changes ...func(*tenure.Options)) *player {
	s.Helper()
	p := &player{
		name: name, log: new(journal), work: s.fenced, done: make(chan struct{}), idle: make(chan struct{}),
		deadlines: make(map[int64]time.Duration), endings: make(map[int64]ending),
	}
	opts := tenure.Options{
		Namespace: namespace, InstanceID: name, ShutdownTimeout: 5 * time.Second,
		Election: tenure.ElectionOptions{LeaseTTL: s.ttl},
		Logger:   slog.New(p.log),
	}
	for _, change := range changes {
		change(&opts)
	}
	elector, err := tenure.NewElector(client, tenure.ElectorOptions{
		Namespace: opts.Namespace, InstanceID: opts.InstanceID, Election: opts.Election,
		ShutdownTimeout: opts.ShutdownTimeout, FailFast: opts.FailFast, Logger: opts.Logger,
	})
	if err != nil {
		s.Fatal(err)
	}
	p.Elector = elector
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() { // ends within ShutdownTimeout of stop; waited for in the clean-up
		defer close(p.done)
		p.err = elector.Run(ctx, p.lead)
	}()
	go p.probe(s.beliefs) // ends after Run; waited for in the clean-up
	s.players = append(s.players, p)
	s.Cleanup(func() {
		p.stop()
		select {
		case <-p.idle:
		case <-time.After(patience):
			s.Errorf("Run of %s does not return", name)
		}
		if s.Failed() {
			s.Logf("%s, status %+v:\n%s", name, p.Status(), p.log)
		}
	})
	return p
}

// lead is the work of a leader: it writes to what is fenced, and takes note of the end.
func (p *player) lead(ctx context.Context, term tenure.Term) error {
	if p.work != nil {
		p.work.serve(ctx, term.Token)
	}
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endings[term.Token] = ending{at: monotonic(), cause: context.Cause(ctx)}
	return nil
}

// probe asks every millisecond what the elector believes.
func (p *player) probe(beliefs *chronicle) {
	defer close(p.idle)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		before := monotonic()
		term, leads := p.Term()
		if leads && p.IsLeader() {
			beliefs.saw(p.name, term.Token, before, monotonic())
		}
		if status := p.Status(); status.State == tenure.ElectionLeading {
			p.mu.Lock()
			p.deadlines[status.Token] = monotonic() + time.Until(status.Deadline)
			p.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-p.done:
			return
		}
	}
}

// quit stops the elector and returns what Run returned.
func (p *player) quit(s *stage) error {
	s.Helper()
	p.stop()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		s.Fatalf("Run of %s does not return", p.name)
		return nil
	}
}

// ending waits for the end of a term's context.
func (p *player) ending(s *stage, token int64) ending {
	s.Helper()
	var end ending
	s.eventually(fmt.Sprintf("the work of %s under token %d to end", p.name, token), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		var ok bool
		end, ok = p.endings[token]
		return ok
	})
	return end
}

// deadline is the last deadline that a term is known to have had.
func (p *player) deadline(token int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deadlines[token]
}

// eventually fails the test unless cond holds within a generous bound: a bounded poll.
func (s *stage) eventually(what string, cond func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(look) {
		if time.Now().After(end) {
			s.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// holds fails the test if cond does not hold at some look within d.
func (s *stage) holds(d time.Duration, what string, cond func() bool) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(look) {
		if !cond() {
			s.Fatalf("did not hold for %v: %s", d, what)
		}
	}
}

// leader waits until somebody leads under a token above the given one.
func (s *stage) leader(above int64) (*player, int64) {
	s.Helper()
	var leader *player
	var token int64
	s.eventually(fmt.Sprintf("a leader with a token above %d", above), func() bool {
		for _, p := range s.players {
			if term, ok := p.Term(); ok && term.Token > above {
				leader, token = p, term.Token
				return s.beliefs.term(token).token != 0 // the probe has seen it too
			}
		}
		return false
	})
	return leader, token
}

// leads waits until this very player leads and returns its token.
func (s *stage) leads(p *player) int64 {
	s.Helper()
	var token int64
	s.eventually(p.name+" to lead", func() bool {
		term, ok := p.Term()
		token = term.Token
		return ok && s.beliefs.term(token).token != 0
	})
	return token
}

// follows waits until a player follows a leader.
func (s *stage) follows(p, leader *player) {
	s.Helper()
	s.eventually(p.name+" to follow "+leader.name, func() bool {
		status := p.Status()
		return status.State == tenure.ElectionFollowing && status.Leader == leader.name && status.Err == nil
	})
}

// goesOnElsewhere waits until the leader hears from a master that has just come to be that of its
// lease, and fails the test if its term is not the one with this token.
func (s *stage) goesOnElsewhere(leader *player, token int64) {
	s.Helper()
	replaced := time.Now()
	s.eventually("the leader to hear from the new master", func() bool {
		status := leader.Status()
		return status.LastAnswer.After(replaced) && status.Err == nil
	})
	s.Logf("the leader hears from the new master %v later", round(time.Since(replaced)))
	if term, leads := leader.Term(); !leads || term.Token != token {
		s.Error("the leader has lost its term")
	}
}

// onlyTerms fails the test if there was any other term than these.
func (s *stage) onlyTerms(tokens ...int64) {
	s.Helper()
	for _, b := range s.beliefs.all() {
		known := false
		for _, token := range tokens {
			known = known || b.token == token
		}
		if !known {
			s.Errorf("%v led, and should not have", b)
		}
	}
}

// steppedDownInTime fails the test unless a term that ended was not believed in at its deadline or
// later.
func (s *stage) steppedDownInTime(p *player, token int64) {
	s.Helper()
	end, last, deadline := p.ending(s, token), s.beliefs.term(token).last, p.deadline(token)
	s.Logf("%s: believed in until %v, cancelled %v before its deadline", p.name, round(last-deadline), round(deadline-end.at))
	if last >= deadline {
		s.Errorf("%s led %v past its deadline", p.name, last-deadline)
	}
	if !errors.Is(end.cause, tenure.ErrLost) {
		s.Errorf("term of %s ended by %v, want ErrLost", p.name, end.cause)
	}
}

// stored is the token in the term hash and the holder of the lease; zero if there is none.
func (s *stage) stored(client *redis.Client) (holder string, token int64) {
	s.Helper()
	holder, err := client.Get(s.Context(), leaderKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.Fatal(err)
	}
	token, err = client.HGet(s.Context(), termKey, "token").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.Fatal(err)
	}
	return holder, token
}

// leaseEnd is when the lease in the term hash ends, by the host's monotonic clock, and not later
// than that.
func (s *stage) leaseEnd(client *redis.Client) time.Duration {
	s.Helper()
	until, err := client.HGet(s.Context(), termKey, "until").Int64()
	if err != nil {
		s.Fatal(err)
	}
	before := monotonic()
	now, err := client.Time(s.Context()).Result()
	if err != nil {
		s.Fatal(err)
	}
	return before + time.UnixMilli(until).Sub(now)
}

// reclaimed waits until what Redis lost of a term stands there again.
func (s *stage) reclaimed(leader *player, token int64, lost time.Duration, admin *redis.Client) {
	s.Helper()
	s.eventually("the leader to reclaim its lease", func() bool {
		holder, stored := s.stored(admin)
		return holder == leader.name && stored == token
	})
	s.Logf("%s reclaimed its lease within %v", leader.name, round(monotonic()-lost))
}

// clientOf returns a client with the default options that is closed with the test.
func clientOf(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() }) // it has nothing to say
	return client
}

// must fails the test on an error.
func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
