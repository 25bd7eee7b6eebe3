//go:build unix

package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// connection tells a member of the fleet how to reach Redis.
type connection struct {
	Sentinel string            `json:"sentinel,omitempty"` // name of the master that Addrs, which are Sentinels, watch
	Cluster  bool              `json:"cluster,omitempty"`
	Addrs    []string          `json:"addrs"`
	Via      map[string]string `json:"via"` // for the address of a server: that of this member's own proxy in front of it
	Username string            `json:"username,omitempty"`
	Password string            `json:"password,omitempty"`
	CA       []byte            `json:"ca,omitempty"` // PEM of the authority; none: no TLS
}

// client returns a client with the default options: what a user gets is what is tried.
func (c *connection) client() (redis.UniversalClient, error) {
	opts := &redis.UniversalOptions{
		Addrs: c.Addrs, MasterName: c.Sentinel, Username: c.Username, Password: c.Password,
	}
	clientopts.Set(opts, "IsClusterMode", c.Cluster)
	var trust *tls.Config
	if len(c.CA) > 0 {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("no certificate of an authority in what was handed down")
		}
		trust = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	}
	opts.Dialer = c.dialer(trust)
	return redis.NewUniversalClient(opts), nil
}

// dialer reaches every server through this member's own link.
func (c *connection) dialer(trust *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy, known := c.Via[addr]; known {
			addr = proxy
		}
		plain := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute} // as go-redis does by itself
		if trust != nil {
			return (&tls.Dialer{NetDialer: &plain, Config: trust}).DialContext(ctx, network, addr)
		}
		return plain.DialContext(ctx, network, addr)
	}
}
