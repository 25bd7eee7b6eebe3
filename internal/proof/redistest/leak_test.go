package redistest

import (
	"strings"
	"testing"
	"time"
)

func TestNoLeaks_ReportsWhatStays(t *testing.T) {
	before := make(map[string]bool)
	for _, g := range goroutines() {
		before[g.id] = true
	}
	if err := leaked(before, 0); err != nil {
		t.Errorf("nothing was started: %v", err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	started := make(chan struct{})
	go func() { // stopped and waited for below
		close(started)
		stray(stop, stopped)
	}()
	<-started
	err := leaked(before, 0)
	if err == nil || !strings.Contains(err.Error(), "stray") {
		t.Errorf("got %v, want the stack of the stray goroutine", err)
	}
	close(stop)
	<-stopped
	if err := leaked(before, time.Minute); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

func stray(stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	<-stop
}

// NoLeaks looks after every clean-up, and waits for goroutines that are about to end.
func TestNoLeaks_WaitsForTheEnd(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	err := Do(func(t TB) {
		NoLeaks(t)
		t.Cleanup(func() { close(stop) })
		go stray(stop, stopped) // stopped by the clean-up
	})
	if err != nil {
		t.Error(err)
	}
	<-stopped
}
