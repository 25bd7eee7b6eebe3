//go:build unix

package scenario

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A right that is taken away while a leader leads: the status names the command and what to grant,
// one line of the log too, and nobody is deposed before the deadline. Granted again, everything
// goes on by itself.
func TestP12_RightTakenAwayIsNamed(t *testing.T) {
	s := newParallelStage(t, 10*time.Second)
	server := redistest.Start(t)
	admin := server.Client(t)
	leader := s.join("leader", userOf(s, server, admin), young, func(o *tenure.Options) { o.Election.RenewInterval = 50 * time.Millisecond })
	token := s.leads(leader)
	for _, command := range []string{"evalsha", "time", "get", "hmget", "hset", "pexpire"} {
		told := leader.log.count(" misconfigured instance=")
		s.allow(admin, "-"+command)
		s.eventually("the status to name "+command, func() bool {
			err := leader.Status().Err
			return errors.Is(err, tenure.ErrMisconfigured) && strings.Contains(err.Error(), "+"+command) &&
				strings.Contains(err.Error(), "fix: grant the Redis user")
		})
		s.allow(admin, "+"+command)
		s.eventually("recovery", func() bool { return leader.Status().Err == nil })
		if n := leader.log.count(" misconfigured instance=") - told; n != 1 {
			t.Errorf("%s: told %d times:\n%s", command, n, leader.log)
		}
	}
	s.onlyTerms(token)
}

// Without PUBLISH, SUBSCRIBE and INFO an election has no hints and no witness of the history, and
// works.
func TestP12_WithoutChannelsAndInfo(t *testing.T) {
	s := newParallelStage(t, 4*time.Second)
	server := redistest.Start(t)
	admin := server.Client(t)
	limited := userOf(s, server, admin)
	s.allow(admin, "-publish", "-subscribe", "-info", "resetchannels")
	s.join("candidate-0", limited, young)
	s.join("candidate-1", limited, young)
	leader, token := s.leader(0)
	if leader.Status().HistoryWitness {
		t.Error("a witness of the history, without INFO")
	}
	s.holds(s.ttl/2, "the same leader", leader.IsLeader)
	s.onlyTerms(token)
	resigned := monotonic()
	s.must(leader.Resign(t.Context()))
	_, higher := s.leader(token)
	t.Logf("another leads %v after the resignation, without a hint", round(s.beliefs.term(higher).first-resigned))
	for _, p := range s.players {
		if err := p.Status().Err; err != nil {
			t.Errorf("%s is in trouble: %v", p.name, err)
		}
	}
}

// limitedUser is a user with the rights of tenure.ACLRules.
const limitedUser = "limited"

// userOf returns a client of a user that has the rights that tenure asks for.
func userOf(s *stage, server *redistest.Server, admin *redis.Client) *redis.Client {
	s.Helper()
	rules, err := tenure.ACLRules(namespace)
	s.must(err)
	s.allow(admin, slices.Concat([]string{"on", ">secret"}, rules)...)
	opts := server.Options()
	opts.Username, opts.Password, opts.DisableIdentity = limitedUser, "secret", true
	client := redis.NewClient(opts)
	s.Cleanup(func() { _ = client.Close() }) // it has nothing to say
	return client
}

// allow changes the rights of that user.
func (s *stage) allow(admin *redis.Client, rules ...string) {
	s.Helper()
	cmd := []any{"ACL", "SETUSER", limitedUser}
	for _, rule := range rules {
		cmd = append(cmd, rule)
	}
	s.must(admin.Do(s.Context(), cmd...).Err())
}
