//go:build unix

// Command fleet plays the stages of package fleet and prints what they have shown. If a promise
// was broken it prints the log around it and fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/fleet"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

func main() {
	redis.SetLogger(silent{}) // its pools complain of each server that is down
	fleet.Children()
	if redistest.RunChild() {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// silent says nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func run() error {
	hours := flag.Float64("hours", 0.05, "how long to play, all stages together")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano())>>20, "what the nemesis draws from")
	stages := flag.String("stages", "", "play these stages alone, by comma")
	file := flag.String("json", "", "write the figures to this file")
	every := flag.Duration("progress", 10*time.Second, "how often to report progress")
	list := flag.Bool("list", false, "list the stages")
	markdown := flag.Bool("markdown", false, "print the tables of -json files, given as arguments, in markdown")
	flag.Parse()
	if *markdown {
		return tables(flag.Args())
	}
	if *list {
		for _, s := range fleet.Stages {
			fmt.Printf("%-10s %s\n", s.Name, s.About)
		}
		return nil
	}
	config := fleet.Config{
		Seed: *seed, For: time.Duration(*hours * float64(time.Hour)), Progress: os.Stderr, Every: *every,
	}
	if *stages != "" {
		config.Stages = strings.Split(*stages, ",")
	}
	fmt.Printf("seed %d, %v\n", config.Seed, config.For)
	report, err := fleet.Run(config)
	if err != nil {
		return err
	}
	for i := range report.Stages {
		report.Stages[i].Show(os.Stdout)
	}
	if *file != "" {
		if err := figures.Write(*file, report); err != nil {
			return err
		}
	}
	if report.Failed() {
		return fmt.Errorf("%w: seed %d", fleet.ErrBroken, config.Seed)
	}
	return nil
}

// tables prints the figures of some files in markdown.
func tables(files []string) error {
	var reports []*fleet.Report
	for _, file := range files {
		report := new(fleet.Report)
		if err := figures.Read(file, report); err != nil {
			return err
		}
		reports = append(reports, report)
	}
	fleet.Render(os.Stdout, reports...)
	return nil
}
