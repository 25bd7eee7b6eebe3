//go:build unix

package fleet

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// Config says what to play.
type Config struct {
	Seed     uint64
	For      time.Duration // all stages together, without the start of their servers
	Stages   []string      // names; none: all
	Progress io.Writer     // gets a line now and then; nil: none
	Every    time.Duration // how often
}

// Run plays the stages. The error says that the configuration is wrong; what the run has shown is
// in the report.
func Run(c Config) (Report, error) {
	stages, err := chosen(c.Stages)
	if err != nil {
		return Report{}, err
	}
	report := Report{Origin: figures.Here(), Seed: c.Seed, Hours: c.For.Hours(), Redis: redistest.Version()}
	began := time.Now()
	total := 0
	for act, share := range acts {
		if slices.ContainsFunc(stages, func(s Stage) bool { return s.act == act }) {
			total += share
		}
	}
	for len(stages) > 0 {
		act := stages[0].act
		var beside []*play
		for len(stages) > 0 && stages[0].act == act {
			lasts := c.For * time.Duration(acts[act]) / time.Duration(total)
			beside = append(beside, &play{Config: c, stage: stages[0], lasts: lasts})
			stages = stages[1:]
		}
		report.Stages = append(report.Stages, sideBySide(beside)...)
	}
	report.Wall = time.Since(began)
	return report, nil
}

// sideBySide plays some stages at a time.
func sideBySide(plays []*play) []StageReport {
	reports := make([]StageReport, len(plays))
	var all sync.WaitGroup
	for i, p := range plays {
		all.Go(func() { reports[i] = p.run() }) // ends when its time is over; awaited below
	}
	all.Wait()
	return reports
}

// chosen are the stages of these names, in the order of all; none: those that this machine can
// play.
func chosen(names []string) (stages []Stage, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(Stages, func(s Stage) bool { return s.Name == name }) {
			return nil, fmt.Errorf("no stage %q", name)
		}
	}
	for _, s := range Stages {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if s.missing != nil && s.missing() != "" {
			if len(names) > 0 {
				return nil, fmt.Errorf("stage %q: %s", s.Name, s.missing())
			}
			continue
		}
		stages = append(stages, s)
	}
	return stages, nil
}

// play is one stage that is being played.
type play struct {
	Config
	stage Stage
	lasts time.Duration

	mu       sync.Mutex
	clusters []*cluster
	all      tally
	broken   []string
}

// run plays all clusters of the stage side by side.
func (p *play) run() StageReport {
	began := time.Now()
	r := StageReport{Name: p.stage.Name, About: p.stage.About, Clusters: p.stage.clusters, LeaseTTL: p.stage.election.LeaseTTL, Outside: p.stage.outside}
	p.all.faults = map[string]*faultTally{}
	var clusters sync.WaitGroup
	for i := range p.stage.clusters {
		clusters.Go(func() { p.cluster(i) }) // ends when its time is over; awaited below
	}
	over, told := make(chan struct{}), make(chan struct{})
	go func() { // ends with the clusters; awaited below
		defer close(told)
		p.tell(over)
	}()
	clusters.Wait()
	close(over)
	<-told
	r.Wall, r.Broken, r.Guard = time.Since(began), p.broken, p.rules().Guard
	r.fill(&p.all)
	rules := p.rules()
	r.Calm.For = rules.calmBound()
	return r
}

func (p *play) rules() Rules {
	ttl := p.stage.election.LeaseTTL
	return Rules{
		LeaseTTL: ttl, Guard: max(50*time.Millisecond, ttl/50), Drift: max(ttl/100, 10*time.Millisecond) + 2*time.Millisecond,
		Shutdown: memberShutdown, DownAfter: memberDown, HeartbeatInterval: memberBeat, Overlaps: p.stage.outside != "",
		FailoverMargin: p.stage.election.FailoverMargin, Tasks: memberTasks, Replan: p.stage.replan,
	}
}

// cluster plays one cluster and holds its log against the promises.
func (p *play) cluster(i int) {
	var c *cluster
	err := redistest.Do(func(t redistest.TB) {
		name := fmt.Sprintf("%s-%d", p.stage.Name, i)
		c = newCluster(t, name, p.seed(name), p.stage.election, p.stage.open(t, i), p.stage.asked)
		rules := p.rules()
		c.calmFor = rules.calmBound()
		p.mu.Lock()
		p.clusters = append(p.clusters, c)
		p.mu.Unlock()
		c.play(hostclock.Now() + p.lasts)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.broken = append(p.broken, fmt.Sprintf("cluster %d: %v", i, err))
	}
	if c != nil { // its log is complete: every process is gone
		m := check(p.rules(), c.journal.sorted()).measure()
		for v := range m.violations {
			m.violations[v].Text = c.name + ": " + m.violations[v].Text
		}
		p.all.add(m)
	}
}

// seed gives each cluster draws of its own, the same for whoever plays it beside what else.
func (p *play) seed(cluster string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, cluster) // never fails
	return p.Seed ^ h.Sum64()
}

// tell writes a line of progress now and then until it is over.
func (p *play) tell(over <-chan struct{}) {
	if p.Progress == nil {
		<-over
		return
	}
	began := time.Now()
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		var parts []string
		p.mu.Lock()
		for _, c := range p.clusters {
			parts = append(parts, fmt.Sprintf("%d %s", c.rounds.Load(), *c.now.Load()))
		}
		p.mu.Unlock()
		fmt.Fprintf(p.Progress, "%s %v of %v: %s\n", p.stage.Name, time.Since(began).Round(time.Second), p.lasts, strings.Join(parts, " | "))
	}
}

// ErrBroken says that a run has found a broken promise, or broke down itself.
var ErrBroken = errors.New("the run has failed")
