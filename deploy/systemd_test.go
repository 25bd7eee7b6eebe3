//go:build linux

package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// unit is the unit of tenure run for a role, with a program that is there.
func unit(t *testing.T, command, program string) (text string, settings map[string]string) {
	t.Helper()
	raw, err := os.ReadFile("systemd/tenure-run@.service")
	require.NoError(t, err)
	text = strings.NewReplacer("/usr/local/bin/tenure", command, "/etc/tenure/%i.env", os.DevNull, "/etc/tenure/%i", program, "%i", "reports").Replace(string(raw))
	settings = make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, set := strings.Cut(strings.TrimSpace(line), "="); set && !strings.HasPrefix(line, "#") {
			require.NotContains(t, settings, name)
			settings[name] = value
		}
	}
	return text, settings
}

// TestUnit: systemd takes the unit, and SIGTERM to the process that it starts, and to no other,
// ends the program and gives the lease back before TimeoutStopSec can be over.
func TestUnit(t *testing.T) {
	if testing.Short() {
		t.Skip("needs redis-server and builds the command")
	}
	program := filepath.Join(t.TempDir(), "reports")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho began\nexec sleep 1000\n"), 0o755))
	text, settings := unit(t, built(t), program)
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		path := filepath.Join(t.TempDir(), "tenure-run@reports.service")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Empty(t, string(out))
	}
	stop, err := strconv.Atoi(settings["TimeoutStopSec"])
	require.NoError(t, err)
	const shutdown = 35 * time.Second // the default of tenure run
	require.GreaterOrEqual(t, time.Duration(stop)*time.Second, shutdown+5*time.Second)
	require.Equal(t, "mixed", settings["KillMode"])

	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: "shop", Timeout: patience})
	require.NoError(t, err)
	led := func() bool {
		role, err := control.Role(t.Context(), "reports")
		return err == nil && role.Led
	}
	words := strings.Fields(settings["ExecStart"])
	cmd := exec.Command(words[0], words[1:]...) // it is to end by the signal
	cmd.Env = append(os.Environ(), "TENURE_NAMESPACE=shop", "TENURE_REDIS_URL=redis://"+server.Addr(), "TENURE_RESTART_GUARD=-1s", "HOME="+t.TempDir())
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Eventually(t, led, patience, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		require.NoError(t, err, said.String())
	case <-time.After(patience):
		require.NoError(t, errors.New("it does not end"))
	}
	require.Contains(t, said.String(), "leads reports with token")
	require.False(t, led(), "the lease is given back")
}
