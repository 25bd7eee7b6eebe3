package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
)

// TestProbeAsksTheInstanceItself: where it sends somebody is another answer, such as that of a page
// to log in, which is always well.
func TestProbeAsksTheInstanceItself(t *testing.T) {
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(well.Close)
	sends := httptest.NewServer(http.RedirectHandler(well.URL, http.StatusFound))
	t.Cleanup(sends.Close)
	probe := func(at string) (said string, err error) {
		var b bytes.Buffer
		a := &app{out: &b, format: out.Table}
		a.flags.timeout = time.Minute
		command := &cobra.Command{}
		command.SetContext(t.Context())
		err = a.probe(command, at)
		return b.String(), err
	}
	said, err := probe(well.URL)
	require.NoError(t, err)
	require.Equal(t, "200 OK\n", said)
	said, err = probe(sends.URL)
	require.Equal(t, exitNot, codeOf(err))
	require.Equal(t, "302 Found\n", said)
}
