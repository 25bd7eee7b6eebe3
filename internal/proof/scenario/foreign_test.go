//go:build unix

package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// foreignKey is the lease that two programs share.
const foreignKey = "leader:cleanup-worker"

// A client in another language takes the lease with SET NX EX, renews what is its own and knows
// nothing of terms. Through crashes of both sides the two never lead at once.
func TestP1_ForeignClientOnTheSameKey(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))

	var reports reports
	stop := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { close(stop) })
	for i := range 2 {
		f := &foreigner{stage: s, addr: server.Addr(), name: fmt.Sprint("foreign-", i), draw: rand.New(rand.NewPCG(seed, uint64(i)+1))}
		wg.Go(func() { f.run(stop) }) // ends with stop; waited for in the clean-up
	}
	shared := func(o *tenure.Options) { o.Election.LeaderKey = foreignKey }
	const enough, least = 20 * time.Second, 3 // for long enough, and until the lease went back and forth
	began := monotonic()
	for ours, theirs := 0, 0; monotonic()-began < enough || min(ours, theirs) < least && monotonic()-began < patience; {
		if theirs < ours { // a client that polls loses most races: it has some without us
			s.eventually("a foreign client to lead", func() bool {
				_, now := s.sides()
				return now > theirs
			})
		}
		proxy := redistest.NewProxy(t, server.Addr())
		candidates := []*player{
			s.join(fmt.Sprintf("tenure-0-%d", len(s.players)), clientOf(t, proxy.Addr()), shared, young, func(o *tenure.Options) {
				o.ShutdownTimeout = 10 * time.Millisecond
			}),
			s.join(fmt.Sprintf("tenure-1-%d", len(s.players)), clientOf(t, server.Addr()), shared, young),
		}
		lives := time.Duration(300+draw.IntN(1500)) * time.Millisecond
		s.holds(lives, "what followers say", func() bool {
			for _, p := range candidates {
				reports.take(t, p.Status())
			}
			return true
		})
		proxy.Blackhole() // the end of a crash: it can reach nobody
		for _, p := range candidates {
			_ = p.quit(s) // the one behind the black hole says that calls hang
		}
		proxy.Close()
		ours, theirs = s.sides()
	}
	ours, theirs := s.sides()
	t.Logf("%d terms of ours, %d of the foreign clients, %d sightings of foreign holders", ours, theirs, reports.foreign)
	if min(ours, theirs) < least || reports.foreign == 0 {
		t.Error("the lease hardly went back and forth: nothing was shown")
	}
}

// sides counts the terms of ours and those of foreign clients.
func (s *stage) sides() (ours, theirs int) {
	for _, b := range s.beliefs.all() {
		if b.token == 0 {
			theirs++
		} else {
			ours++
		}
	}
	return ours, theirs
}

// reports counts how followers report foreign holders.
type reports struct{ foreign int }

func (r *reports) take(t *testing.T, status tenure.ElectionStatus) {
	t.Helper()
	if !strings.HasPrefix(status.Leader, "foreign-") {
		return
	}
	r.foreign++
	if status.LeaderToken != 0 {
		t.Errorf("the foreign holder %s is reported with token %d", status.Leader, status.LeaderToken)
	}
}

// A foreign holder is reported with token 0, by the status and by Leader, and is never deposed by
// us.
func TestP5_ForeignHolderIsReportedAndLeftAlone(t *testing.T) {
	s := newParallelStage(t, time.Second)
	server := redistest.Start(t)
	admin := server.Client(t)
	s.must(admin.Set(t.Context(), foreignKey, "someone", 0).Err()) // without expiry: until it is deleted
	candidate := s.join("candidate", server.Client(t), young, func(o *tenure.Options) { o.Election.LeaderKey = foreignKey })
	s.eventually("the status to name the foreign holder", func() bool {
		status := candidate.Status()
		return status.Leader == "someone" && status.LeaderToken == 0 && status.Waiting == "foreign"
	})
	info, err := candidate.Leader(t.Context())
	if err != nil || info.InstanceID != "someone" || info.Token != 0 || info.Remaining >= 0 {
		t.Errorf("Leader returned %+v, %v", info, err)
	}
	s.holds(2*s.ttl, "the foreign client holds the lease", func() bool {
		return !candidate.IsLeader() && admin.Get(t.Context(), foreignKey).Val() == "someone" && admin.TTL(t.Context(), foreignKey).Val() == -1
	})
	s.must(admin.Del(t.Context(), foreignKey).Err())
	s.leads(candidate)
}

// foreigner is a client of another make: SET NX EX, a guarded renewal and a guarded deletion. It
// believes for its own TTL from before its request, and crashes now and then.
type foreigner struct {
	stage *stage
	addr  string
	name  string
	draw  *rand.Rand
	terms int
}

const foreignTTL = 2 // seconds: SET EX has no smaller unit

const (
	foreignRenew   = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('EXPIRE', KEYS[1], ARGV[2]) end return 0`
	foreignRelease = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

func (f *foreigner) run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with run
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		f.live(ctx)
		pause(ctx, time.Duration(f.draw.IntN(500))*time.Millisecond) // the supervisor starts it anew
	}
}

// live is one life: it campaigns, leads for a while, and crashes or stops.
func (f *foreigner) live(ctx context.Context) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", f.addr)
	if err != nil {
		if ctx.Err() == nil {
			f.stage.Error(err)
		}
		return
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	f.terms++
	id := fmt.Sprintf("%s-%d", f.name, f.terms)
	ask := func(args ...string) string {
		reply, err := command(conn, r, args...)
		if err != nil {
			f.stage.Error(err)
		}
		return reply
	}
	var until time.Duration
	for until == 0 {
		if !pause(ctx, 20*time.Millisecond) {
			return
		}
		asked := monotonic()
		if ask("SET", foreignKey, id, "NX", "EX", fmt.Sprint(foreignTTL)) == "+OK" {
			until = asked + foreignTTL*time.Second
		}
	}
	ends := monotonic() + time.Duration(300+f.draw.IntN(2000))*time.Millisecond
	renew := monotonic() + foreignTTL*time.Second/3
	for {
		now := monotonic()
		if now >= until {
			return
		}
		f.stage.beliefs.saw(id, 0, now, now)
		if now >= ends || ctx.Err() != nil {
			if f.draw.IntN(3) == 0 || ctx.Err() != nil { // else it crashes
				ask("EVAL", foreignRelease, "1", foreignKey, id)
			}
			return
		}
		if now >= renew {
			asked := monotonic()
			if ask("EVAL", foreignRenew, "1", foreignKey, id, fmt.Sprint(foreignTTL)) != ":1" {
				return
			}
			until, renew = asked+foreignTTL*time.Second, asked+foreignTTL*time.Second/3
		}
		pause(ctx, time.Millisecond)
	}
}

// pause waits for d and reports whether ctx is still not done then.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errNoLine = errors.New("not a reply of one line")

// command sends one command over the wire and reads a reply of one line.
func command(conn net.Conn, r *bufio.Reader, args ...string) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(out.String())); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	line = strings.TrimSpace(line)
	if err == nil && !strings.HasPrefix(line, "+") && !strings.HasPrefix(line, ":") && line != "$-1" {
		err = fmt.Errorf("%w: %q", errNoLine, line)
	}
	return line, err
}
