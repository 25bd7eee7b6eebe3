package cli

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
)

// TestProbeTrustsTheAuthorityOfTheAPI: the probe and the API are those of one program.
func TestProbeTrustsTheAuthorityOfTheAPI(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that hangs up is meant to
	server.StartTLS()
	t.Cleanup(server.Close)
	probed := ask(t, nil, "healthcheck", "--url", server.URL)
	require.Equal(t, exitNot, probed.code)
	require.Contains(t, probed.err, "failed to verify certificate")

	file := filepath.Join(t.TempDir(), "ca.pem")
	t.Setenv("TENURE_API_CA_FILE", file)
	probed = ask(t, nil, "healthcheck", "--url", server.URL)
	require.Equal(t, exitCannot, probed.code, "the file is not there")
	require.Contains(t, probed.err, "TENURE_API_CA_FILE")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	require.Equal(t, said{out: "200 OK\n"}, ask(t, nil, "healthcheck", "--url", server.URL))
}

// TestProbeAsksTheInstanceItself: where it sends somebody is another answer, such as that of a page
// to log in, which is always well.
func TestProbeAsksTheInstanceItself(t *testing.T) {
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(well.Close)
	sends := httptest.NewServer(http.RedirectHandler(well.URL, http.StatusFound))
	t.Cleanup(sends.Close)
	probe := func(at string) (said string, err error) {
		var b bytes.Buffer
		a := &app{out: &b, format: out.Table, settings: &settings.Settings{}}
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
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	command := &cobra.Command{}
	command.SetContext(interrupted)
	require.Equal(t, context.Canceled, (&app{settings: &settings.Settings{}}).probe(command, well.URL), "which says nothing of the instance")
}

// TestRightsOfALeaseElsewhere: the rights are those of a program with the same variables.
func TestRightsOfALeaseElsewhere(t *testing.T) {
	t.Setenv("TENURE_LEADER_KEY", "old:lock")
	t.Setenv("TENURE_NAMESPACE", "shop")
	require.Contains(t, ask(t, nil, "acl").out, " ~old:lock ~old:lock:since ")
	got := ask(t, nil, "acl", "--leader-key", "a,b", "--user", "ops").out
	require.Regexp(t, `^user ops reset on ~shop:\* ~a ~a:since .* ~b ~b:since `, got)
	require.NotContains(t, got, "old:lock")
	require.Equal(t, `"~old:lock"`, strings.Split(ask(t, nil, "acl", "-o", "jsonl").out, "\n")[1])
	require.NotContains(t, ask(t, nil, "acl").out, "+rpush")
	require.Contains(t, ask(t, nil, "acl", "--control").out, "+rpush")
}

// TestWhoNeedsRedisItself: doctor does, unless it is named; the rights are known without asking
// anybody, but an API that is named is not what they are of.
func TestWhoNeedsRedisItself(t *testing.T) {
	t.Setenv("TENURE_API", "http://127.0.0.1:1")
	require.Zero(t, ask(t, nil, "acl", "-n", "shop").code)
	for _, command := range []string{"acl -n shop --api http://127.0.0.1:1", "doctor -n shop"} {
		got := ask(t, nil, strings.Fields(command)...)
		require.NotZero(t, got.code, command)
		require.Contains(t, got.err, " needs Redis itself: the API does not serve it (fix: --redis in place of --api)", command)
	}
	require.Regexp(t, `^[!-~]+@[!-~]+$`, whoami())
	require.LessOrEqual(t, len(whoami()), 128)
}
