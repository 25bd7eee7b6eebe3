package store

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestValuesOfOutside: what no clock and no counter of tenure can have written is none, at the very
// bounds.
func TestValuesOfOutside(t *testing.T) {
	const blank = " 1"
	for text, want := range map[string]int64{
		"": 0, "0": 0, "9999999999999999": 9999999999999999, "10000000000000000": 0, "-1": 0, "+1": 0, "1.5": 0, "1e3": 0, blank: 0,
	} {
		require.Equal(t, want, Natural(text), text)
	}
	const year10000 = 253402300800
	require.Equal(t, time.Date(9999, time.December, 31, 23, 59, 59, 999e6, time.UTC), Time(year10000*1000-1))
	for _, ms := range []int64{0, year10000 * 1000, math.MaxInt64} {
		require.True(t, Time(ms).IsZero(), ms)
	}
	require.Equal(t, time.Unix(year10000-1, 0).UTC(), StartTime(year10000-1))
	for _, seconds := range []int64{0, year10000, math.MaxInt64 / 1000, math.MaxInt64/1000 + 1, math.MaxInt64} {
		require.True(t, StartTime(seconds).IsZero(), seconds)
	}
}

// TestRunErrorIsText: an error that is cut stays valid, wherever its last character lies.
func TestRunErrorIsText(t *testing.T) {
	require.Equal(t, strings.Repeat("x", MaxRunError), RunError(strings.Repeat("x", MaxRunError)))
	for shift := range 4 {
		text := RunError(strings.Repeat("x", shift) + strings.Repeat("𝕫", MaxRunError))
		require.True(t, utf8.ValidString(text), shift)
		require.LessOrEqual(t, len(text), MaxRunError)
		require.True(t, strings.HasSuffix(text, "𝕫…"))
	}
}

// TestPortsAreBounded: as many names as may be said are read, and none beyond.
func TestPortsAreBounded(t *testing.T) {
	read := func(names, length int) int {
		ports := make(map[string]int)
		for n := range names {
			ports[fmt.Sprintf("%0*d", length, n)] = 1 + n
		}
		text, err := json.Marshal(map[string]any{"ports": ports})
		require.NoError(t, err)
		i, ok := ParseInstance(string(text))
		require.True(t, ok)
		return len(i.Ports)
	}
	require.Equal(t, MaxPorts, read(MaxPorts, MaxPortBytes/MaxPorts))
	require.Zero(t, read(MaxPorts, MaxPortBytes/MaxPorts+1))
	require.Zero(t, read(MaxPorts+1, 2))
}

// TestCountsOfACrowd: few ask how many listen once in sixteen checks. Of a crowd, which checks less
// often, each asks once in four, and all of them together no more often than a larger one.
func TestCountsOfACrowd(t *testing.T) {
	const every = 7500 * time.Millisecond
	require.Equal(t, ChecksPerCount*every, CountInterval(0, every))
	require.Equal(t, ChecksPerCount*every, CountInterval(1000, every))
	require.Equal(t, ChecksPerCountOfCrowd*rarestCheck, CountInterval(100_000, every))
	require.Equal(t, rarestCheck, CheckIntervalOfMany(100_000, every))
}
