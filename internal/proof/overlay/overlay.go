// Package overlay builds and runs the tests of a package with the product broken on purpose. The
// tree is not touched: broken files are laid over it for one build. Build makes one build for many
// edits, which a process switches on; Write and Compile make one for a single file. `make bugs` and
// `make mutate` use it.
package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// BuildBound is for one build, on a machine that has other things to do.
const BuildBound = 3 * time.Minute

// Write writes the broken source of a file of this repository into dir, and the overlay that makes
// the go command take it. file is slash-separated and relative to the working directory, which is
// the root of the module.
func Write(dir, file string, source []byte) (broken, overlay string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	broken, overlay = filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(broken, source, 0o644); err != nil {
		return "", "", err
	}
	path := filepath.Join(root, filepath.FromSlash(file))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: broken}})
	if err != nil {
		return "", "", err
	}
	return broken, overlay, os.WriteFile(overlay, text, 0o644)
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
