package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// zips writes the zips of the released modules into a file GOPROXY, after it has stripped them.
func (w *tree) zips(proxy string) error {
	sums := make(map[string][]string) // lines of go.sum, by the path of the module
	for _, folder := range w.released {
		mod := w.modules[folder]
		var lines []string
		for _, require := range mod.Require {
			if isOurs(require.Mod.Path) {
				if sums[require.Mod.Path] == nil {
					return fmt.Errorf("%s/go.mod requires %s, which is not released before it", folder, require.Mod.Path)
				}
				lines = append(lines, sums[require.Mod.Path]...)
			}
		}
		for _, replace := range slices.Clone(mod.Replace) {
			if isOurs(replace.Old.Path) {
				if err := mod.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
					return err
				}
			}
		}
		if err := w.write(folder); err != nil {
			return err
		}
		if err := addSums(w.file(path.Join(folder, "go.sum")), lines); err != nil {
			return err
		}
		own, err := w.zip(folder, proxy)
		if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		sums[mod.Module.Mod.Path] = own
	}
	return nil
}

// addSums puts lines into a go.sum, in place of those of other versions of the same modules.
func addSums(name string, lines []string) error {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	all := lines
	for line := range strings.Lines(string(text)) {
		if !isOurs(strings.Fields(line)[0]) {
			all = append(all, strings.TrimSuffix(line, "\n"))
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) })
	return os.WriteFile(name, []byte(strings.Join(all, "\n")+"\n"), 0o644)
}

// content is a file of a zip.
type content struct{ name, path string }

func (c content) Path() string                 { return c.name }
func (c content) Lstat() (os.FileInfo, error)  { return os.Lstat(c.path) }
func (c content) Open() (io.ReadCloser, error) { return os.Open(c.path) }

// zip writes what the proxy says of one module, and returns its lines for a go.sum. The zip has
// what the go command would put into it: the files of the module, and the licence of the root.
func (w *tree) zip(folder, proxy string) (sums []string, err error) {
	var files []modzip.File
	licence := false
	err = filepath.WalkDir(w.file(folder), func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(w.dir, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			_, nested := w.modules[rel]
			_, failed := os.Stat(filepath.Join(file, "go.mod"))
			if rel != folder && (nested || failed == nil || entry.Name() == ".git" || rel == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		name := strings.TrimPrefix(rel, folder+"/")
		licence = licence || name == "LICENSE"
		files = append(files, content{name, file})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !licence {
		if _, err := os.Stat(w.file("LICENSE")); err != nil {
			return nil, fmt.Errorf("its zip has no LICENSE: %w", err)
		}
		files = append(files, content{"LICENSE", w.file("LICENSE")})
	}
	m := module.Version{Path: w.modules[folder].Module.Mod.Path, Version: "v" + w.version}
	dir := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	if err := modzip.Create(&packed, m, files); err != nil {
		return nil, err
	}
	mod, err := os.ReadFile(w.file(path.Join(folder, "go.mod")))
	if err != nil {
		return nil, err
	}
	parsed, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		return nil, err
	}
	if len(parsed.Replace) > 0 {
		return nil, fmt.Errorf("a replace is left: %s", parsed.Replace[0].Old)
	}
	info, err := json.Marshal(map[string]any{"Version": m.Version, "Time": time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, m.Version)
	if err := errors.Join(os.WriteFile(base+".zip", packed.Bytes(), 0o644), os.WriteFile(base+".mod", mod, 0o644),
		os.WriteFile(base+".info", info, 0o644), os.WriteFile(filepath.Join(dir, "list"), []byte(m.Version+"\n"), 0o644)); err != nil {
		return nil, err
	}
	if err := hasLicence(packed.Bytes(), m); err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(base+".zip", dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	alone, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(mod)), nil })
	return []string{m.Path + " " + m.Version + " " + whole, m.Path + " " + m.Version + "/go.mod " + alone}, err
}

// hasLicence looks into the zip itself.
func hasLicence(packed []byte, m module.Version) error {
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return err
	}
	file, err := archive.Open(m.String() + "/LICENSE")
	if err != nil {
		return fmt.Errorf("its zip has no LICENSE: %w", err)
	}
	return file.Close()
}

// build makes the zips and builds from them alone: each module, and a program that imports all.
func (w *tree) build(ctx context.Context, temp string) error {
	proxy := filepath.Join(temp, "proxy")
	if err := w.zips(proxy); err != nil {
		return err
	}
	env, err := environment(ctx, temp, proxy)
	if err != nil {
		return err
	}
	for _, folder := range w.released {
		began := time.Now()
		alone := filepath.Join(temp, "module", strings.ReplaceAll(folder, "/", "-"))
		m := module.Version{Path: w.modules[folder].Module.Mod.Path, Version: "v" + w.version}
		if err := modzip.Unzip(alone, m, filepath.Join(proxy, filepath.FromSlash(m.Path), "@v", m.Version+".zip")); err != nil {
			return err
		}
		if _, err := output(ctx, alone, append(env, "GOFLAGS=-mod=readonly -trimpath -buildvcs=false"), "go", "build", "./..."); err != nil {
			return fmt.Errorf("%s does not build from its zip: %w", folder, err)
		}
		fmt.Printf("%s builds from its zip (%.0f s)\n", m, time.Since(began).Seconds())
	}
	return w.importer(ctx, temp, append(env, "GOFLAGS=-mod=mod -trimpath -buildvcs=false"))
}

// environment has the go command take our modules from a folder, what was downloaded before from
// there, and the rest from where it is taken else. Nothing of it stays in the module cache: a
// version that is not released must not.
func environment(ctx context.Context, temp, proxy string) ([]string, error) {
	text, err := output(ctx, temp, nil, "go", "env", "-json", "GOPROXY", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	var is struct {
		Proxy string `json:"GOPROXY"`
		Cache string `json:"GOMODCACHE"`
	}
	if err := json.Unmarshal([]byte(text), &is); err != nil {
		return nil, err
	}
	downloads := "file://" + filepath.ToSlash(filepath.Join(is.Cache, "cache", "download"))
	return []string{
		"GOWORK=off", "GOTOOLCHAIN=local", "GOSUMDB=off", "GONOSUMDB=", "GOPRIVATE=", "GONOPROXY=", "GOMODCACHE=" + filepath.Join(temp, "modcache"),
		"GOBIN=" + filepath.Join(temp, "bin"), "GOPROXY=file://" + filepath.ToSlash(proxy) + "," + downloads + "," + cmp.Or(is.Proxy, "off"),
	}, nil
}

// importer builds a program that imports every public package, and installs the command.
func (w *tree) importer(ctx context.Context, temp string, env []string) error {
	api, err := w.api()
	if err != nil {
		return err
	}
	mod, source := "module example.com/importer\n\ngo 1.26.0\n\n", "package main\n\nimport (\n\t\"fmt\"\n\t\"runtime/debug\"\n\n"
	for _, folder := range w.released {
		if folder != "cmd/tenure" {
			mod += fmt.Sprintf("require %s v%s\n", path.Join(ours, folder), w.version)
		}
	}
	packages := make(map[string]bool)
	for _, line := range api {
		name, _, _ := strings.Cut(line, ": ")
		if pkg := path.Join(path.Dir(ours), name); !packages[pkg] && !strings.Contains(name, "/cmd/") && !strings.Contains(name, "bench") {
			packages[pkg] = true
			source += fmt.Sprintf("\t_ %q\n", pkg)
		}
	}
	source += ")\n\nfunc main() {\n\tinfo, _ := debug.ReadBuildInfo()\n\tfor _, d := range info.Deps {\n\t\tfmt.Println(d.Path, d.Version)\n\t}\n}\n"
	dir := filepath.Join(temp, "importer")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644)); err != nil {
		return err
	}
	began := time.Now()
	deps, err := output(ctx, dir, env, "go", "run", ".")
	if err != nil {
		return fmt.Errorf("a program that imports all packages does not build: %w", err)
	}
	for _, folder := range w.released {
		if want := path.Join(ours, folder) + " v" + w.version; folder != "cmd/tenure" && !strings.Contains(deps, want+"\n") {
			return fmt.Errorf("the importer was not built with %s, but with:\n%s", want, deps)
		}
	}
	fmt.Printf("an importer of %d packages builds (%.0f s)\n", len(packages), time.Since(began).Seconds())
	if !slices.Contains(w.released, "cmd/tenure") {
		return nil
	}
	began = time.Now()
	if _, err := output(ctx, temp, env, "go", "install", ours+"/cmd/tenure@v"+w.version); err != nil {
		return fmt.Errorf("go install: %w", err)
	}
	said, err := output(ctx, temp, nil, filepath.Join(temp, "bin", "tenure"), "version")
	if err != nil || !strings.Contains(said, "v"+w.version) {
		return fmt.Errorf("tenure version says %q: %w", said, err)
	}
	fmt.Printf("go install: %s (%.0f s)\n", strings.TrimSpace(said), time.Since(began).Seconds())
	return nil
}
