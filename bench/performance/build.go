//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// programs are built with and without tenure; both connect to Redis by go-redis.
var programs = []struct{ who, source string }{
	{"go-redis alone", `package main

import (
	"context"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	if len(os.Args) > 1 {
		return
	}
	log.Print(redis.NewClient(&redis.Options{}).Ping(context.Background()).Err())
}
`},
	{"with tenure", `package main

import (
	"context"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

func main() {
	if len(os.Args) > 1 {
		return
	}
	c, err := tenure.New(redis.NewClient(&redis.Options{}), tenure.Options{Namespace: "bench"})
	if err == nil {
		err = c.Run(context.Background())
	}
	log.Print(err)
}
`},
}

// starts is how often a start is measured.
const starts = 31

// measureStart gives the processor's time of a process that ends as its main begins, the median.
func measureStart(binary string) (time.Duration, error) {
	var took []time.Duration
	for range starts {
		cmd := exec.CommandContext(context.Background(), binary, "end")
		if err := cmd.Run(); err != nil {
			return 0, err
		}
		took = append(took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	slices.Sort(took)
	return took[starts/2], nil
}

// measureBuild builds a small program with tenure and the same without it, each with an empty
// cache.
func measureBuild(o options, p *page) error {
	t := p.table("A build of an importer", fmt.Sprintf("A program that connects to Redis, built with an empty cache once. *Start*: what the initialisation of its packages and of the runtime takes of the processor, the median of %d.", starts), programs[0].who, programs[1].who)
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
		start, err := measureStart(binary)
		if err != nil {
			return fmt.Errorf("%s: %w", program.who, err)
		}
		t.row("start, ms", "%.1f").add(program.who, start.Seconds()*1e3)
	}
	return nil
}
