package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestNames: what may be a name of an instance, a role or a task, and the beginning of one.
func TestNames(t *testing.T) {
	long := strings.Repeat("x", 128)
	for _, tt := range []struct {
		name                         string
		instance, role, task, prefix bool
	}{
		{"web-1", true, true, true, true},
		{"A.b_c-9", true, true, true, true},
		{long, true, true, true, true},
		{"web-1:8080", true, false, false, false},
		{"", false, false, false, true},
		{long + "x", false, false, false, false},
		{"a b", false, false, false, false},
		{"a\n", false, false, false, false},
		{"é", false, false, false, false},
		{"since", true, false, true, true},
		{"term", true, false, true, true},
		{"terms", true, false, true, true},
		{"events", true, false, true, true},
	} {
		require.Equal(t, []bool{tt.instance, tt.role, tt.task, tt.prefix},
			[]bool{checkInstance(tt.name) == nil, checkRole(tt.name) == nil, checkTask(tt.name) == nil, checkPrefix(tt.name) == nil}, tt.name)
	}
	require.NoError(t, checkHeir(""))
	require.Error(t, checkHeir("a b"))
	require.Less(t, len(checkTask(strings.Repeat("x", 1<<20)).Error()), 300)
}

// TestOtherArguments: names of Redis users, numbers, durations and states.
func TestOtherArguments(t *testing.T) {
	for name, well := range map[string]bool{"shop": true, "é:*~": true, "": false, "a b": false, "a\u00a0b": false, "a\x1b": false, "a\u202eb": false, "a\xff": false} {
		require.Equal(t, well, checkUser(name) == nil, name)
	}
	for text, want := range map[string]int{"1": 1, "100000": 100_000, "100001": 0, "0": 0, "-1": 0, "+1": 0, "01": 0, "1.5": 0, "": 0} {
		n, err := checkNumber(text)
		require.Equal(t, want, n, text)
		require.Equal(t, want == 0, err != nil, text)
	}
	for text, want := range map[string]int{"0": 0, "7": 7, "-1": -1, "1.5": -1, "": -1, "many": -1} {
		var limit limitValue
		err := limit.Set(text)
		require.Equal(t, want < 0, err != nil, text)
		require.Equal(t, max(want, 0), int(limit), text)
	}
	for text, want := range map[string]time.Duration{"1ms": time.Millisecond, "2m": 2 * time.Minute, "0": 0, "0s": 0, "-1s": 0, "5": 0, "": 0} {
		var span spanValue
		err := span.Set(text)
		require.Equal(t, want == 0, err != nil, text)
		require.Equal(t, want, time.Duration(span), text)
	}
	states := statesValue[tenure.InstanceState]{all: allStates}
	for _, text := range []string{"", "active", "joining,draining", "drifted,down,unknown"} {
		require.NoError(t, states.Set(text))
	}
	require.Equal(t, "active, joining, draining, drifted, down, unknown", states.String())
	for _, text := range []string{"Active", "active,", ",", "active, down"} {
		require.Error(t, states.Set(text), text)
	}
}
