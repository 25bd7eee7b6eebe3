//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"time"
)

// until repeats a command until its output matches: until PATTERN COMMAND... It is for what a
// command shows of a state that comes about by itself; what tenure wait can wait for needs none.
func until() {
	pattern := regexp.MustCompile("(?s)" + os.Args[1])
	bound, err := time.ParseDuration(patience)
	if err != nil {
		panic(err)
	}
	var last []byte
	for end := time.Now().Add(bound); time.Now().Before(end); {
		output, _ := exec.Command(os.Args[2], os.Args[3:]...).CombinedOutput() //nolint:gosec // the script says so
		if last = output; pattern.Match(bytes.TrimSpace(output)) {
			_, _ = os.Stdout.Write(output)
			return
		}
		<-time.After(50 * time.Millisecond) // a bounded poll
	}
	fmt.Fprintf(os.Stderr, "until: never %s; last:\n%s\n", os.Args[1], last)
	os.Exit(1)
}
