// Package figures keeps what the project's own programs have measured: as JSON, with what it was
// measured on.
package figures

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Origin says where figures come from.
type Origin struct {
	Commit string // "" if there is no checkout
	Date   string
	Go     string
	CPUs   int
}

// Here is the origin of what is measured now, in this checkout.
func Here() Origin {
	o := Origin{Date: time.Now().UTC().Format(time.DateOnly), Go: runtime.Version(), CPUs: runtime.NumCPU()}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output(); err == nil {
		o.Commit = strings.TrimSpace(string(out))
	}
	if out, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "-uno").Output(); err == nil && len(out) > 0 {
		o.Commit += " with changes"
	}
	return o
}

// Write writes figures to a file, in a folder that it makes if there is none: what has run for
// hours is not lost for it.
func Write(path string, of any) error {
	text, err := json.MarshalIndent(of, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Read reads what Write has written.
func Read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
