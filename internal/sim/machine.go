package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/oracle"
)

// machine is a server with a clock of its own: the three keys of the role, the registry and the records of the tasks.
type machine struct {
	oracle.Redis
	registry *oracle.Registry
	tasks    []oracle.Task

	base     float64 // ms at virtual time 0
	rate     float64
	started  int64         // by its own clock
	slowTill time.Duration // it answers nobody before
	demoted  bool          // it takes no writes any more
}

// data is what a replica carries.
type data struct {
	lease    oracle.Data
	registry *oracle.Registry
	tasks    []oracle.Task
}

// snapshot is what a replica of a machine has, until it is promoted.
type snapshot struct {
	data data
	of   *machine
	rand *rand.Rand
}

func (m *machine) clock(now time.Duration) int64 { return int64(m.base + m.rate*now.Seconds()*1000) }

// setRate changes the speed of the clock from here on.
func (m *machine) setRate(now time.Duration, rate float64) {
	m.base += (m.rate - rate) * now.Seconds() * 1000
	m.rate = rate
}

func (m *machine) save() data {
	tasks := slices.Clone(m.tasks)
	for i := range tasks {
		tasks[i].History = nil // nothing is decided by it
	}
	return data{m.Data, m.registry.Clone(), tasks}
}

func (m *machine) load(d data) { m.Data, m.registry, m.tasks = d.lease, d.registry, d.tasks }

// clear forgets everything.
func (m *machine) clear() {
	m.load(data{registry: oracle.NewRegistry(), tasks: make([]oracle.Task, len(tasks))})
}
