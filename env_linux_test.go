package tenure_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// silentPort is a port of this machine at which dials have no answer, as at a machine that is gone:
// a queue of connections that nobody accepts is full.
func silentPort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	raw, err := listener.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	var failed error
	require.NoError(t, raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), 0) }))
	require.NoError(t, failed)
	for range 10 {
		connection, err := net.DialTimeout("tcp4", listener.Addr().String(), 200*time.Millisecond)
		if err != nil {
			return listener.Addr().(*net.TCPAddr).Port
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	require.FailNow(t, "this kernel accepts more connections than it is told to")
	return 0
}

// TestDialBehindSentinelEndsBeforeItsTime: go-redis bounds the question to a Sentinel and the dial
// of the master together by DialTimeout. As long as a single dial takes all of that it stays with a
// Sentinel that is gone without a sign: for 40 s with a lease of 30 s.
func TestDialBehindSentinelEndsBeforeItsTime(t *testing.T) {
	gone := strconv.Itoa(silentPort(t))
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	serveOn(listener, func(command string) string {
		switch {
		case strings.HasPrefix(command, "sentinel get-master-addr-by-name"):
			return fmt.Sprintf("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", len(gone), gone)
		case strings.HasPrefix(command, "sentinel"):
			return "*0\r\n"
		}
		return ""
	})
	environ(t, "NAMESPACE=shop", fmt.Sprintf("REDIS_URL=redis://%v?master_name=main&read_timeout=1m", listener.Addr()))
	read, err := tenure.OptionsFromEnv("SHOP")
	require.NoError(t, err)
	defer read.Redis.Close()
	o := read.Redis.(*redis.Client).Options()
	ctx, cancel := context.WithTimeout(t.Context(), o.DialTimeout) // as go-redis does
	defer cancel()
	_, err = o.Dialer(ctx, "tcp", "")
	var network net.Error
	require.ErrorAs(t, err, &network)
	require.True(t, network.Timeout())
	require.NoError(t, ctx.Err(), "no time is left to ask another Sentinel")
}
