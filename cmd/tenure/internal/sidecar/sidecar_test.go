//go:build unix

package sidecar

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenuretest"
)

// A guardian is this program, started again.
func init() {
	if len(os.Args) > 1 && os.Args[1] == GuardCommand {
		os.Exit(Guard(os.Args[2:]))
	}
}

// runner makes one whose term has a deadline that does not move.
func runner(t *testing.T, lease time.Duration, command ...string) (*Runner, tenure.Term) {
	t.Helper()
	ctx, end := tenuretest.Context(t, 7)
	t.Cleanup(func() { end(tenure.ErrLost) })
	term, _ := tenure.TermFrom(ctx)
	status := tenure.ElectionStatus{Token: term.Token, Deadline: time.Now().Add(lease)}
	return &Runner{Config: Config{
		Command: command, Grace: min(lease/4, time.Minute), Margin: 100 * time.Millisecond, StopSignal: syscall.SIGTERM, Poll: time.Millisecond, Namespace: "shop",
		Status: func() tenure.ElectionStatus { return status }, Started: func(int, tenure.Term) {}, Left: func(int, string) {},
	}}, term
}

// TestEndsOfACommand: by itself, by a signal, by the end of its term, and for want of a renewal.
func TestEndsOfACommand(t *testing.T) {
	require.NoError(t, Prepare())
	r, term := runner(t, time.Hour, "sh", "-c", `test "$TENURE_TOKEN" = 7 -a "$TENURE_NAMESPACE" = shop -a -n "$TENURE_ROLE$TENURE_INSTANCE_ID" && exit 3`)
	result, err := r.Run(t.Context(), term)
	require.NoError(t, err)
	require.Equal(t, Result{Code: 3, By: ByItself}, result)
	require.Nil(t, r.orders)

	r, term = runner(t, time.Hour, "no-such-command-of-tenure")
	result, err = r.Run(t.Context(), term)
	require.NoError(t, err)
	require.Equal(t, NotFound, result.Code)
	require.Contains(t, result.Text, "no-such-command-of-tenure")

	r, term = runner(t, time.Hour, "sleep", "1000")
	r.Started = func(int, tenure.Term) { r.Signal(syscall.SIGUSR1) }
	result, err = r.Run(t.Context(), term)
	require.NoError(t, err)
	require.Equal(t, Result{Code: 128 + int(syscall.SIGUSR1), By: ByItself}, result)

	r, term = runner(t, time.Hour, "sleep", "1000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.Started = func(int, tenure.Term) { cancel() }
	result, err = r.Run(ctx, term)
	require.NoError(t, err)
	require.Equal(t, Result{Code: 128 + int(syscall.SIGTERM), By: ByStop}, result)

	r, term = runner(t, time.Hour, "sleep", "1000")
	r.Grace = time.Hour - time.Second // the end begins in a second, and a starved guardian has an hour for it
	result, err = r.Run(t.Context(), term)
	require.NoError(t, err)
	require.Equal(t, ByDeadline, result.By)

	r, term = runner(t, time.Hour, "sleep", "1000")
	r.Status = func() tenure.ElectionStatus { return tenure.ElectionStatus{} } // the term is over
	result, err = r.Run(ctx, term)
	require.NoError(t, err)
	require.Equal(t, Result{By: ByStop}, result)
}

// TestFeed: each later deadline goes to the guardian until the term ends, which it hears of once.
func TestFeed(t *testing.T) {
	r, term := runner(t, time.Hour, "true")
	from, orders, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = from.Close(), orders.Close() }()
	r.orders = orders
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looks atomic.Int64
	status := r.Status
	r.Status = func() tenure.ElectionStatus { looks.Add(1); return status() }
	reports, ended := make(chan string), make(chan Result, 1)
	go func() {
		result, _ := r.feed(ctx, term, now()+time.Minute, reports)
		ended <- result
	}()
	lines := make(chan string, 4)
	go read(from, lines)
	for range 3 {
		kind, rest, _ := strings.Cut(<-lines, " ")
		require.Equal(t, orderUntil, kind)
		until, err := strconv.ParseInt(rest, 10, 64)
		require.NoError(t, err)
		require.Greater(t, time.Duration(until), now()+30*time.Minute)
	}
	cancel()
	line := <-lines
	for strings.HasPrefix(line, orderUntil) { // as long as some were on their way
		line = <-lines
	}
	require.Equal(t, orderStop+" 0", line)
	at := looks.Load()
	require.Eventually(t, func() bool { return looks.Load() > at+3 }, time.Minute, time.Millisecond)
	reports <- reportEnded + " 3 " + ByStop
	require.Equal(t, Result{Code: 3, By: ByStop}, <-ended)
	require.NoError(t, orders.Close())
	_, open := <-lines
	require.False(t, open, "nothing behind the stop")
}

// TestFeedEndsInTheMiddleOfTheMargin: the guardian has had half of it, the rest is to kill in.
func TestFeedEndsInTheMiddleOfTheMargin(t *testing.T) {
	r, term := runner(t, time.Hour, "true")
	r.Margin, r.Poll = 2*time.Hour, time.Hour
	ended := make(chan bool, 1)
	go func() {
		_, is := r.feed(t.Context(), term, now()+time.Hour, nil)
		ended <- is
	}()
	select {
	case is := <-ended:
		require.False(t, is)
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for the end of the lease")
	}
}
