package main

import (
	"bytes"
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

func TestStaleLeaderIsRefused(t *testing.T) {
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	var out bytes.Buffer
	err := run(t.Context(), &out, "redis://"+server.Addr(), time.Minute)
	require.NoError(t, err, out.String())
	require.Regexp(t, `(?s)alpha leads with token \d+
alpha is paused.*
beta leads with token \d+
beta writes with token \d+: accepted \(still the leader: true\)
alpha wakes up.*
alpha writes with token \d+: REFUSED, stale token.* \(still the leader: false\)
the account keeps "written by beta"
$`, out.String())
	require.Empty(t, server.Keys(), "the show removes its keys")
}

func TestEmbeddedRedisAndTooLittleTime(t *testing.T) {
	err := run(t.Context(), new(bytes.Buffer), "", 50*time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAccount(t *testing.T) {
	ctx := t.Context()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "account.db"))
	require.NoError(t, err)
	defer db.Close()
	account, err := openAccount(ctx, db, 1)
	require.NoError(t, err)
	const old, young = 1763692800000, 1763692800001 // as large as real ones
	require.NoError(t, account.write(ctx, old, "first"))
	require.NoError(t, account.write(ctx, old, "a leader writes again"))
	require.NoError(t, account.write(ctx, young, "the next leader"))

	account, err = openAccount(ctx, db, 1)
	require.NoError(t, err, "a restart finds the row")
	require.ErrorIs(t, account.write(ctx, old, "late"), errStale)
	value, err := account.read(ctx)
	require.NoError(t, err)
	require.Equal(t, "the next leader", value)
}
