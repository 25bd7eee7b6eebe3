package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
)

// Report is what -json writes.
type Report struct {
	figures.Origin
	Took time.Duration
	Bugs []Seeded
}

// Seeded is one bug and what came of it.
type Seeded struct {
	Name, Breaks, Test string
	Caught             bool
}

func write(file string, of []bug, outcomes []outcome, took time.Duration) error {
	report := Report{Origin: figures.Here(), Took: took}
	for i, b := range of {
		report.Bugs = append(report.Bugs, Seeded{Name: b.name, Breaks: b.breaks, Test: b.test, Caught: outcomes[i].caught})
	}
	return figures.Write(file, report)
}

// page prints what a run has written as a table of a page.
func page(file string) error {
	var r Report
	if err := figures.Read(file, &r); err != nil {
		return err
	}
	caught, rows := 0, strings.Builder{}
	for _, b := range r.Bugs {
		test := "**nothing**"
		if b.Caught {
			caught++
			test = "`" + b.Test + "`"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", b.Name, b.Breaks, test)
	}
	fmt.Printf("**%d of %d caught**, in %v on %d processors; commit %s, %s, %s.\n\n| Broken | What a user would suffer | Caught by |\n|---|---|---|\n%s",
		caught, len(r.Bugs), r.Took.Round(time.Second), r.CPUs, r.Commit, r.Date, r.Go, &rows)
	return nil
}
