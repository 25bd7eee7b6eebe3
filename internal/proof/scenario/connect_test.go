//go:build unix

package scenario

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// An election over TLS is one like any other. A client that does not trust the server says so, with
// what to do about it, and tries on.
func TestP12_TLS(t *testing.T) {
	s := newParallelStage(t, 4*time.Second)
	server := redistest.Start(t, redistest.Secured(redistest.NewAuthority(t)))
	leader := s.join("leader", server.Client(t), young)
	s.leads(leader)
	s.holds(s.ttl/2, "the same leader", leader.IsLeader)

	opts := server.Options()
	opts.TLSConfig = redistest.NewAuthority(t).Trusted()
	opts.MaxRetries = -1
	clientopts.Set(opts, "DialerRetries", 1) // else it tries for seconds before it says anything
	suspicious := redis.NewClient(opts)
	t.Cleanup(func() { _ = suspicious.Close() })
	stranger := s.join("stranger", suspicious, young)
	s.eventually("the stranger to say whom it does not trust", func() bool {
		err := stranger.Status().Err
		return errors.Is(err, tenure.ErrUnreachable) && strings.Contains(err.Error(), "unknown authority") &&
			strings.Contains(err.Error(), "fix: have the TLSConfig")
	})
	s.holds(s.ttl/2, "the stranger tries on", func() bool { return stranger.Status().State == tenure.ElectionFollowing && !stranger.IsLeader() })
	if n := stranger.log.count("redis gives no usable answer"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, stranger.log)
	}
	hasty := s.join("hasty", suspicious, young, func(o *tenure.Options) { o.FailFast = true })
	<-hasty.idle
	if !errors.Is(hasty.err, tenure.ErrUnreachable) {
		t.Errorf("with FailFast Run returned %v", hasty.err)
	}
	for _, b := range s.beliefs.all() {
		if b.who != "leader" {
			t.Errorf("%v led, and should not have", b)
		}
	}
}

// A name that is not found, at the start and later: told once each time, tried on, and unknown for
// who leads.
func TestP12_NameThatIsNotFound(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	var lost atomic.Bool
	lost.Store(true)
	opts := server.Options()
	opts.MaxRetries = -1
	clientopts.Set(opts, "DialerRetries", 1) // else it tries for seconds before it says anything
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if lost.Load() {
			return nil, &net.DNSError{Err: "no such host", Name: "redis.example", IsNotFound: true}
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	candidate := s.join("candidate", client, young)
	troubled := func() bool {
		err := candidate.Status().Err
		return errors.Is(err, tenure.ErrUnreachable) && strings.Contains(err.Error(), "redis.example: no such host")
	}
	s.eventually("the candidate to say what is not found", troubled)
	s.holds(s.ttl, "nobody leads", func() bool { return !candidate.IsLeader() })
	lost.Store(false)
	token := s.leads(candidate)
	s.eventually("the end of the trouble to be reported", func() bool { return candidate.log.count("redis answers again") == 1 })
	if n := candidate.log.count("redis gives no usable answer"); n != 1 {
		t.Errorf("the trouble was reported %d times:\n%s", n, candidate.log)
	}

	lost.Store(true)
	kill := func() bool {
		_ = server.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err() // of its own connection too
		return troubled()
	}
	s.eventually("the leader to say what is not found", kill)
	s.steppedDownInTime(candidate, token)
	lost.Store(false)
	s.leader(token)
}
