package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/tenure-go/tenure/internal/proof/surface"
)

// ours is the path of the root module; those of the others begin with it.
const ours = "github.com/tenure-go/tenure"

// released are the modules that importers use, by their folders. Each has a tag, and stands behind
// those that it needs. The others are tests and examples.
var released = []string{".", "adapters/asynq", "adapters/gocron", "cmd/tenure", "tenureotel", "tenureprom"}

// tree is a copy of the repository, or the repository itself.
type tree struct {
	dir, version string
	modules      map[string]*modfile.File // by folder, "." for the root; not those of tools
	released     []string
}

var plain = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func open(dir, version string) (*tree, error) {
	if version != "" && !plain.MatchString(version) {
		return nil, fmt.Errorf("%q is no version: it must be like 0.2.0", version)
	}
	w := &tree{dir: dir, version: version, modules: make(map[string]*modfile.File), released: released}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(dir, filepath.Dir(file))
		folder = filepath.ToSlash(folder)
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "testdata" || name == "bin" || folder == "." && name == "tools"):
			return fs.SkipDir
		case name == "go.mod":
			return w.read(folder)
		}
		return nil
	})
	return w, err
}

func (w *tree) read(folder string) error {
	name := filepath.Join(w.dir, folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	w.modules[folder], err = modfile.Parse(name, text, nil)
	return err
}

// folders are those of the modules, in order.
func (w *tree) folders() []string { return slices.Sorted(maps.Keys(w.modules)) }

func (w *tree) file(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

// tags are those of a release.
func (w *tree) tags() (tags []string) {
	for _, folder := range w.released {
		tags = append(tags, strings.TrimPrefix(folder+"/v"+w.version, "./"))
	}
	return tags
}

// isOurs reports whether a module is one of this repository.
func isOurs(path string) bool { return path == ours || strings.HasPrefix(path, ours+"/") }

var heading = regexp.MustCompile(`(?m)^## \[([^\]]+)\]`)

// next is the version behind the last one of the changelog.
func (w *tree) next() (string, error) {
	changelog, err := os.ReadFile(w.file("CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	for _, found := range heading.FindAllStringSubmatch(string(changelog), -1) {
		if plain.MatchString(found[1]) {
			var major, minor int
			if _, err := fmt.Sscanf(found[1], "%d.%d.", &major, &minor); err != nil {
				return "", err
			}
			return fmt.Sprintf("%d.%d.0", major, minor+1), nil
		}
	}
	return "0.1.0", nil
}

var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): *([^ #\n]+)`)

// prepare writes the version into all that has it.
func (w *tree) prepare(now time.Time) error {
	for _, folder := range w.folders() {
		mod := w.modules[folder]
		for _, require := range mod.Require {
			if isOurs(require.Mod.Path) {
				if err := mod.AddRequire(require.Mod.Path, "v"+w.version); err != nil {
					return err
				}
			}
		}
		if err := w.write(folder); err != nil {
			return err
		}
	}
	if err := edit(w.file("CHANGELOG.md"), func(text string) (string, error) {
		if strings.Contains(text, "\n## ["+w.version+"]") {
			return text, nil
		}
		const open = "\n## [Unreleased]\n"
		if !strings.Contains(text, open) {
			return "", errors.New("CHANGELOG.md has no section [Unreleased]")
		}
		return strings.Replace(text, open, fmt.Sprintf("%s\n## [%s] - %s\n", open, w.version, now.Format(time.DateOnly)), 1), nil
	}); err != nil {
		return err
	}
	if err := edit(w.file(chart), func(text string) (string, error) {
		return chartVersion.ReplaceAllString(text, "$1: "+w.version), nil
	}); err != nil {
		return err
	}
	api, err := w.api()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.file(baselines), 0o755); err != nil {
		return err
	}
	return os.WriteFile(w.file(baselines+"/"+w.version+".txt"), []byte(strings.Join(api, "\n")+"\n"), 0o644)
}

const (
	chart     = "deploy/helm/tenure/Chart.yaml"
	baselines = "testdata/api" // a list of the API for each release
)

// write writes the go.mod of a module.
func (w *tree) write(folder string) error {
	mod := w.modules[folder]
	mod.Cleanup()
	text, err := mod.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(w.file(path.Join(folder, "go.mod")), text, 0o644)
}

func edit(name string, change func(string) (string, error)) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed, err := change(string(text))
	if err != nil || changed == string(text) {
		return err
	}
	return os.WriteFile(name, []byte(changed), 0o644)
}

// inspect looks whether all says the same version, and nothing is missing.
func (w *tree) inspect(ctx context.Context) error {
	var problems []error
	add := func(text string, args ...any) { problems = append(problems, fmt.Errorf(text, args...)) }
	for _, folder := range w.folders() {
		mod := w.modules[folder]
		if want := path.Join(ours, folder); mod.Module.Mod.Path != want {
			add("%s/go.mod: module %s, must be %s", folder, mod.Module.Mod.Path, want)
		}
		for _, require := range mod.Require {
			if isOurs(require.Mod.Path) && require.Mod.Version != "v"+w.version {
				add("%s/go.mod requires %s, and not v%s: release-prepare writes it", folder, require.Mod, w.version)
			}
		}
		for _, replace := range mod.Replace {
			if !isOurs(replace.Old.Path) || replace.New.Version != "" {
				add("%s/go.mod replaces %s: importers would not have that", folder, replace.Old)
			}
		}
		if len(mod.Exclude) > 0 {
			add("%s/go.mod excludes versions: importers would have them", folder)
		}
	}
	problems = append(problems, w.replaces()...)
	for _, folder := range w.released {
		if w.modules[folder] == nil {
			add("there is no module %s", folder)
		}
	}
	if _, err := output(ctx, w.dir, nil, "sh", "tools/notes.sh", "v"+w.version); err != nil {
		problems = append(problems, err)
	}
	text, err := os.ReadFile(w.file(chart))
	if err != nil {
		problems = append(problems, err)
	}
	for _, found := range chartVersion.FindAllStringSubmatch(string(text), -1) {
		if found[2] != w.version {
			add("%s: %s is %s, and not %s", chart, found[1], found[2], w.version)
		}
	}
	return errors.Join(append(problems, w.compareAPI())...)
}

// replaces finds modules that would be built with a version of another that was released before,
// and not with the one beside them. All released modules may be without their replaces: strip has
// left them out then.
func (w *tree) replaces() (problems []error) {
	kept := false
	for _, folder := range w.released {
		kept = kept || w.modules[folder] != nil && len(w.modules[folder].Replace) > 0
	}
	for _, folder := range w.folders() {
		if !kept && slices.Contains(w.released, folder) {
			continue
		}
		mod := w.modules[folder]
		for _, require := range mod.Require {
			if isOurs(require.Mod.Path) && !slices.ContainsFunc(mod.Replace, func(r *modfile.Replace) bool { return r.Old.Path == require.Mod.Path }) {
				problems = append(problems, fmt.Errorf("%s/go.mod has no replace of %s: main builds with the modules beside each other", folder, require.Mod.Path))
			}
		}
	}
	return problems
}

// api lists what all packages of the released modules show, each line behind its package.
func (w *tree) api() (lines []string, err error) {
	for _, folder := range w.released {
		err := filepath.WalkDir(w.file(folder), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			rel, err := filepath.Rel(w.dir, file)
			if err != nil {
				return err
			}
			rel = filepath.ToSlash(rel)
			switch name := entry.Name(); {
			case rel != "." && (name == "internal" || name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")), rel == "tools", rel == "examples":
				return fs.SkipDir
			case rel != folder && w.modules[rel] != nil:
				return fs.SkipDir // a module of its own
			}
			list, err := surface.List(file)
			for _, line := range list {
				lines = append(lines, path.Join("tenure", rel)+": "+line)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// compareAPI holds the API against the list of this version, which release-prepare has written, and
// against that of the version before.
func (w *tree) compareAPI() error {
	now, err := w.api()
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(w.file(baselines + "/*.txt"))
	if err != nil {
		return err
	}
	before := ""
	for _, name := range paths {
		version := "v" + strings.TrimSuffix(filepath.Base(name), ".txt")
		if semver.Compare(version, "v"+w.version) < 0 && (before == "" || semver.Compare(version, before) > 0) {
			before = version
		}
	}
	own, err := w.baseline(w.version)
	if err != nil {
		return fmt.Errorf("%w: release-prepare writes it", err)
	}
	if gone, added := differ(own, now); len(gone)+len(added) > 0 {
		return fmt.Errorf("the API is not that of %s/%s.txt:\n%s", baselines, w.version, changes(gone, added))
	}
	if before == "" {
		return nil
	}
	old, err := w.baseline(before[1:])
	if err != nil {
		return err
	}
	gone, added := differ(old, now)
	patch := semver.MajorMinor(before) == semver.MajorMinor("v"+w.version)
	switch {
	case patch && len(gone)+len(added) > 0:
		return fmt.Errorf("the API has changed since %s, which takes more than a patch release:\n%s", before, changes(gone, added))
	case len(gone) > 0 && semver.Major(before) == semver.Major("v"+w.version) && semver.Major(before) != "v0":
		return fmt.Errorf("the API breaks importers of %s:\n%s", before, changes(gone, nil))
	case len(gone) > 0 && !w.saysChanged():
		return fmt.Errorf("the API breaks importers of %s, and CHANGELOG.md says nothing under Changed or Removed:\n%s", before, changes(gone, nil))
	}
	return nil
}

func (w *tree) baseline(version string) ([]string, error) {
	text, err := os.ReadFile(w.file(baselines + "/" + version + ".txt"))
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}

// saysChanged reports whether the changelog of this version has a part about what has changed.
func (w *tree) saysChanged() bool {
	text, err := os.ReadFile(w.file("CHANGELOG.md"))
	_, section, _ := strings.Cut(string(text), "\n## ["+w.version+"]")
	section, _, _ = strings.Cut(section, "\n## ")
	return err == nil && (strings.Contains(section, "\n### Changed") || strings.Contains(section, "\n### Removed"))
}

// differ returns the lines that only one of two lists has.
func differ(before, now []string) (gone, added []string) {
	only := func(of, than []string) (lines []string) {
		for _, line := range of {
			if _, found := slices.BinarySearch(than, line); !found {
				lines = append(lines, line)
			}
		}
		return lines
	}
	before, now = slices.Sorted(slices.Values(before)), slices.Sorted(slices.Values(now))
	return only(before, now), only(now, before)
}

func changes(gone, added []string) string {
	var text strings.Builder
	for _, line := range gone {
		text.WriteString("- " + line + "\n")
	}
	for _, line := range added {
		text.WriteString("+ " + line + "\n")
	}
	return text.String()
}
