package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryBugCanBeSeeded: the text that a bug breaks is there, once, and so is the test that must
// notice. Names are told apart.
func TestEveryBugCanBeSeeded(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	sources, named := map[string]string{}, map[string]bool{}
	read := func(pattern string) string {
		if _, known := sources[pattern]; !known {
			files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				sources[pattern] += string(text)
			}
		}
		return sources[pattern]
	}
	for _, b := range bugs {
		if named[b.name] {
			t.Errorf("%s: there are two of that name", b.name)
		}
		named[b.name] = true
		if n := strings.Count(read(b.file), b.old); n != 1 {
			t.Errorf("%s: %s has the text to be broken %d times: %q", b.name, b.file, n, b.old)
		}
		test, _, _ := strings.Cut(b.test, "/")
		if in := strings.TrimPrefix(b.in+"/*_test.go", "/"); !strings.Contains(read(in), "\nfunc "+test+"(") {
			t.Errorf("%s: %s has no test %s", b.name, in, b.test)
		}
	}
}

// TestShares: the parts are the whole list, each bug once.
func TestShares(t *testing.T) {
	_, n, err := share("1/3")
	require.NoError(t, err)
	seen := make([]int, len(bugs))
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		k, _, err := share(part)
		require.NoError(t, err)
		for i := range bugs {
			if i%n == k-1 {
				seen[i]++
			}
		}
	}
	require.NotContains(t, seen, 0)
	require.NotContains(t, seen, 2)
	for _, wrong := range []string{"0/2", "3/2", "x", "1", "-1/2"} {
		_, _, err := share(wrong)
		require.ErrorContains(t, err, "k/n", wrong)
	}
}
