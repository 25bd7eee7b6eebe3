package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below the ephemeral range, which starts at 32768 on Linux: no outgoing connection
// can then take the port of a server that is down for a moment, nor can a client that dials it end
// up connected to itself. Redis Cluster's bus, at port + 10000, stays below it too.
const (
	firstPort = 12000
	lastPort  = 21999

	portAttempts = 50
)

// errPortTaken says that somebody else listens on the port.
var errPortTaken = errors.New("port is taken")

// An address of this machine that refuses connections: a privileged port that nothing serves.
const (
	refusingHost = "127.0.0.1"
	refusingPort = "1"
)

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// listen listens on a free port.
func listen() (net.Listener, error) {
	var last error
	for range portAttempts {
		ln, err := net.Listen("tcp", loopback(firstPort+rand.IntN(lastPort-firstPort+1)))
		if err == nil {
			return ln, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no free port: %w", last)
}

// freePort returns a port that nobody listens on now; who uses it must be ready for [errPortTaken].
func freePort() (int, error) {
	ln, err := listen()
	if err != nil {
		return 0, err
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}

// FreeAddress returns an address that nobody listens on now, for a program that must be told one.
// The system gives its port to nobody who names none, such as the test servers beside this one.
func FreeAddress(t TB) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return loopback(port)
}
