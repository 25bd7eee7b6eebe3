package overlay

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestYielding: each statement has its yield before it, whatever it stands in, and no line moves.
func TestYielding(t *testing.T) {
	const before = `package p

func f(in chan int) (n int) {
loop:
	for {
		select {
		case n = <-in:
			n++
		default:
			break loop
		}
		switch {
		case n > 1:
			fallthrough
		case n > 2:
			defer func() { n = 2 }()
		}
	}
	if n > 3 {
		return 3
	} else if n > 2 {
		return 2
	}
	return n
}
`
	const after = `package p

func f(in chan int) (n int) {
overlayYield(); loop:
	for {
		overlayYield(); select {
		case n = <-in:
			overlayYield(); n++
		default:
			overlayYield(); break loop
		}
		overlayYield(); switch {
		case n > 1:
			overlayYield(); fallthrough
		case n > 2:
			overlayYield(); defer func() { overlayYield(); n = 2 }()
		}
	}
	overlayYield(); if n > 3 {
		overlayYield(); return 3
	} else if n > 2 {
		overlayYield(); return 2
	}
	overlayYield(); return n
}
`
	text, err := yielding(before, "overlayYield")
	require.NoError(t, err)
	require.Equal(t, after, text)
	_, err = parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	require.NoError(t, err)
	_, err = yielding("no program", "overlayYield")
	require.Error(t, err)
}

// TestYield: a process yields as often as it is told to, and does what it would without.
func TestYield(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("go.mod", []byte("module example\n\ngo 1.24\n"), 0o644))
	require.NoError(t, os.WriteFile("main.go", []byte(source), 0o644))
	require.NoError(t, os.WriteFile("main_test.go", []byte(test), 0o644))
	require.NoError(t, os.WriteFile("outside_test.go", []byte(`package main_test

import "testing"

func TestNothing(t *testing.T) { t.Log("nothing") }
`), 0o644))
	laid, err := Yield("laid", []string{""})
	require.NoError(t, err)
	for name, want := range map[string]struct {
		call  string
		times int
	}{"main.go": {"overlayYield(); ", 8}, "main_test.go": {"overlayYieldTest(); ", 1}, "outside_test.go": {"overlayYieldTest(); ", 1}} {
		files, err := filepath.Glob("laid/*_" + name)
		require.NoError(t, err)
		require.Len(t, files, 1)
		text, err := os.ReadFile(files[0])
		require.NoError(t, err)
		require.Equal(t, want.times, strings.Count(string(text), want.call), name)
	}
	require.NoError(t, Compile("", "./p.test", "-overlay", laid))
	for _, every := range []string{"", "0", "1", "5"} {
		t.Setenv(EnvYield, every)
		t.Setenv(EnvHold, every)
		out, err := Command(t.Context(), "", "./p.test").CombinedOutput()
		require.NoError(t, err)
		require.Contains(t, string(out), "33 8 7 1", every)
	}
	_, err = Yield("laid", []string{"none"})
	require.Error(t, err)
}
