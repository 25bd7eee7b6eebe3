//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// programs are built with and without tenure; both connect to Redis by go-redis.
var programs = []struct{ who, source string }{
	{"go-redis alone", `package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"
)

func main() { log.Print(redis.NewClient(&redis.Options{}).Ping(context.Background()).Err()) }
`},
	{"with tenure", `package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

func main() {
	c, err := tenure.New(redis.NewClient(&redis.Options{}), tenure.Options{Namespace: "bench"})
	if err == nil {
		err = c.Run(context.Background())
	}
	log.Print(err)
}
`},
}

// measureBuild builds a small program with tenure and the same without it, each with an empty
// cache.
func measureBuild(o options, p *page) error {
	t := p.table("A build of an importer", "A program that connects to Redis, built with an empty cache once.", programs[0].who, programs[1].who)
	for _, program := range programs {
		dir, err := os.MkdirTemp("", "performance")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // a temporary directory that stays is no failure
		source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
		if err := os.WriteFile(source, []byte(program.source), 0o600); err != nil {
			return err
		}
		cmd := exec.CommandContext(context.Background(), "go", "build", "-modfile="+filepath.Join("tools", "newest.mod"), "-ldflags=-s -w", "-o", binary, source)
		cmd.Dir, cmd.Stderr = o.root, os.Stderr
		cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "cache"), "GOFLAGS=-buildvcs=false")
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", program.who, err)
		}
		t.row("cold build, s", "%.0f").add(program.who, time.Since(began).Seconds())
		built, err := os.Stat(binary)
		if err != nil {
			return err
		}
		t.row("stripped binary, MB", "%.1f").add(program.who, float64(built.Size())/(1<<20))
	}
	return nil
}
