package deploy_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// password stands in for that of the service, in the files of the kit.
const password = "change-me"

// TestUsersOfRedis: the ACL file has the rights that ACLRules and ControlRules name, and no more.
// TENURE_UPDATE=1 writes it.
func TestUsersOfRedis(t *testing.T) {
	rules, err := tenure.ACLRules("shop")
	require.NoError(t, err)
	control, err := tenure.ControlRules("shop")
	require.NoError(t, err)
	for _, rule := range control {
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	want := "user default off\nuser health on >health -@all +ping\nuser shop on >" + password + " resetkeys resetchannels -@all " + strings.Join(rules, " ") + "\n"
	const path = "redis/users.acl"
	if os.Getenv("TENURE_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(text), "TENURE_UPDATE=1 go test ./deploy writes it")
}

// TestRedisTakesTheFile: a redis-server with these users elects a leader, and the doctor finds no
// right missing.
func TestRedisTakesTheFile(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server, err := exec.LookPath("redis-server")
	require.NoError(t, err, "make install-redis")
	text, err := os.ReadFile("redis/users.acl")
	require.NoError(t, err)
	dir := t.TempDir()
	users, socket := filepath.Join(dir, "users.acl"), filepath.Join(dir, "redis.sock")
	require.NoError(t, os.WriteFile(users, text, 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, server, "--port", "0", "--unixsocket", socket, "--aclfile", users, "--dir", dir,
		"--appendonly", "yes", "--maxmemory-policy", "noeviction")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cancel(); _ = cmd.Wait() }) // it ends by the signal

	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Username: "shop", Password: password})
	t.Cleanup(func() { _ = client.Close() })
	require.Eventually(t, func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", socket)
		if err == nil {
			err = c.Close()
		}
		return err == nil && client.Ping(t.Context()).Err() == nil
	}, time.Minute, 10*time.Millisecond, &log)
	coordinator, err := tenure.New(client, tenure.Options{Namespace: "shop", Election: tenure.ElectionOptions{Safety: tenure.SafetyOptions{RestartGuard: -1}}})
	require.NoError(t, err)
	run, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- coordinator.Run(run) }() // ends with stop
	require.Eventually(t, coordinator.IsLeader, time.Minute, 10*time.Millisecond)
	for _, finding := range coordinator.Doctor(t.Context()) {
		if finding.Check == "rights" {
			require.Equal(t, tenure.FindingOK, finding.Level, fmt.Sprint(finding))
		}
	}
	require.NoError(t, coordinator.Elector().Status().Err)
	require.True(t, coordinator.Elector().Status().HistoryWitness)
	require.ErrorIs(t, coordinator.Control().Pause(t.Context(), "tidy", ""), tenure.ErrNotFound, "and no refusal")
	stop()
	require.NoError(t, <-ended)
}
