package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// logged is the output of a service, a line at a time.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// await returns what the group of the pattern matches in the first line that it is found in.
func (l logged) await(t *testing.T, pattern string) string {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case line := <-l:
			if found := regexp.MustCompile(pattern).FindStringSubmatch(line); found != nil {
				return found[len(found)-1]
			}
		case <-timeout:
			require.Fail(t, "not logged: "+pattern)
		}
	}
}

// written is all that has been logged and not awaited, once nothing writes any more.
func (l logged) written() (text string) {
	for len(l) > 0 {
		text += <-l
	}
	return text
}

type service struct {
	logged
	url  string
	stop func() error
}

func start(t *testing.T, redisURL string) *service {
	ctx, cancel := context.WithCancel(context.Background())
	s := &service{logged: make(logged, 1024)}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s.logged, redisURL, "127.0.0.1:0", 0) }() // ends with ctx
	s.stop = func() error {
		cancel()
		return <-ended
	}
	t.Cleanup(cancel)
	s.url = s.await(t, `msg=serving url=(\S+)`)
	return s
}

func (s *service) request(t *testing.T, method, path string) (int, string) {
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestFollowerRefusesWritesAndTakesOver(t *testing.T) {
	server := miniredis.RunT(t)
	server.ClockTTL(true)

	first := start(t, "redis://"+server.Addr())
	name := first.await(t, `acquired leadership" instance=(\S+)`)
	code, body := first.request(t, http.MethodGet, "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "leader\n", body)
	code, body = first.request(t, http.MethodPost, "orders")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "order 1 taken\n", body)

	second := start(t, "redis://"+server.Addr())
	second.await(t, `leader changed" .*subject=`+name)
	_, body = second.request(t, http.MethodGet, "")
	require.Equal(t, "follower of "+name+"\n", body)
	code, body = second.request(t, http.MethodPost, "orders")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not the leader\n", body)

	require.Eventually(t, func() bool { // else the first one takes itself for the last
		members, err := server.HKeys(namespace + ":instances")
		return err == nil && len(members) == 2
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.stop())
	second.await(t, "acquired leadership")
	_, body = second.request(t, http.MethodPost, "orders")
	require.Equal(t, "order 2 taken\n", body)
	second.await(t, `report by the leader" orders=2`)
	require.NoError(t, second.stop())
	require.Empty(t, server.Keys(), "the last one out removes the keys")
}

func TestEmbeddedRedisForAWhile(t *testing.T) {
	led := false
	for while := 2 * time.Second; !led; while *= 2 { // a starved machine is not elected within the first
		require.Less(t, while, time.Minute, "it never leads")
		out := make(logged, 1024)
		err := run(t.Context(), out, "", "127.0.0.1:0", while)
		log := out.written()
		if led = strings.Contains(log, "acquired leadership"); led {
			require.NoError(t, err)
			require.Regexp(t, "(?s)embedded Redis.*acquired leadership.*released leadership", log)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	first := start(t, "")
	require.ErrorContains(t, run(t.Context(), io.Discard, "", first.url[len("http://"):len(first.url)-1], 0), "address already in use")
	require.NoError(t, first.stop())
}
