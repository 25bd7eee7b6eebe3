package tenure

import "sync/atomic"

// taskGate keeps runs from starting while too few instances are active.
type taskGate struct {
	least int
	wake  wakeup // a term has begun, or instances have changed
	held  atomic.Bool
}

// newTaskGate is nil if no number of instances is asked for.
func newTaskGate(least int) *taskGate {
	if least <= 1 {
		return nil
	}
	g := &taskGate{least: least, wake: newWakeup()}
	g.held.Store(true)
	return g
}

func (g *taskGate) holds() bool { return g != nil && g.held.Load() }

// begin has the instances counted for a term that has begun.
func (g *taskGate) begin() {
	if g != nil {
		g.wake.nudge()
	}
}
