package tenure_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// authority signs certificates for a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	trusted     *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{trusted: x509.NewCertPool()}
	a.certificate, a.key = a.sign(t, &x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign})
	a.trusted.AddCert(a.certificate)
	return a
}

// sign signs a certificate, the first one by its own key.
func (a authority) sign(t *testing.T, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	c.SerialNumber, c.Subject, c.BasicConstraintsValid = big.NewInt(1), pkix.Name{CommonName: "test"}, true
	c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(48*time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	parent, by := a.certificate, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	require.NoError(t, err)
	signed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return signed, key
}

// server is the configuration of a server with a certificate of that name.
func (a authority) server(t *testing.T, name string) *tls.Config {
	t.Helper()
	c := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(name); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{name}
	}
	signed, key := a.sign(t, c)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{signed.Raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}

// serveRedis answers commands over TLS on the loopback interface, and returns its port.
func serveRedis(t *testing.T, config *tls.Config, answer func(command string) string) int {
	t.Helper()
	listener, err := tls.Listen("tcp4", "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	serveOn(listener, answer)
	return listener.Addr().(*net.TCPAddr).Port
}

// serveOn answers commands until the listener is closed.
func serveOn(listener net.Listener, answer func(command string) string) {
	go func() { // ends with the listener
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the client
				defer func() { _ = connection.Close() }()
				answerRedis(connection, answer)
			}()
		}
	}()
}

func answerRedis(connection net.Conn, answer func(command string) string) {
	lines := bufio.NewReader(connection)
	number := func() int {
		line, err := lines.ReadString('\n')
		if err != nil || len(line) < 3 {
			return -1
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		return n
	}
	for {
		words := make([]string, max(number(), 0))
		for i := range words {
			word := make([]byte, max(number(), 0)+2)
			if _, err := io.ReadFull(lines, word); err != nil {
				return
			}
			words[i] = strings.ToLower(strings.TrimSpace(string(word)))
		}
		if len(words) == 0 {
			return
		}
		text := answer(strings.Join(words, " "))
		if text == "" {
			text = "-ERR unknown command\r\n"
		}
		if _, err := io.WriteString(connection, text); err != nil {
			return
		}
	}
}

// TestClientCertificateOfEnv: a server with TLS that asks for a certificate gets the one in the
// files, and once both were replaced, the new one.
func TestClientCertificateOfEnv(t *testing.T) {
	ours := newAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	shown := make(chan string, 100)
	replace := func(name string) (cert, key []byte) {
		signed, by := ours.sign(t, &x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		der, err := x509.MarshalPKCS8PrivateKey(by)
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	asking := ours.server(t, "127.0.0.1")
	asking.ClientAuth, asking.ClientCAs = tls.RequireAndVerifyClientCert, ours.trusted
	asking.VerifyConnection = func(state tls.ConnectionState) error {
		shown <- state.PeerCertificates[0].DNSNames[0]
		return nil
	}
	port := serveRedis(t, asking, func(command string) string {
		if command == "ping" {
			return "+PONG\r\n"
		}
		return ""
	})
	cert, key := replace("first")
	require.NoError(t, os.WriteFile(certFile, cert, 0o600))
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	environ(t, "NAMESPACE=shop", fmt.Sprintf("REDIS_URL=rediss://127.0.0.1:%d?read_timeout=1m", port), "REDIS_CERT_FILE="+certFile, "REDIS_KEY_FILE="+keyFile)
	read, err := tenure.OptionsFromEnv("SHOP")
	require.NoError(t, err)
	client := read.Redis.(*redis.Client)
	defer client.Close()
	client.Options().TLSConfig.RootCAs = ours.trusted
	connect := func() string {
		conn := client.Conn() // each is a connection of its own while the others are open
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.Ping(context.Background()).Err())
		return <-shown
	}
	require.Equal(t, "first", connect())
	cert, key = replace("second")
	require.NoError(t, os.WriteFile(certFile, cert, 0o600))
	require.Equal(t, "first", connect(), "one of two files was replaced")
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	require.Equal(t, "second", connect())
}

// TestServersHaveCertificatesOfTheirOwn: Sentinel and a Cluster name servers by other addresses
// than that in the URL. A server is trusted by a certificate of the address that it was named by,
// or of the host in the URL, and by no other.
func TestServersHaveCertificatesOfTheirOwn(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	for name, row := range map[string]struct {
		by      authority
		of      string
		refused bool
	}{
		"its own":           {ours, "localhost", false},
		"of the URL":        {ours, "127.0.0.1", false},
		"another name":      {ours, "redis.example", true},
		"another authority": {foreign, "localhost", true},
	} {
		for _, kind := range []string{"Cluster", "Sentinel"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				data := serveRedis(t, row.by.server(t, row.of), func(command string) string {
					if command == "ping" {
						return "+PONG\r\n"
					}
					return ""
				})
				first := serveRedis(t, ours.server(t, "127.0.0.1"), func(command string) string {
					switch {
					case strings.HasPrefix(command, "cluster slots"):
						return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\nlocalhost\r\n:%d\r\n$1\r\nn\r\n", data)
					case strings.HasPrefix(command, "sentinel get-master-addr-by-name"):
						return fmt.Sprintf("*2\r\n$9\r\nlocalhost\r\n$%d\r\n%d\r\n", len(strconv.Itoa(data)), data)
					case strings.HasPrefix(command, "sentinel"):
						return "*0\r\n"
					}
					return ""
				})
				named := fmt.Sprintf("REDIS_URL=rediss://127.0.0.1:%d?read_timeout=1m&dial_timeout=1m&max_retries=-1", first)
				if kind == "Sentinel" {
					environ(t, "NAMESPACE={shop}", named+"&master_name=main")
				} else {
					environ(t, "NAMESPACE={shop}", named, "REDIS_CLUSTER=true")
				}
				read, err := tenure.OptionsFromEnv("SHOP")
				require.NoError(t, err)
				defer read.Redis.Close()
				var asked error
				switch client := read.Redis.(type) {
				case *redis.ClusterClient:
					client.Options().TLSConfig.RootCAs = ours.trusted
					asked = client.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error { return node.Ping(ctx).Err() })
				case *redis.Client:
					client.Options().TLSConfig.RootCAs = ours.trusted
					asked = client.Ping(context.Background()).Err()
				}
				if row.refused {
					var untrusted *tls.CertificateVerificationError
					require.ErrorAs(t, asked, &untrusted)
					return
				}
				require.NoError(t, asked)
			})
		}
	}
}

// TestAuthorityOfEnv: the authorities in the file vouch for a server, and no others. Once the file
// was replaced, the new ones do.
func TestAuthorityOfEnv(t *testing.T) {
	old, now, foreign := newAuthority(t), newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	write := func(name string, authorities ...authority) string {
		var text []byte
		for _, a := range authorities {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})...)
		}
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	// What the server shows, which changes.
	var certified atomic.Pointer[tls.Config]
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return certified.Load(), nil }}
	var named atomic.Int32
	port := serveRedis(t, config, func(command string) string {
		switch {
		case command == "ping":
			return "+PONG\r\n"
		case strings.HasPrefix(command, "cluster slots"):
			return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\nn\r\n", named.Load())
		case strings.HasPrefix(command, "sentinel get-master-addr-by-name"):
			return fmt.Sprintf("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n", len(strconv.Itoa(int(named.Load()))), named.Load())
		case strings.HasPrefix(command, "sentinel"):
			return "*0\r\n"
		}
		return ""
	})
	named.Store(int32(port))
	at := fmt.Sprintf("REDIS_URL=rediss://127.0.0.1:%d?read_timeout=1m&dial_timeout=1m&max_retries=-1", port)
	for kind, variables := range map[string][]string{
		"one server": {at},
		"Sentinel":   {at + "&master_name=main"},
		"Cluster":    {at, "REDIS_CLUSTER=true"},
	} {
		t.Run(kind, func(t *testing.T) {
			certified.Store(old.server(t, "127.0.0.1"))
			file := write("ca.pem", foreign, old)
			connect := func() error {
				environ(t, append(variables, "NAMESPACE={shop}", "REDIS_CA_FILE="+file)...)
				read, err := tenure.OptionsFromEnv("SHOP")
				require.NoError(t, err)
				t.Cleanup(func() { _ = read.Redis.Close() })
				return read.Redis.Ping(context.Background()).Err()
			}
			require.NoError(t, connect())
			certified.Store(now.server(t, "127.0.0.1"))
			require.ErrorContains(t, connect(), "failed to verify certificate")
			certified.Store(old.server(t, "another.example"))
			require.ErrorContains(t, connect(), "failed to verify certificate", "of another server")
		})
	}
	t.Run("replaced", func(t *testing.T) {
		certified.Store(now.server(t, "127.0.0.1"))
		environ(t, at, "NAMESPACE=shop", "REDIS_CA_FILE="+write("ca.pem", old))
		read, err := tenure.OptionsFromEnv("SHOP")
		require.NoError(t, err)
		defer read.Redis.Close()
		require.Error(t, read.Redis.Ping(context.Background()).Err())
		write("ca.pem", old, now)
		require.NoError(t, read.Redis.Ping(context.Background()).Err())
	})
}

// TestSentinelOfEnv: Sentinel has a user and a password of its own, which may stand in no URL.
func TestSentinelOfEnv(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("sp\n"), 0o600))
	for name, row := range map[string]struct {
		at        string
		variables []string
		want      string
	}{
		"a password":      {"redis://shop@", []string{"REDIS_SENTINEL_PASSWORD=sp"}, "auth sp"},
		"in a file":       {"redis://", []string{"REDIS_SENTINEL_PASSWORD_FILE=" + file}, "auth sp"},
		"a user":          {"redis://shop@", []string{"REDIS_SENTINEL_USERNAME=s", "REDIS_SENTINEL_PASSWORD=sp"}, "auth s sp"},
		"both in the URL": {"redis://s:sp@", nil, "auth s sp"},
	} {
		t.Run(name, func(t *testing.T) {
			said := make(chan string, 1000)
			listener, err := net.Listen("tcp4", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			serveOn(listener, func(command string) string {
				if strings.HasPrefix(command, "auth") {
					said <- command
					return "+OK\r\n"
				}
				return ""
			})
			environ(t, append(row.variables, fmt.Sprintf("REDIS_URL=%s%s?master_name=main&max_retries=-1", row.at, listener.Addr()), "NAMESPACE=shop", "REDIS_PASSWORD=p")...)
			read, err := tenure.OptionsFromEnv("SHOP")
			require.NoError(t, err)
			defer read.Redis.Close()
			require.Error(t, read.Redis.Ping(context.Background()).Err(), "it knows no master")
			require.NotEmpty(t, said, "nobody has logged in")
			require.Equal(t, row.want, <-said)
		})
	}
}
