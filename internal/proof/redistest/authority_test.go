//go:build unix

package redistest

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestAuthority_IsTrustedByItsOwn(t *testing.T) {
	NoLeaks(t)
	s := Start(t, Secured(NewAuthority(t)))
	set(t, s.Client(t), "k", "v")
	s.Restart(t)

	hears := func(change func(*redis.Options)) error {
		opts := s.Options()
		opts.MaxRetries = -1
		change(opts)
		c := redis.NewClient(opts)
		defer c.Close()
		return c.Ping(t.Context()).Err()
	}
	err := hears(func(o *redis.Options) { o.TLSConfig = NewAuthority(t).Trusted() })
	if err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a client that trusts another authority hears %v", err)
	}
	if hears(func(o *redis.Options) { o.TLSConfig = nil }) == nil {
		t.Error("the server speaks without TLS")
	}
}
