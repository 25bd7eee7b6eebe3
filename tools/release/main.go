// Command release prepares and checks a release of all modules; CONTRIBUTING.md has the steps.
//
//	release prepare 0.2.0   writes the version into go.mod files, CHANGELOG.md, the chart, the list of the API
//	release check [0.2.0]   checks what prepare has written, and what importers would get
//	release strip 0.2.0     leaves the replaces out, for the commit that is tagged
//	release tags 0.2.0      lists the tags
//
// Without a version check takes the next one, and prepares a copy.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return errors.New("usage: release prepare|check|strip|tags [VERSION]")
	}
	root, err := output(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	version := ""
	if len(args) == 2 {
		version = strings.TrimPrefix(args[1], "v")
	}
	if version == "" && args[0] != "check" {
		return fmt.Errorf("%s: which version?", args[0])
	}
	work, err := open(strings.TrimSpace(root), version)
	if err != nil {
		return err
	}
	switch args[0] {
	case "prepare":
		return work.prepare(time.Now())
	case "strip":
		return strip(ctx, work)
	case "tags":
		fmt.Println(strings.Join(work.tags(), "\n"))
		return nil
	case "check":
		return check(ctx, work)
	}
	return fmt.Errorf("%s: prepare, check, strip or tags", args[0])
}

// check checks a copy of what git knows of the tree.
func check(ctx context.Context, work *tree) error {
	temp, err := os.MkdirTemp("", "tenure-release-")
	if err != nil {
		return err
	}
	defer func() { _ = removeAll(temp) }()
	began := time.Now()
	given := work.version
	if work, err = work.copy(ctx, filepath.Join(temp, "tree"), "--cached", "--others", "--exclude-standard"); err != nil {
		return err
	}
	if given == "" {
		if work.version, err = work.next(); err != nil {
			return err
		}
		fmt.Printf("no version is given: %s is prepared in a copy\n", work.version)
		if err := work.prepare(began); err != nil {
			return err
		}
	}
	if err := work.inspect(ctx); err != nil {
		return err
	}
	fmt.Printf("versions, changelog, chart and API of %s: ok\n", work.version)
	if err := work.build(ctx, temp); err != nil {
		return err
	}
	fmt.Printf("%s can be released (%.0f s). Tags: %s\n", work.version, time.Since(began).Seconds(), strings.Join(work.tags(), " "))
	return nil
}

// strip leaves the replaces of the released modules out and writes the sums of what they need from
// each other: go install takes no module with a replace. The commit of the tags has this, main has
// not. The sums are of what is committed: nothing else may lie about in a zip.
func strip(ctx context.Context, work *tree) error {
	temp, err := os.MkdirTemp("", "tenure-strip-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	copied, err := work.copy(ctx, filepath.Join(temp, "tree"), "--cached")
	if err != nil {
		return err
	}
	if err := copied.inspect(ctx); err != nil {
		return err
	}
	if err := copied.zips(filepath.Join(temp, "proxy")); err != nil {
		return err
	}
	var changed []string
	for _, folder := range work.released {
		changed = append(changed, path.Join(folder, "go.mod"), path.Join(folder, "go.sum"))
	}
	return copyFiles(copied.dir, work.dir, changed)
}

// copy copies the files that git lists with some flags.
func (w *tree) copy(ctx context.Context, to string, flags ...string) (*tree, error) {
	files, err := output(ctx, w.dir, nil, "git", append([]string{"ls-files", "-z"}, flags...)...)
	if err != nil {
		return nil, err
	}
	if err := copyFiles(w.dir, to, strings.Split(strings.Trim(files, "\x00"), "\x00")); err != nil {
		return nil, err
	}
	copied, err := open(to, w.version)
	if err != nil {
		return nil, err
	}
	copied.released = w.released
	return copied, nil
}

// output runs a command in a folder with more variables, and returns what it writes.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, problem.String())
	}
	return string(out), nil
}

// copyFiles copies files of one folder to another; what git lists and is gone is left out.
func copyFiles(from, to string, names []string) error {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755)
		}
		info, failed := os.Stat(filepath.Join(from, name))
		if err = errors.Join(err, failed); err == nil {
			err = os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes a folder, modules that are read-only too.
func removeAll(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(path, 0o755) //nolint:gosec // a folder of this run
		}
		return err
	})
	return os.RemoveAll(dir)
}
