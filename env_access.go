package tenure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
)

// access is how a client is let in, and whom it trusts, beside what its URL says of that. The zero
// value is nothing.
type access struct {
	password                           string        // "": that of the URL
	passwordFile                       func() string // in place of it; nil: there is no file
	sentinelUsername, sentinelPassword string        // "": those of the URL
	certificate                        clientCertificate
	authority                          authorities
}

// ofSentinel are the variables that only Sentinel needs.
var ofSentinel = []string{"REDIS_SENTINEL_USERNAME", "REDIS_SENTINEL_PASSWORD", "REDIS_SENTINEL_PASSWORD_FILE"}

// access reads secrets and certificates.
func (e *environment) access(u *url.URL) access {
	var a access
	a.password, a.passwordFile = e.password("REDIS_PASSWORD")
	a.sentinelUsername, a.sentinelPassword = e.sentinel(u)
	secured := u.Scheme == "rediss"
	a.certificate = e.certificate(secured)
	a.authority = e.authority(secured)
	return a
}

// sentinel finds who logs in to Sentinel, if that stands in no URL.
func (e *environment) sentinel(u *url.URL) (username, password string) {
	_, inURL := u.User.Password()
	for _, name := range ofSentinel {
		switch {
		case e.text(name) == "":
		case !u.Query().Has("master_name"):
			e.refuse(e.prefix+name, hidden, "is for Sentinel: ?master_name=… in %sREDIS_URL", e.prefix)
			return "", ""
		case inURL:
			e.refuse(e.prefix+name, hidden, "must not be set beside a password before the host of %sREDIS_URL, which is that of Sentinel", e.prefix)
			return "", ""
		}
	}
	username = e.text("REDIS_SENTINEL_USERNAME")
	password, file := e.password("REDIS_SENTINEL_PASSWORD")
	if file != nil {
		password = file() // go-redis has no way to ask for it anew
	}
	if username != "" && e.text("REDIS_SENTINEL_PASSWORD") == "" && e.text("REDIS_SENTINEL_PASSWORD_FILE") == "" {
		e.refuseVariable("REDIS_SENTINEL_USERNAME", "needs %sREDIS_SENTINEL_PASSWORD, or a file with it", e.prefix)
	}
	return username, password
}

// password finds a password that stands in no URL: a text, or what returns what a file has.
func (e *environment) password(name string) (text string, inFile func() string) {
	text, file := e.text(name), e.text(name+"_FILE")
	switch {
	case file == "":
		return text, nil
	case text != "":
		e.refuseVariable(name+"_FILE", "must not be set beside %s", e.prefix+name)
		return "", nil
	}
	inFile, err := anew(func() (string, error) { return readPassword(file) })
	if err != nil {
		e.refuseVariable(name+"_FILE", "must be a file with the password: %v", err)
	}
	return "", inFile
}

// readPassword reads the file with a password, without the end of its line.
func readPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", errors.New("it is empty")
	}
	return password, nil
}

// anew reads files at once, and whenever the function is called, since secrets and certificates are
// replaced while a program runs. While they cannot be read, what was read last counts.
func anew[T any](read func() (T, error)) (func() T, error) {
	first, err := read()
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[T]
	last.Store(&first)
	return func() T {
		if now, err := read(); err == nil {
			last.Store(&now)
		}
		return *last.Load()
	}, nil
}

// clientCertificate returns the certificate by which a client shows who it is. Nil: it has none.
type clientCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// certificate finds the client certificate that a server with TLS may ask for.
func (e *environment) certificate(secured bool) clientCertificate {
	cert, key := e.text("REDIS_CERT_FILE"), e.text("REDIS_KEY_FILE")
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		e.refuseVariable("REDIS_CERT_FILE", "must be set: a certificate and its key go together")
	case key == "":
		e.refuseVariable("REDIS_KEY_FILE", "must be set: a certificate and its key go together")
	case !secured:
		e.refuseVariable("REDIS_CERT_FILE", isForTLS, e.prefix, e.prefix)
	default:
		// If one of the two files has been replaced and the other one has not, the last certificate
		// counts.
		read, err := anew(func() (tls.Certificate, error) { return tls.LoadX509KeyPair(cert, key) })
		if err != nil {
			e.refuseVariable("REDIS_CERT_FILE", "must be a certificate in PEM, and %sREDIS_KEY_FILE its key: %v", e.prefix, err)
			return nil
		}
		return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			now := read()
			return &now, nil
		}
	}
	return nil
}

const isForTLS = "is for TLS: rediss:// in %sREDIS_URL, or %sREDIS_TLS"

// authority finds who vouches for servers.
func (e *environment) authority(secured bool) authorities {
	file := e.text("REDIS_CA_FILE")
	switch {
	case file == "":
		return nil
	case !secured:
		e.refuseVariable("REDIS_CA_FILE", isForTLS, e.prefix, e.prefix)
		return nil
	}
	read, err := anew(func() (*x509.CertPool, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, errors.New("it has no certificate")
		}
		return pool, nil
	})
	if err != nil {
		e.refuseVariable("REDIS_CA_FILE", "must be certificates in PEM: %v", err)
	}
	return read
}
