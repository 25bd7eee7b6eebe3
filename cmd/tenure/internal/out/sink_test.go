package out

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// full has no space left from the second byte on.
type full struct{ took []byte }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if room := 1 - len(f.took); room < len(p) {
		f.took = append(f.took, p[:max(room, 0)]...)
		return max(room, 0), errFull
	}
	f.took = append(f.took, p...)
	return len(p), nil
}

// TestSink: the first error is kept and told once, and nothing is written behind it.
func TestSink(t *testing.T) {
	t.Parallel()
	to, told := new(full), 0
	s := &Sink{To: to, Failed: func() { told++ }}
	n, err := s.Write([]byte("a"))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, s.Err())
	for range 2 {
		n, err = s.Write([]byte("bc"))
		require.ErrorIs(t, err, errFull)
		require.Zero(t, n)
	}
	require.ErrorIs(t, s.Err(), errFull)
	require.Equal(t, 1, told)
	require.Equal(t, "a", string(to.took))
	_, err = (&Sink{To: to}).Write([]byte("b"))
	require.ErrorIs(t, err, errFull, "with nobody to be told")
}
