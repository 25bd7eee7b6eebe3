package tenure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync/atomic"
	"time"
)

// dialNamed dials servers that others have named: those that Sentinel or a node of a Cluster has
// given the addresses of. With TLS, which a config of nil is without, go-redis would ask each for a
// certificate of the host in the URL, which is that of one of them. A server may have that one, or
// one of the address that is dialed.
func dialNamed(config *tls.Config, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
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
		if !config.InsecureSkipVerify {
			of.InsecureSkipVerify = true // it verifies one name only: VerifyConnection verifies two
			of.VerifyConnection = func(state tls.ConnectionState) error {
				err := verify(state.PeerCertificates, config.RootCAs, host)
				if err != nil && config.ServerName != "" && verify(state.PeerCertificates, config.RootCAs, config.ServerName) == nil {
					return nil
				}
				return err
			}
		}
		dialer := tls.Dialer{NetDialer: &plain, Config: of}
		return dialer.DialContext(ctx, network, addr)
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

// clientCertificate returns the certificate by which a client shows who it is. Nil: it has none.
type clientCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// readCertificate reads the files with a certificate and its key: at once, and anew for each
// connection, since certificates are replaced while a program runs. While they cannot be read, or
// one of the two has been replaced, the last certificate counts.
func readCertificate(certFile, keyFile string) (clientCertificate, error) {
	first, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if read, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
			last.Store(&read)
		}
		return last.Load(), nil
	}, nil
}
