//go:build unix

package realtest

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/redistest"
)

// Over TLS everything is as without; a certificate that is not trusted is told of, and Run goes on trying.
func TestTLS(t *testing.T) {
	s := newParallelStage(t, 3*time.Second)
	server := redistest.Start(t, redistest.Secured(redistest.NewAuthority(t)))
	client := func(trust *tls.Config) *redis.Client {
		options := server.Options()
		if trust != nil {
			options.TLSConfig = trust
		}
		c := redis.NewClient(options)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	stranger := s.join("stranger", client(redistest.NewAuthority(t).Trusted()), young)
	s.eventually("the stranger to say what is wrong", func() bool {
		var untrusted *tls.CertificateVerificationError
		err := stranger.Status().Err
		return errors.As(err, &untrusted) && errors.Is(err, tenure.ErrUnreachable)
	})
	leader := s.join("leader", client(nil), young)
	s.leads(leader)
	if err := leader.quit(s); err != nil {
		t.Error(err)
	}
}

// Names that cannot be resolved and ports that refuse are unreachable, not lost, and found when they are there.
func TestP12_NameThatDoesNotResolve(t *testing.T) {
	s := newParallelStage(t, 3*time.Second)
	c := redis.NewClient(&redis.Options{Addr: "no-such-host.invalid:6379", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	p := s.join("lost", c, young)
	s.eventually("the error to be told", func() bool { return errors.Is(p.Status().Err, tenure.ErrUnreachable) })
	if err := p.quit(s); err != nil {
		t.Errorf("Run: %v", err)
	}
}
