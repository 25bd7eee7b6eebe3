package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// TestGettingStarted: what docs/getting-started.md shows happens. The first process leads, works
// and serves the page; after its SIGKILL the second leads; after SIGTERM of that the third does, at
// once.
func TestGettingStarted(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds and runs the program")
	}
	binary := filepath.Join(t.TempDir(), "start")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	server := miniredis.RunT(t)
	server.ClockTTL(true)

	a := start(t, binary, server.Addr(), "a")
	a.await(t, "acquired leadership")
	a.await(t, "the leader works")
	a.shows(t, "tenure/api/cluster/leader", `"leader":"a"`)
	a.keeps(t, server)

	b := start(t, binary, server.Addr(), "b")
	b.await(t, "waiting: another instance leads")
	b.shows(t, "", "leader: false\n")
	b.shows(t, "tenure/", "<html")
	require.NoError(t, a.cmd.Process.Kill())
	server.ClockTTL(true)
	b.await(t, "leader changed, the former one is gone and has not given its lease back")
	b.await(t, "the leader works")
	b.keeps(t, server)

	c := start(t, binary, server.Addr(), "c")
	c.await(t, "waiting: another instance leads")
	require.NoError(t, b.cmd.Process.Signal(syscall.SIGTERM))
	rest, _ := io.ReadAll(b.out)
	require.NoError(t, b.cmd.Wait(), "%s", rest)
	if !strings.Contains(string(rest), "released leadership") {
		require.Contains(t, string(rest), "no renewal succeeded in time") // it stood still for longer than a lease
		server.ClockTTL(true)
	}
	c.await(t, "acquired leadership")
}

// TestThePageHasThisProgram: it is the one of docs/getting-started.md.
func TestThePageHasThisProgram(t *testing.T) {
	page, err := os.ReadFile("../../docs/getting-started.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(program), "\npackage main\n")
	require.True(t, found)
	block := regexp.MustCompile("(?s)```go\npackage main\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block)
	require.Equal(t, code, string(block[1]))
}

type process struct {
	cmd     *exec.Cmd
	out     *bufio.Reader
	address string
}

func start(t *testing.T, binary, redis, id string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), binary), address: redistest.FreeAddress(t)}
	p.cmd.Env = append(os.Environ(), "REDIS_ADDR="+redis, "LISTEN="+p.address, "ID="+id)
	out, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// await reads the log up to a line with that text.
func (p *process) await(t *testing.T, text string) {
	t.Helper()
	patience := time.AfterFunc(2*time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer patience.Stop()
	var log strings.Builder
	for !strings.Contains(log.String(), text) {
		line, err := p.out.ReadString('\n')
		log.WriteString(line)
		require.NoError(t, err, "not logged: %s\n%s", text, log.String())
	}
}

// keeps waits until the process leads by a lease that does not end in Redis, until ClockTTL is on
// again: on a starved machine it would end at any time.
func (p *process) keeps(t *testing.T, server *miniredis.Miniredis) {
	t.Helper()
	require.Eventually(t, func() bool {
		server.ClockTTL(false)
		if p.get(t, "") == "leader: true\n" {
			return true
		}
		server.ClockTTL(true) // it has stood still, and needs the end of its old lease
		return false
	}, 2*time.Minute, time.Second)
}

// shows waits until a page has that text.
func (p *process) shows(t *testing.T, path, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.get(t, path), text) }, 2*time.Minute, 20*time.Millisecond, text)
}

func (p *process) get(t *testing.T, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address+"/"+path, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Accept", "text/html")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}
