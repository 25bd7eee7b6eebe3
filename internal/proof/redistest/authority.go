//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// certifiedFor is how long certificates hold: a test, with room for a clock that is stepped.
const certifiedFor = 48 * time.Hour

// Authority is a certificate authority of the harness's own, and the certificate of all servers on
// the loopback interface.
type Authority struct {
	pool                             *x509.CertPool
	authorityFile, certFile, keyFile string
}

// NewAuthority makes an authority whose files are removed with the test.
func NewAuthority(t TB) *Authority {
	t.Helper()
	dir, err := os.MkdirTemp("", "redistest-tls-")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("redistest: remove certificates: %v", err)
		}
	})
	a := &Authority{
		pool:          x509.NewCertPool(),
		authorityFile: filepath.Join(dir, "authority.pem"),
		certFile:      filepath.Join(dir, "server.pem"),
		keyFile:       filepath.Join(dir, "server.key"),
	}
	if err := a.make(); err != nil {
		t.Fatalf("redistest: make certificates: %v", err)
	}
	return a
}

// Trusted returns a new client configuration that trusts the authority and nobody else.
func (a *Authority) Trusted() *tls.Config {
	return &tls.Config{RootCAs: a.pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

// PEM is the certificate of the authority, for a client in another process.
func (a *Authority) PEM(t TB) []byte {
	t.Helper()
	text, err := os.ReadFile(a.authorityFile)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return text
}

// args is what a server that serves TLS on a port, and nothing else, is started with.
func (a *Authority) args(port int) []string {
	return []string{"--port", "0", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
		"--tls-ca-cert-file", a.authorityFile, "--tls-cert-file", a.certFile, "--tls-key-file", a.keyFile}
}

func (a *Authority) make() error {
	valid := x509.Certificate{
		NotBefore: time.Now().Add(-certifiedFor), NotAfter: time.Now().Add(certifiedFor), BasicConstraintsValid: true,
	}
	authority := valid
	authority.SerialNumber, authority.Subject = big.NewInt(1), pkix.Name{CommonName: "redistest authority"}
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	server := valid
	server.SerialNumber, server.Subject = big.NewInt(2), pkix.Name{CommonName: "redistest server"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.KeyUsage, server.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}

	authorityKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	serverKey, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	authorityDER, err1 := x509.CreateCertificate(rand.Reader, &authority, &authority, authorityKey.Public(), authorityKey)
	serverDER, err2 := x509.CreateCertificate(rand.Reader, &server, &authority, serverKey.Public(), authorityKey)
	keyDER, err3 := x509.MarshalPKCS8PrivateKey(serverKey)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	parsed, err := x509.ParseCertificate(authorityDER)
	if err != nil {
		return err
	}
	a.pool.AddCert(parsed)
	return errors.Join(
		writePEM(a.authorityFile, "CERTIFICATE", authorityDER),
		writePEM(a.certFile, "CERTIFICATE", serverDER),
		writePEM(a.keyFile, "PRIVATE KEY", keyDER),
	)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
