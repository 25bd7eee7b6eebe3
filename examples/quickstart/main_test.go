package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// TestQuickstart: the program leads, runs its task at once, answers, and stops cleanly on SIGTERM,
// so that a second one leads without the lease having to end: it does not end in this Redis while
// ClockTTL is off. On a starved machine it would end at any time.
func TestQuickstart(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds and runs the program")
	}
	binary := build(t)
	server := miniredis.RunT(t)
	for range 2 {
		address := redistest.FreeAddress(t)
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Env = append(os.Environ(), "REDIS_ADDR="+server.Addr(), "LISTEN="+address)
		out, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var log strings.Builder
		lines := bufio.NewScanner(out)
		await(t, lines, &log, "acquired leadership")
		server.ClockTTL(true)
		await(t, lines, &log, "the leader writes the report")
		require.Eventually(t, func() bool {
			server.ClockTTL(false)
			if get(t, "http://"+address+"/") == "leader: true\n" {
				return true
			}
			server.ClockTTL(true) // it has stood still, and needs the end of its old lease
			return false
		}, time.Minute, time.Second)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
		}
		require.NoError(t, cmd.Wait(), log.String())
		if !strings.Contains(log.String(), "released leadership") {
			require.Contains(t, log.String(), "no renewal succeeded in time") // it stood still for longer than a lease
			server.ClockTTL(true)
		}
	}
}

// TestSecondSignalKills: somebody who does not want to wait for a request that hangs need not. A
// program that ends by itself had no second signal while it waited, if there was no signal for as
// long as it waits, on a machine that stands still: then it is tried again.
func TestSecondSignalKills(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds and runs the program")
	}
	binary := build(t)
	for {
		pause, err := signalled(t, binary)
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			require.Equal(t, -1, exit.ExitCode(), "killed by a signal")
			return
		case pause < 5*time.Second:
			t.Fatalf("it waited for the request, though a signal came every %v at least", pause)
		}
	}
}

// signalled sends signals to the program, which a request keeps from ending, until it ends. It
// returns the longest time without a signal, and how the program ended.
func signalled(t *testing.T, binary string) (pause time.Duration, end error) {
	t.Helper()
	cmd, _, ended := startAndHang(t, binary)
	signals := time.NewTicker(20 * time.Millisecond)
	defer signals.Stop()
	for last := time.Now(); ; {
		select {
		case err := <-ended:
			return max(pause, time.Since(last)), err
		case <-signals.C:
			before := time.Now()
			_ = cmd.Process.Signal(syscall.SIGTERM)
			pause, last = max(pause, time.Since(last)), before
		}
	}
}

// TestTwoSignalsAtOnce: a second signal that comes with the first one does not kill. timeout(1),
// and whoever forwards a signal that the group of the process has as well, send two.
func TestTwoSignalsAtOnce(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds and runs the program")
	}
	binary := build(t)
	for {
		cmd, address, ended := startAndHang(t, binary)
		began := time.Now()
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.Eventually(t, func() bool { // it has seen the first, and waits for the request
			another, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
			if err == nil {
				_ = another.Close()
			}
			return err != nil
		}, time.Minute, time.Millisecond)
		err := cmd.Process.Signal(syscall.SIGTERM)
		apart := time.Since(began)
		if apart < 900*time.Millisecond { // else this machine stood still
			require.NoError(t, err)
			require.NoError(t, <-ended)
			return
		}
		t.Logf("the signals were %v apart; the program ended with: %v", apart, <-ended)
	}
}

// startAndHang starts the program, and a request that keeps it from ending. It returns the address
// of the program, too, and a channel that hears of its end.
func startAndHang(t *testing.T, binary string) (*exec.Cmd, string, <-chan error) {
	t.Helper()
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	address := redistest.FreeAddress(t)
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), "REDIS_ADDR="+server.Addr(), "LISTEN="+address)
	require.NoError(t, cmd.Start())
	get(t, "http://"+address+"/")
	hanging, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = hanging.Close() })
	_, err = io.WriteString(hanging, "GET / HTTP/1.1\r\n") // the rest never comes: the server waits for it
	require.NoError(t, err)
	http.DefaultClient.CloseIdleConnections()
	get(t, "http://"+address+"/") // over a younger connection: the other is accepted
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }() // ends with the program
	return cmd, address, end
}

// TestAddressInUse: a program that cannot listen says so by its exit code.
func TestAddressInUse(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds and runs the program")
	}
	server := miniredis.RunT(t)
	cmd := exec.CommandContext(t.Context(), build(t))
	cmd.Env = append(os.Environ(), "REDIS_ADDR="+server.Addr(), "LISTEN="+server.Addr())
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(out))
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, string(out), "listen tcp")
}

func build(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "quickstart")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(built))
	return binary
}

// await reads the log up to the line that has the text.
func await(t *testing.T, lines *bufio.Scanner, log *strings.Builder, text string) {
	t.Helper()
	for lines.Scan() {
		log.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("not logged: %s\n%s", text, log)
}

// get asks until somebody listens.
func get(t *testing.T, url string) string {
	t.Helper()
	for bound := time.Now().Add(time.Minute); ; {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			return string(body)
		}
		require.True(t, time.Now().Before(bound), "%v", err)
		time.Sleep(10 * time.Millisecond) // bounded poll
	}
}
