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

func said(text string) string { return text }

func main() {
	p := pair{1, 2}
	fmt.Println(said(fmt.Sprint(p.sum(10, 20), " ", double(4), " ", p.nameless(), " ", unit)))
}
`

const test = `package main

import "testing"

func TestMain(m *testing.M) { main() }
`

func TestFailed(t *testing.T) {
	require.Equal(t, []string{"TestA", "TestA/b", "TestC"}, Failed([]byte("--- PASS: TestZ (0s)\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nx --- FAIL: TestY\n--- FAIL: TestC (1s)\nFAIL\n")))
	require.Empty(t, Failed([]byte("PASS\n")))
}

// TestBuild: one build stands for each edit of a body, and for none; what cannot be switched is
// told.
func TestBuild(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("go.mod", []byte("module example\n\ngo 1.24\n"), 0o644))
	require.NoError(t, os.WriteFile("main.go", []byte(source), 0o644))
	require.NoError(t, os.WriteFile("main_test.go", []byte(test), 0o644))
	require.NoError(t, os.WriteFile("script.lua", []byte("return 1"), 0o644))
	var edits []Edit
	edit := func(old, text string) {
		e, err := Replace("main.go", source, old, text)
		require.NoError(t, err)
		edits = append(edits, e)
	}
	edit("total += n", "total -= n")
	edit("return text", "return text + \"!\"")
	edit("total + p.a + p.b", "total + p.a")
	edit("total + p.a + p.b", "nobody") // no program
	edit("range more", "range 1.5")     // nor this
	edit("total + p.a + p.b", "}")      // not even a file
	edit("return 2 * n", "return 3 * n")
	edit("return 7", "return 8")
	edit("const unit = 1", "const unit = 2")
	edits = append(edits, Edit{"script.lua", 7, 8, "2"})
	binaries, alone, err := Build(t.TempDir(), edits, []string{""})
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, true, true, true, true, true, true, true}, alone)
	for edit, expected := range []string{"33 8 7 1", "-27 8 7 1", "33 8 7 1!", "31 8 7 1"} {
		cmd := exec.CommandContext(t.Context(), binaries[""])
		cmd.Env = append(os.Environ(), fmt.Sprint(EnvEdit, "=", edit))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, expected+"\n", string(out))
	}

	for _, old := range []string{"no such text", "return"} {
		_, err := Replace("main.go", source, old, "")
		require.ErrorContains(t, err, "main.go")
	}
}
