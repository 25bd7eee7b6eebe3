package tenurehttp

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProxyGoesStraight: by itself Proxy asks no proxy of the environment, and bounds the wait for
// an answer.
func TestProxyGoesStraight(t *testing.T) {
	transport, ok := straight().(*http.Transport)
	require.True(t, ok)
	require.Nil(t, transport.Proxy)
	require.Positive(t, transport.ResponseHeaderTimeout)
	require.NotNil(t, http.DefaultTransport.(*http.Transport).Proxy, "that of others is as it was")
}
