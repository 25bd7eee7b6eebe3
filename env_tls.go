package tenure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"
)

// authorities returns those that vouch for servers. Nil: those of the system do.
type authorities func() *x509.CertPool

// dialNamed dials servers that others have named: those that Sentinel or a node of a Cluster has
// given the addresses of. With TLS, which a config of nil is without, go-redis would ask each for a
// certificate of the host in the URL, which is that of one of them. A server may have that one, or
// one of the address that is dialed.
func dialNamed(config *tls.Config, authority authorities, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := net.Dialer{Timeout: max(timeout, 0)}
	if config == nil {
		return plain.DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		of := config.Clone()
		of.ServerName = host
		if authority != nil || !config.InsecureSkipVerify {
			verifyBy(of, func() *x509.CertPool {
				if authority != nil {
					return authority()
				}
				return config.RootCAs
			}, host, config.ServerName)
		}
		dialer := tls.Dialer{NetDialer: &plain, Config: of}
		return dialer.DialContext(ctx, network, addr)
	}
}

// verifyBy has a config take a certificate of any of those names; "" is none. Package tls verifies
// one name, by authorities that never change.
func verifyBy(config *tls.Config, authority authorities, names ...string) {
	config.InsecureSkipVerify = true // VerifyConnection verifies
	config.VerifyConnection = func(state tls.ConnectionState) error {
		refused := errors.New("the server has no name that a certificate could be of")
		roots := authority()
		for _, name := range names {
			if name == "" {
				continue
			}
			if refused = verify(state.PeerCertificates, roots, name); refused == nil {
				break
			}
		}
		return refused
	}
}

// verify verifies a chain as package tls does.
func verify(chain []*x509.Certificate, roots *x509.CertPool, name string) error {
	options := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, certificate := range chain[1:] {
		options.Intermediates.AddCert(certificate)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}
