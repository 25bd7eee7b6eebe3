package deploy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// patience is far longer than anything takes on a starved machine.
const patience = time.Minute

// commands are those of the runbook, of its blocks and of its prose, each once, those that look
// before those that change something. A block of another language needs a check of its own.
func commands(t *testing.T) (all []string) {
	text, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	var steps []string
	block := regexp.MustCompile("(?sm)^```([^\n]*)\n(.*?)^```")
	for _, found := range block.FindAllStringSubmatch(string(text), -1) {
		require.Empty(t, found[1], "no test runs this language")
		for line := range strings.Lines(found[2]) {
			command, _, _ := strings.Cut(line, " #")
			all = append(all, strings.TrimSpace(command))
		}
	}
	require.Greater(t, len(all), 30)
	prose := strings.Join(strings.Fields(block.ReplaceAllString(string(text), "")), " ")
	for _, found := range regexp.MustCompile("`((?:tenure|redis-cli|kubectl) [^`]+)`").FindAllStringSubmatch(prose, -1) {
		if !slices.Contains(all, found[1]) {
			steps = append(steps, found[1])
		}
	}
	require.Greater(t, len(steps), 5)
	slices.Sort(all)
	slices.Sort(steps)
	const last = "tenure rm ID" // the instance that others need
	require.Contains(t, steps, last)
	steps = append(slices.DeleteFunc(slices.Compact(steps), func(step string) bool { return step == last }), last)
	return append(slices.Compact(all), steps...)
}

// operator runs the commands of the runbook on a service of two instances.
type operator struct {
	*testing.T

	server  *redistest.Server
	tenure  string // the program
	control *tenure.Control
	client  *redis.Client
	running chan struct{} // the task has begun
	holds   atomic.Bool   // it goes on until its run is canceled; else it ends at once
}

// TestRunbook: every command of docs/runbook.md does what it says there: those of tenure and of
// redis-cli on a service of two instances, kubectl for what the manifests have.
func TestRunbook(t *testing.T) {
	if testing.Short() {
		t.Skip("needs redis-server and builds the command")
	}
	o := &operator{T: t, server: redistest.Start(t), tenure: built(t), running: make(chan struct{}, 10)}
	for name, value := range map[string]string{
		"TENURE_REDIS_URL": "redis://" + o.server.Addr(), "TENURE_NAMESPACE": "shop", "TENURE_TIMEOUT": patience.String(), "HOME": t.TempDir(), "XDG_CONFIG_HOME": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	o.client = redis.NewClient(&redis.Options{Addr: o.server.Addr()})
	t.Cleanup(func() { require.NoError(t, o.client.Close()) })
	var err error
	o.control, err = tenure.NewControl(o.client, tenure.ControlOptions{Namespace: "shop", Timeout: patience})
	require.NoError(t, err)
	o.start("web-1")
	o.start("web-2")
	for _, command := range commands(t) {
		words := strings.Fields(strings.NewReplacer("<ns>", "shop", " ID", " web-2", " NAME", " invoices").Replace(command))
		switch words[0] {
		case "tenure":
			o.runTenure(command, words[1:])
		case "redis-cli":
			o.runRedis(command, words[1:])
		case "kubectl":
			kubectl(t, words[1:])
		case "curl":
			curl(t, words[1:])
		case "chronyc": // on another machine, and no part of tenure
			require.Equal(t, "chronyc tracking", command)
		default:
			require.Fail(t, "no test knows how to run it", command)
		}
	}
	text, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	for _, key := range regexp.MustCompile("`<ns>(:[a-z:]+)`").FindAllStringSubmatch(string(text), -1) {
		require.EqualValues(t, 1, o.client.Exists(t.Context(), "shop"+key[1]).Val(), "the runbook names a key that is not there: %s", key[0])
	}
}

// built is the path of the command.
func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenure")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Dir, build.Env = "../cmd/tenure", append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// start starts an instance.
func (o *operator) start(id string) {
	client := redis.NewClient(&redis.Options{Addr: o.server.Addr()})
	coordinator, err := tenure.New(client, tenure.Options{
		Namespace: "shop", InstanceID: id, Election: tenure.ElectionOptions{Safety: tenure.SafetyOptions{RestartGuard: -1}, LeaseTTL: 10 * time.Second}, ShutdownTimeout: patience,
	})
	require.NoError(o, err)
	require.NoError(o, coordinator.Tasks().Register(tenure.Task{
		Name: "invoices", Schedule: tenure.OnDemand(),
		Run: func(ctx context.Context, _ tenure.TaskRun) error {
			if !o.holds.Load() {
				return nil
			}
			o.running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		},
	}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- coordinator.Run(ctx) }() // ends with stop
	o.Cleanup(func() {
		stop()
		require.NoError(o, <-ended)
		require.NoError(o, client.Close())
	})
	o.await(func() bool { return coordinator.State() == tenure.InstanceActive })
	o.led()
}

func (o *operator) await(holds func() bool) {
	o.Helper()
	require.Eventually(o, holds, patience, 10*time.Millisecond)
}

// led waits until somebody leads.
func (o *operator) led() {
	o.Helper()
	o.await(func() bool {
		role, err := o.control.Role(o.Context(), "")
		return err == nil && role.Leader.InstanceID != ""
	})
}

// onceLed does something while somebody leads, and again if it fails and the term has changed by
// itself: a starved machine may stand still for longer than a lease.
func (o *operator) onceLed(do func() bool) {
	o.Helper()
	token := func() int64 {
		role, err := o.control.Role(o.Context(), "")
		require.NoError(o, err)
		return role.Leader.Token
	}
	for range 10 {
		o.led()
		if before := token(); do() || token() == before {
			return
		}
	}
}

// prepare makes what a command changes back, or ends.
func (o *operator) prepare(command string) {
	switch command {
	case "tenure undrain ID":
		require.NoError(o, o.control.Drain(o.Context(), "web-2"))
	case "tenure role forget NAME": // one that somebody led long ago
		require.NoError(o, o.client.XAdd(o.Context(), &redis.XAddArgs{
			Stream: "shop:leader:invoices:terms", Values: []any{"event", "ended", "token", 1, "holder", "web-0", "at", 1000, "reason", "stopped"},
		}).Err())
	case "tenure task resume NAME":
		require.NoError(o, o.control.Pause(o.Context(), "invoices", "the bank is down"))
	case "tenure task cancel NAME":
		o.holds.Store(true)
		_, err := o.control.Trigger(o.Context(), "invoices")
		if !errors.Is(err, tenure.ErrTriggerWaiting) { // it waits behind a run that a new term has begun
			require.NoError(o, err)
		}
		select {
		case <-o.running:
		case <-time.After(patience):
			require.Fail(o, "the task does not run")
		}
	}
}

func (o *operator) runTenure(command string, args []string) {
	var out string
	var code int
	o.onceLed(func() bool {
		o.prepare(command)
		out, code = o.run(o.tenure, args...)
		return code == 0
	})
	o.holds.Store(false)
	if code == 1 && slices.Contains([]string{"tenure doctor", "tenure status"}, command) {
		code = 0 // it has found something: this redis keeps nothing
	}
	require.Zero(o, code, "%s: %s", command, out)
	if command == "tenure leader" {
		require.Contains(o, out, "web-")
	} else {
		require.NotEmpty(o, out, command)
	}
}

func (o *operator) runRedis(command string, args []string) {
	host, port, err := net.SplitHostPort(o.server.Addr())
	require.NoError(o, err)
	var out string
	var code int
	o.onceLed(func() bool {
		out, code = o.run("redis-cli", append([]string{"-e", "-h", host, "-p", port}, args...)...)
		return args[0] != "DEL" || out == "1\n"
	})
	require.Zero(o, code, "%s: %s", command, out)
	require.NotRegexp(o, `(?i)^(\(error\)|ERR|NOPERM|WRONG|unknown)`, out, command)
	if args[0] == "DEL" {
		require.Equal(o, "1\n", out, "no such key: %s", command)
		o.led()
	}
}

// run runs a program, and returns what it writes and its exit code.
func (o *operator) run(name string, args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(o.Context(), 2*patience)
	defer cancel()
	began := time.Now()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	o.Logf("%.1f s: %s %s", time.Since(began).Seconds(), filepath.Base(name), strings.Join(args, " "))
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return string(out), exit.ExitCode()
	}
	require.NoError(o, err, name)
	return string(out), 0
}

// kubectl holds a command against the kinds of the manifests, and against their names.
func kubectl(t *testing.T, args []string) {
	names := map[string][]string{"pods": nil}
	for _, object := range manifests(t) {
		kind := strings.ToLower(object.(runtime.Object).GetObjectKind().GroupVersionKind().Kind)
		names[kind+"s"] = append(names[kind+"s"], object.(metav1.Object).GetName())
	}
	require.Contains(t, []string{"get", "describe"}, args[0])
	require.Contains(t, names, args[1], "the manifests have no such kind")
	for _, name := range args[2:] {
		require.Contains(t, names[args[1]], name)
	}
}

// curl asks for what a program that serves pprof has.
func curl(t *testing.T, args []string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	server := httptest.NewServer(mux)
	defer server.Close()
	url := strings.Replace("http://"+args[len(args)-1], "http://localhost:6060", server.URL, 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, string(body), "goroutine ")
}
