package out

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestAside: what is written arrives in order, and before Close returns, unless the other end holds
// it up. Then nobody waits for it.
func TestAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var to bytes.Buffer
		a, text := NewAside(&to), []byte("one ")
		n, err := a.Write(text)
		require.NoError(t, err)
		require.Equal(t, 4, n)
		copy(text, "two ") // a writer may use its buffer again
		_, _ = a.Write(text)
		a.Close()
		a.Close()
		_, err = a.Write(text)
		require.NoError(t, err)
		require.Equal(t, "one two ", to.String())

		read, write := io.Pipe()
		a = NewAside(write)
		for range 3 * asideTexts {
			n, err = a.Write([]byte("."))
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		a.Close()
		var all []byte
		go func() { <-a.done; _ = write.Close() }()
		all, err = io.ReadAll(read)
		require.NoError(t, err)
		kept := strings.Count(string(all), ".")
		require.GreaterOrEqual(t, kept, asideTexts)
		require.LessOrEqual(t, kept, asideTexts+1, "and the one that was held up")
	})
}
