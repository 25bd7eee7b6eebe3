// Package overlay builds and runs the tests of a package with the product broken on purpose, or
// with goroutines that yield at random. The tree is not touched: other files are laid over it for
// one build. Build makes one build for many edits, which a process switches on; Write and Compile
// make one for a single file; Yield lays whole packages over. `make bugs`, `make mutate` and `make
// shake` use it.
package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// BuildBound is for one build, on a machine that has other things to do.
const BuildBound = 3 * time.Minute

// Write writes the broken source of a file of this repository into dir, and the overlay that makes
// the go command take it. file is slash-separated and relative to the working directory, which is
// the root of the module.
func Write(dir, file string, source []byte) (broken, overlay string, err error) {
	l, err := newLayer(dir)
	if err != nil {
		return "", "", err
	}
	path := filepath.FromSlash(file)
	if err := l.write(path, string(source)); err != nil {
		return "", "", err
	}
	overlay, err = l.finish()
	return l.replace[filepath.Join(l.root, path)], overlay, err
}

// layer is an overlay that is being written: files that stand in a folder of their own, in place of
// those of the module.
type layer struct {
	root, dir string
	replace   map[string]string
}

func newLayer(dir string) (*layer, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	return &layer{root, dir, map[string]string{}}, os.MkdirAll(dir, 0o755)
}

// write lays a text over a file, which need not be there; path is relative to the root.
func (l *layer) write(path, text string) error {
	laid := filepath.Join(l.dir, strconv.Itoa(len(l.replace))+"_"+filepath.Base(path))
	l.replace[filepath.Join(l.root, path)] = laid
	return os.WriteFile(laid, []byte(text), 0o644)
}

// finish writes what the go command reads, and gives its name.
func (l *layer) finish() (overlay string, err error) {
	text, err := json.Marshal(map[string]map[string]string{"Replace": l.replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(l.dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}

// Compile builds the tests of the package in folder in ("": the root) into binary. The compiler
// leaves out what would make them faster, and collects its garbage less often: most of them are
// over long before their build is.
func Compile(in, binary string, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), BuildBound)
	defer cancel()
	args := append([]string{"test", "-c", "-vet=off", "-gcflags=-N -l -e", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := Command(ctx, "", "go", append(args, "./"+in)...)
	cmd.Env = append(os.Environ(), "GOGC=400")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of ./%s: %w: %s", in, err, out)
	}
	return nil
}

// Command is a program that runs in folder in, as the tests of a package do. It ends with ctx.
func Command(ctx context.Context, in, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.FromSlash(in)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// Failed gives the tests that have failed, parts of others among them, in the order of what a test
// binary has printed.
func Failed(printed []byte) (tests []string) {
	for _, found := range failure.FindAllSubmatch(printed, -1) {
		tests = append(tests, string(found[1]))
	}
	return tests
}
