package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// machine is a server with a clock of its own: the three keys of the role, the registry and the
// records of the tasks.
type machine struct {
	oracle.Redis
	registry *oracle.Registry
	tasks    []oracle.Task

	named    int64   // highest token that a request has named here, since data were lost
	longest  int64   // longest TTL, or HoldOff, likewise
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
	named    int64
	longest  int64
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
	return data{m.Data, m.registry.Clone(), tasks, m.named, m.longest}
}

func (m *machine) load(d data) {
	m.Data, m.registry, m.tasks, m.named, m.longest = d.lease, d.registry, d.tasks, d.named, d.longest
}

// clear forgets everything.
func (m *machine) clear() {
	m.load(data{registry: oracle.NewRegistry(), tasks: make([]oracle.Task, numJobs)})
}
