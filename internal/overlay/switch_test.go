package overlay

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const source = `package main

import "fmt"

type pair struct{ a, b int }

const unit = 1

func (p *pair) sum(more ...int) (total int) {
	for _, n := range more {
		total += n
	}
	return total + p.a + p.b
}

func double[T int | float64](n T) T { return 2 * n }

func (pair) nameless() int { return 7 }

func say(text string) { fmt.Print(text) }

func main() {
	p := pair{1, 2}
	say(fmt.Sprint(p.sum(10, 20), " ", double(4), " ", p.nameless(), " ", unit))
}
`

// TestSwitch: one build stands for each edit of a body, and for none; what cannot be switched is named.
func TestSwitch(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("go.mod", []byte("module example\n\ngo 1.24\n"), 0o644))
	require.NoError(t, os.WriteFile("main.go", []byte(source), 0o644))
	require.NoError(t, os.WriteFile("script.lua", []byte("return 1"), 0o644))
	edits := []Edit{
		{"main.go", "total += n", "total -= n"},
		{"main.go", "fmt.Print(text)", "fmt.Print(text + \"!\")"},
		{"main.go", "total + p.a + p.b", "total + p.a"},
		{"main.go", "return 2 * n", "return 3 * n"},
		{"main.go", "return 7", "return 8"},
		{"main.go", "const unit = 1", "const unit = 2"},
		{"script.lua", "1", "2"},
	}
	laid, alone, err := Switch(t.TempDir(), edits)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, true, true, true, true}, alone)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", laid, "-o", "program", ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for edit, expected := range []string{"33 8 7 1", "-27 8 7 1", "33 8 7 1!", "31 8 7 1"} {
		cmd := exec.CommandContext(t.Context(), "./program")
		cmd.Env = append(os.Environ(), fmt.Sprint(EnvEdit, "=", edit))
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, expected, string(out))
	}

	for _, bad := range []Edit{{"main.go", "no such text", ""}, {"main.go", "return", "r"}, {"main.go", "total += n", "}"}} {
		_, _, err := Switch(t.TempDir(), []Edit{bad})
		require.ErrorContains(t, err, "main.go")
	}
}
