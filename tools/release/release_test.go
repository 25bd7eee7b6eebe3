package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// small is a repository of two modules that need nothing from elsewhere.
func small(t *testing.T) *tree {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"LICENSE":                "Apache",
		"CHANGELOG.md":           "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- All.\n",
		"go.mod":                 "module " + ours + "\n\ngo 1.25.0\n",
		"tenure.go":              "package tenure\n\n// Lease is one.\nconst Lease = 30\n\n// Lead leads.\nfunc Lead(name string) {}\n",
		"tenurehttp/http.go":     "package tenurehttp\n\n// Serve serves.\nfunc Serve() {}\n",
		"internal/x/x.go":        "package x\n\n// X is not public.\nconst X = 1\n",
		"tenureprom/go.mod":      "module " + ours + "/tenureprom\n\ngo 1.25.0\n\nreplace " + ours + " => ..\n\nrequire " + ours + " v0.0.0\n",
		"tenureprom/prom.go":     "package tenureprom\n\nimport \"" + ours + "\"\n\n// Lease is that of tenure.\nconst Lease = tenure.Lease\n",
		"examples/shop/go.mod":   "module " + ours + "/examples/shop\n\ngo 1.25.0\n\nreplace " + ours + " => ../..\n\nrequire " + ours + " v0.0.0\n",
		"examples/shop/main.go":  "package main\n\nfunc main() {}\n",
		chart:                    "apiVersion: v2\nversion: 0.0.1 # of the chart\nappVersion: 0.0.1\n",
		"tools/release/go.mod":   "module " + ours + "/tools/release\n",
		"tools/release/main.go":  "package main\n",
		"tools/release/extra.go": "package main\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	notes, err := os.ReadFile("../notes.sh")
	require.NoError(t, err)
	write(t, filepath.Join(dir, "tools/notes.sh"), string(notes))
	return reopen(t, dir, "0.1.0")
}

func reopen(t *testing.T, dir, version string) *tree {
	t.Helper()
	w, err := open(dir, version)
	require.NoError(t, err)
	w.released = []string{".", "tenureprom"}
	return w
}

func write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// change replaces a text that is there.
func change(t *testing.T, name, from, to string) {
	t.Helper()
	text := read(t, name)
	require.Contains(t, text, from)
	write(t, name, strings.Replace(text, from, to, 1))
}

// TestPrepare: what it writes is what inspect wants, and the replaces stay.
func TestPrepare(t *testing.T) {
	w := small(t)
	require.NoError(t, w.prepare(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)))
	require.Contains(t, read(t, w.file("CHANGELOG.md")), "\n## [Unreleased]\n\n## [0.1.0] - 2026-07-01\n\n### Added\n")
	require.Contains(t, read(t, w.file("tenureprom/go.mod")), "replace "+ours+" => ..")
	require.Contains(t, read(t, w.file("examples/shop/go.mod")), "require "+ours+" v0.1.0")
	require.Equal(t, "apiVersion: v2\nversion: 0.1.0 # of the chart\nappVersion: 0.1.0\n", read(t, w.file(chart)))
	require.Equal(t, "tenure/tenurehttp: func Serve()\ntenure/tenureprom: const Lease = tenure.Lease\ntenure: const Lease = 30\ntenure: func Lead(name string)\n",
		read(t, w.file("testdata/api/0.1.0.txt")))
	require.NoError(t, reopen(t, w.dir, "0.1.0").inspect(t.Context()))
	require.NoError(t, w.prepare(time.Now()), "again changes nothing")
	require.NoError(t, reopen(t, w.dir, "0.1.0").inspect(t.Context()))
	next, err := w.next()
	require.NoError(t, err)
	require.Equal(t, "0.2.0", next)
	require.Equal(t, []string{"v0.1.0", "tenureprom/v0.1.0"}, w.tags())
}

// TestFaults: each is found, and said.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*testing.T, *tree)
		want  string
	}{
		"another version required": {func(t *testing.T, w *tree) {
			change(t, w.file("examples/shop/go.mod"), "tenure v0.1.0", "tenure v0.0.9")
		}, "examples/shop/go.mod requires " + ours + "@v0.0.9, and not v0.1.0"},
		"a foreign replace": {func(t *testing.T, w *tree) {
			change(t, w.file("go.mod"), "go 1.25.0\n", "go 1.25.0\n\nreplace example.com/a => ../a\n")
		}, "go.mod replaces example.com/a"},
		"an exclude": {func(t *testing.T, w *tree) {
			change(t, w.file("go.mod"), "go 1.25.0\n", "go 1.25.0\n\nexclude example.com/a v1.0.0\n")
		}, "excludes versions"},
		"no replace": {func(t *testing.T, w *tree) {
			change(t, w.file("examples/shop/go.mod"), "replace "+ours+" => ../..", "")
		}, "examples/shop/go.mod has no replace of " + ours},
		"another path": {func(t *testing.T, w *tree) {
			change(t, w.file("tenureprom/go.mod"), "/tenureprom\n", "/prom\n")
		}, "tenureprom/go.mod: module " + ours + "/prom"},
		"no section": {func(t *testing.T, w *tree) {
			change(t, w.file("CHANGELOG.md"), "[0.1.0]", "[0.1.1]")
		}, "CHANGELOG.md says nothing of v0.1.0"},
		"an empty section": {func(t *testing.T, w *tree) {
			change(t, w.file("CHANGELOG.md"), "### Added\n\n- All.\n", "")
		}, "CHANGELOG.md says nothing of v0.1.0"},
		"another chart": {func(t *testing.T, w *tree) {
			change(t, w.file(chart), "appVersion: 0.1.0", "appVersion: 0.0.9")
		}, "appVersion is 0.0.9"},
		"a changed API": {func(t *testing.T, w *tree) {
			change(t, w.file("tenure.go"), "name string", "name string, wait bool")
		}, "- tenure: func Lead(name string)\n+ tenure: func Lead(name string, wait bool)"},
		"a changed API of another module": {func(t *testing.T, w *tree) {
			change(t, w.file("tenureprom/prom.go"), "Lease =", "TTL =")
		}, "- tenure/tenureprom: const Lease"},
		"no list of the API": {func(t *testing.T, w *tree) {
			require.NoError(t, os.Remove(w.file("testdata/api/0.1.0.txt")))
		}, "release-prepare writes it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t)
			require.NoError(t, w.prepare(time.Now()))
			c.fault(t, w)
			require.ErrorContains(t, reopen(t, w.dir, "0.1.0").inspect(t.Context()), c.want)
		})
	}
}

// TestAPIOfTheVersionBefore: a patch changes nothing, what breaks is said, and from v1 on nothing
// breaks.
func TestAPIOfTheVersionBefore(t *testing.T) {
	breaks := func(t *testing.T, w *tree) { change(t, w.file("tenure.go"), "func Lead(", "func Leads(") }
	adds := func(t *testing.T, w *tree) {
		change(t, w.file("tenure.go"), "func Lead(", "func Add() {}\n\nfunc Lead(")
	}
	for _, c := range []struct {
		before, version, section string
		change                   func(*testing.T, *tree)
		want                     string
	}{
		{"0.1.0", "0.1.1", "### Fixed\n\n- It.", nil, ""},
		{"0.1.0", "0.1.1", "### Added\n\n- It.", adds, "more than a patch release:\n+ tenure: func Add()"},
		{"0.1.0", "0.2.0", "### Added\n\n- It.", adds, ""},
		{"0.1.0", "0.2.0", "### Added\n\n- It.", breaks, "says nothing under Changed or Removed:\n- tenure: func Lead(name string)"},
		{"0.1.0", "0.2.0", "### Changed\n\n- It.", breaks, ""},
		{"0.9.0", "0.10.0", "### Added\n\n- It.", breaks, "breaks importers of v0.9.0"},
		{"1.0.0", "1.1.0", "### Removed\n\n- It.", breaks, "breaks importers of v1.0.0"},
	} {
		first := small(t)
		first.version = c.before
		require.NoError(t, first.prepare(time.Now()))
		change(t, first.file("CHANGELOG.md"), "## [Unreleased]\n", "## [Unreleased]\n\n"+c.section+"\n")
		if c.change != nil {
			c.change(t, first)
		}
		w := reopen(t, first.dir, c.version)
		require.NoError(t, w.prepare(time.Now()))
		err := reopen(t, w.dir, c.version).inspect(t.Context())
		if c.want == "" {
			require.NoError(t, err, c)
		} else {
			require.ErrorContains(t, err, c.want, c)
		}
	}
}

// TestStrip: the released modules have no replace and the sums of each other, the others are as
// they were, and a zip has what it must have.
func TestStrip(t *testing.T) {
	w := small(t)
	require.NoError(t, w.prepare(time.Now()))
	w = reopen(t, w.dir, "0.1.0")
	proxy := t.TempDir()
	require.NoError(t, w.zips(proxy))
	require.NoError(t, reopen(t, w.dir, "0.1.0").inspect(t.Context()), "the commit of the tags")
	require.NotContains(t, read(t, w.file("tenureprom/go.mod")), "replace")
	require.Contains(t, read(t, w.file("examples/shop/go.mod")), "replace")
	sums := read(t, w.file("tenureprom/go.sum"))
	require.Contains(t, sums, ours+" v0.1.0 h1:")
	require.Contains(t, sums, ours+" v0.1.0/go.mod h1:")
	for folder, want := range map[string][]string{
		ours:                 {"CHANGELOG.md", "LICENSE", "go.mod", "tenure.go", "tenurehttp/http.go", "internal/x/x.go"},
		ours + "/tenureprom": {"LICENSE", "go.mod", "prom.go", "go.sum"},
	} {
		names := contents(t, filepath.Join(proxy, folder, "@v/v0.1.0.zip"))
		for _, name := range want {
			require.Contains(t, names, folder+"@v0.1.0/"+name)
		}
		for _, name := range names {
			require.NotContains(t, name, "examples/shop", "a module of its own")
			require.NotContains(t, name, "tools/release", "a module of its own")
		}
	}
	require.NoError(t, os.Remove(w.file("LICENSE")))
	require.ErrorContains(t, w.zips(proxy), "its zip has no LICENSE")
}

// TestStripOfACommit: what is not committed is in no sum, and the replaces of a tree are left out
// in that tree.
func TestStripOfACommit(t *testing.T) {
	if testing.Short() {
		t.Skip("runs git")
	}
	w := small(t)
	require.NoError(t, w.prepare(time.Now()))
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
		_, err := output(t.Context(), w.dir, nil, "git", args...)
		require.NoError(t, err)
	}
	sums := func() string {
		require.NoError(t, strip(t.Context(), reopen(t, w.dir, "0.1.0")))
		require.NotContains(t, read(t, w.file("tenureprom/go.mod")), "replace")
		return read(t, w.file("tenureprom/go.sum"))
	}
	before := sums()
	write(t, w.file("coverage.out"), "mode: atomic")
	require.Equal(t, before, sums())
}

// TestStripKeepsNoReplace: one that strip does not know is an error.
func TestStripKeepsNoReplace(t *testing.T) {
	w := small(t)
	change(t, w.file("tenureprom/go.mod"), "\nrequire", "\nreplace example.com/fork => ../fork\n\nrequire")
	require.ErrorContains(t, reopen(t, w.dir, "0.1.0").zips(t.TempDir()), "a replace is left: example.com/fork")
}

func contents(t *testing.T, path string) (names []string) {
	t.Helper()
	archive, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, archive.Close()) }()
	for _, file := range archive.File {
		names = append(names, file.Name)
	}
	return names
}

// TestBuild: an importer gets the modules from the proxy alone, and a module that needs what is not
// in its zip does not build.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	t.Setenv("GOPROXY", "off")
	w := small(t)
	require.NoError(t, w.prepare(time.Now()))
	temp := t.TempDir()
	t.Cleanup(func() { require.NoError(t, removeAll(filepath.Join(temp, "modcache"))) })
	require.NoError(t, reopen(t, w.dir, "0.1.0").build(t.Context(), temp))

	change(t, w.file("tenureprom/prom.go"), "tenure.Lease", "tenure.Missing")
	temp = t.TempDir()
	require.ErrorContains(t, reopen(t, w.dir, "0.1.0").build(t.Context(), temp), "tenureprom does not build from its zip")
}

func TestVersions(t *testing.T) {
	for _, wrong := range []string{"1.2", "v1.2.3", "1.2.3 ", "latest", "../x"} {
		_, err := open(t.TempDir(), wrong)
		require.Error(t, err, wrong)
	}
}
