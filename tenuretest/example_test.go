package tenuretest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenuretest"
)

// exampleT is the testing.TB of an example. A test passes its own t.
type exampleT struct{ testing.TB }

func (exampleT) Helper()                        {}
func (exampleT) Cleanup(func())                 {}
func (exampleT) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// The leader is cut off: its term ends by itself, another instance takes over, and the first one
// follows once it is connected again.
func ExampleCluster_Disconnect() {
	cluster := tenuretest.NewCluster(exampleT{})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	start := func(id string) (*tenure.Coordinator, *tenuretest.Control) {
		c, control := cluster.New(tenure.Options{InstanceID: id, Election: tenure.ElectionOptions{LeaseTTL: 300 * time.Millisecond}})
		go func() { ended <- c.Run(ctx) }()
		return c, control
	}
	a, controlA := start("a")
	b, controlB := start("b")
	controlA.Lead()
	term, _ := a.Elector().Term()

	cluster.Disconnect("a")
	fmt.Println("a is cut off and leads:", term.Valid())
	<-term.Context().Done()
	fmt.Println("its lease was not renewed:", errors.Is(context.Cause(term.Context()), tenure.ErrExpired))
	_, err := a.Elector().Leader(ctx)
	fmt.Println("who leads now it cannot know:", errors.Is(err, tenure.ErrUnreachable))

	controlB.Lead()
	next, _ := b.Elector().Term()
	fmt.Println("b leads, with a greater token:", next.Token > term.Token)

	cluster.Reconnect("a")
	fmt.Println("a follows", a.Elector().Status().Leader)

	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// a is cut off and leads: true
	// its lease was not renewed: true
	// who leads now it cannot know: true
	// b leads, with a greater token: true
	// a follows b
	// <nil> <nil>
}
