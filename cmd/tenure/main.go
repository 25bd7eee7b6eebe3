// Tenure shows who leads, asks instances to do something, and runs any program only while it
// leads: the command line of github.com/tenure-go/tenure. See docs/cli.md.
package main

import (
	"os"

	"github.com/tenure-go/tenure/cmd/tenure/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
