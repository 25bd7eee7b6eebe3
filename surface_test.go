package tenure

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// goTool runs the go command without a network.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command")
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	require.NoError(t, err, "go %v", args)
	return string(out)
}

// What a program compiles that imports this package: go-redis with what it needs, the cron parser,
// and nothing else.
func TestDependencies(t *testing.T) {
	allowed := []string{
		"github.com/tenure-go/tenure",
		"github.com/redis/go-redis/v9",
		"github.com/cespare/xxhash/v2", // of go-redis
		"go.uber.org/atomic",           // of go-redis
		"golang.org/x/sys",             // of go-redis
		"github.com/robfig/cron/v3",
	}
	direct := []string{"github.com/redis/go-redis/v9", "github.com/robfig/cron/v3"}
	used := map[string]bool{}
	for line := range strings.Lines(goTool(t, "list", "-deps", "-f", `{{with .Module}}{{.Path}} {{join $.Imports " "}}{{end}}`, ".")) {
		module, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		if module == "" {
			continue // the standard library
		}
		used[module] = true
		require.Contains(t, allowed, module)
		if module != allowed[0] {
			continue
		}
		for path := range strings.FieldsSeq(imports) {
			standard := !strings.Contains(strings.Split(path, "/")[0], ".")
			ours := strings.HasPrefix(path, allowed[0]+"/")
			ok := standard || ours || slices.ContainsFunc(direct, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
			require.True(t, ok, "tenure imports %s", path)
		}
	}
	require.True(t, used[allowed[0]] && used[allowed[1]])
}

// The public surface fits a screen.
func TestGoDocFitsAScreen(t *testing.T) {
	doc := goTool(t, "doc", "-short", ".")
	require.LessOrEqual(t, strings.Count(doc, "\n"), 60, doc)
}

// TestWordsOfTheStore: what the store calls the status of a run, or of an instance, is what this
// package exports.
func TestWordsOfTheStore(t *testing.T) {
	for word, stored := range map[RunState]store.RunState{
		RunRunning: store.RunRunning, RunSucceeded: store.RunSucceeded, RunFailed: store.RunFailed, RunInterrupted: store.RunInterrupted,
		RunAbandoned: store.RunAbandoned,
	} {
		require.EqualValues(t, word, stored)
	}
	require.EqualValues(t, InstanceActive, store.WordActive)
	require.EqualValues(t, InstanceUnknown, store.WordUnknown)
}
