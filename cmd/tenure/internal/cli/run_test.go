//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
	"github.com/tenure-go/tenure/cmd/tenure/internal/sidecar"
)

// graceOf is the default grace with a lease.
func graceOf(t *testing.T, lease string) time.Duration {
	t.Helper()
	t.Setenv("TENURE_NAMESPACE", "shop")
	t.Setenv("TENURE_REDIS_HOST", "redis")
	t.Setenv("TENURE_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	set, err := settings.Load("")
	require.NoError(t, err)
	a := &app{err: io.Discard, settings: set}
	config, _, err := a.runConfig(runOptions{restart: "no", stopSignal: "TERM", id: "a", ttl: lease}, []string{filepath.Join("bin", "true")})
	require.NoError(t, err)
	a.source.Close()
	return config.Grace
}

// TestGraceEndsBeforeTheTimeToStop: else the process goes away before its program, and leaves the
// lease to lapse.
func TestGraceEndsBeforeTheTimeToStop(t *testing.T) {
	grace := func(stop, lease string) time.Duration {
		t.Setenv("TENURE_SHUTDOWN_TIMEOUT", stop)
		return graceOf(t, lease)
	}
	require.Equal(t, 7500*time.Millisecond, grace("", ""))
	require.Equal(t, 10*time.Second, grace("", "60s"))
	require.Equal(t, 7500*time.Millisecond, grace("10s", ""))
	require.Equal(t, 3*time.Second, grace("4s", ""))
}

// TestGraceLeavesTimeToRenew: of a lease that its holder counts half of, a quarter of all would be
// due before the first renewal is, again and again.
func TestGraceLeavesTimeToRenew(t *testing.T) {
	t.Setenv("TENURE_DRIFT_MARGIN", "2s")
	t.Setenv("TENURE_RENEW_INTERVAL", "800ms")
	require.Equal(t, (4-2)*time.Second-200*time.Millisecond-1200*time.Millisecond, graceOf(t, "4s"))
	t.Setenv("TENURE_DRIFT_MARGIN", "-1s") // off
	require.Equal(t, time.Second, graceOf(t, "4s"))
}

// TestTold: a program that has died of the signal that is for both may be heard of first. Any other
// end is its own.
func TestTold(t *testing.T) {
	for code, want := range map[int]time.Duration{143: 500 * time.Millisecond, 130: 500 * time.Millisecond, 137: 0, 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			begun := time.Now()
			require.Equal(t, want > 0, told(ctx, code), code)
			require.Equal(t, want, time.Since(begun), code)
			begun = time.Now()
			require.False(t, told(t.Context(), code), code)
			require.LessOrEqual(t, time.Since(begun), time.Second)
		})
	}
}

// TestWhatIsRun: the flags are stronger than the variables, and a signal is known by each of its
// names.
func TestWhatIsRun(t *testing.T) {
	for name, value := range map[string]string{
		"NAMESPACE": "shop", "REDIS_HOST": "redis", "CONFIG": "", "INSTANCE_ID": "a", "LEASE_TTL": "20s", "ADDRESS": "a:1",
	} {
		t.Setenv("TENURE_"+name, value)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	config := func(o runOptions) (sidecar.Config, tenure.Options) {
		set, err := settings.Load("")
		require.NoError(t, err)
		a := &app{err: io.Discard, settings: set}
		o.restart = "no"
		config, coordinator, err := a.runConfig(o, []string{"true"})
		require.NoError(t, err)
		a.source.Close()
		return config, coordinator.Options()
	}
	for _, name := range []string{"INT", "int", "SIGINT", "sigint"} {
		c, o := config(runOptions{stopSignal: name})
		require.Equal(t, syscall.SIGINT, c.StopSignal)
		require.Equal(t, []any{"a", "a:1", 20 * time.Second}, []any{o.InstanceID, o.Registry.Address, o.Election.LeaseTTL})
	}
	_, o := config(runOptions{stopSignal: "TERM", id: "b", address: "b:2", ttl: "40s"})
	require.Equal(t, []any{"b", "b:2", 40 * time.Second}, []any{o.InstanceID, o.Registry.Address, o.Election.LeaseTTL})
	for _, name := range []string{"INSTANCE_ID", "LEASE_TTL"} {
		t.Setenv("TENURE_"+name, "")
	}
	_, o = config(runOptions{stopSignal: "TERM"})
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, []any{fmt.Sprintf("%s-%d", host, os.Getpid()), 30 * time.Second}, []any{o.InstanceID, o.Election.LeaseTTL})
}

// TestRunElects: a fleet that is told not to elect yet, or to have a leader by a flag, is not
// elected in behind its back.
func TestRunElects(t *testing.T) {
	for mode, refused := range map[string]bool{"": false, "on": false, "off": true, "static": true, "of": true} {
		for name, value := range map[string]string{"NAMESPACE": "shop", "REDIS_HOST": "redis", "CONFIG": "", "ELECTION": mode} {
			t.Setenv("TENURE_"+name, value)
		}
		t.Setenv("XDG_CONFIG_HOME", t.TempDir())
		set, err := settings.Load("")
		require.NoError(t, err)
		a := &app{err: io.Discard, settings: set}
		_, _, err = a.runConfig(runOptions{restart: "no", stopSignal: "TERM", id: "a"}, []string{"true"})
		a.close()
		if refused {
			require.ErrorContains(t, err, fmt.Sprintf("TENURE_ELECTION = %q", mode))
		} else {
			require.NoError(t, err, mode)
		}
	}
}
