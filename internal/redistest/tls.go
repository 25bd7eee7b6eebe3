//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// TLSServer is a server that talks TLS on Addr, and plain text on the address of its own.
type TLSServer struct {
	*Server
	Addr string
}

// StartTLS starts one that ends with the test, with a certificate for 127.0.0.1 of a new authority, whose certificate it returns (PEM).
func StartTLS(t TB, opts ...Option) (s *TLSServer, authority []byte) {
	t.Helper()
	dir, err := os.MkdirTemp("", "redistest-tls-")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if authority, err = certify(cert, key); err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	for range portAttempts {
		port, err := freePort()
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		server, err := Launch(append([]Option{Args("--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key,
			"--tls-ca-cert-file", cert, "--tls-auth-clients", "no")}, opts...)...)
		if err != nil && (errors.Is(err, errPortTaken) || strings.Contains(err.Error(), "Failed listening")) {
			continue
		}
		if err != nil {
			t.Fatalf("redistest: start a server with TLS: %v", err)
		}
		t.Cleanup(func() { _ = server.Close() })
		return &TLSServer{Server: server, Addr: loopback(port)}, authority
	}
	t.Fatalf("redistest: no free port for TLS")
	return nil, nil
}

// certify writes a self-signed certificate and its key.
func certify(certPath, keyPath string) (authority []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tenure test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(certPath, authority, 0o600); err != nil {
		return nil, err
	}
	return authority, os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600)
}
