//go:build unix

// Package scenario holds the promises of package tenure against real redis-server processes, real
// networks and real processes that are killed, frozen and starved. Every test starts servers of its
// own.
//
// What is asserted is order: who believed to lead, under which token, and that no two beliefs ever
// met. What depends on how fast this machine is, is measured and logged.
package scenario

import (
	"flag"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/overlay"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// parallel is how many tests run at once if -parallel is not given: they mostly wait for leases
// to end.
const parallel = "6"

func TestMain(m *testing.M) {
	overlay.TakeScripts() // in the children, too
	redistest.ChildMain("candidate", candidateMain)
	if redistest.RunChild() {
		return
	}
	redistest.Silence() // go-redis reports every connection that it loses
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	m.Run()
}
