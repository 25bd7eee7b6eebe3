package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
)

// control is what the demo asks of its members by the API of any other program.
type control interface {
	Drain(ctx context.Context, id string) error
	Undrain(ctx context.Context, id string) error
	Registry() *tenure.Registry
}

// show is the demo: it starts the members, kills, hands over, measures and prints.
type show struct {
	out     io.Writer
	redis   string // its address
	control control
	began   time.Time
	length  time.Duration // from the first election on; 0: it ends with ctx
	events  chan report
	keys    <-chan byte // nil: there are none

	chosen                string // the member that the next key is for; "": the leader
	steered               bool   // somebody has pressed a key: the demo does nothing by itself
	dead, frozen, drained map[string]bool

	members   map[string]*member
	readers   sync.WaitGroup
	leader    string
	ended     bool // the run is over: nothing is printed of the stop
	tasks     int
	elections int
	takeOvers []time.Duration // after SIGKILL
	pauses    []time.Duration // until another one leads, after SIGSTOP
	handOvers []time.Duration
	beliefs   map[int64]belief // by token
	waitFor   string           // kind of change that is being measured: "", kill, pause, drain, resign
	waitFrom  time.Time
}

type member struct {
	id      string
	process *exec.Cmd
	input   io.WriteCloser
	gone    bool
}

var names = []string{"alpha", "beta", "gamma"}

const (
	actEvery    = 5 * time.Second          // between a settled election and the next disturbance
	takeOverMax = leaseTTL + 3*time.Second // before the end nobody is disturbed any more
	nobodyMax   = time.Minute              // generous: the demo may run on a starved machine
)

func (s *show) run(ctx context.Context) error {
	s.members, s.beliefs = map[string]*member{}, map[int64]belief{}
	s.dead, s.frozen, s.drained = map[string]bool{}, map[string]bool{}, map[string]bool{}
	defer s.stop()
	for _, name := range names {
		if err := s.start(name); err != nil {
			return err
		}
	}
	return s.goOn(ctx)
}

// goOn shows what happens until the demo is to end.
func (s *show) goOn(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	act := time.NewTimer(actEvery)
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	overdue := time.NewTimer(nobodyMax) // for the first election
	var over <-chan time.Time           // of the length, which the start of the processes is no part of
	var end time.Time
	kill := true
	for {
		select {
		case <-ctx.Done():
			return s.finish()
		case <-over:
			cancel()
			return s.finish()
		case <-overdue.C:
			return fmt.Errorf("nobody took over within %v", nobodyMax)
		case r := <-s.events:
			if s.take(r) {
				overdue.Stop()
				act.Reset(actEvery)
				if over == nil && s.length > 0 {
					over, end = time.After(s.length), time.Now().Add(s.length)
				}
			}
		case key := <-s.keys:
			overdue.Stop() // whom nobody revives may be the last one
			if !s.press(ctx, key) {
				cancel() // nobody waits for what was asked of a member any more
				return s.finish()
			}
		case <-ticker.C:
			s.registry(ctx)
		case <-act.C:
			if s.steered || s.leader == "" || over != nil && time.Until(end) < takeOverMax {
				continue
			}
			overdue.Reset(nobodyMax)
			if err := s.disturb(kill); err != nil {
				return err
			}
			kill = !kill
		}
	}
}

// disturb kills the leader, or lets it resign.
func (s *show) disturb(kill bool) error {
	m := s.members[s.leader]
	s.waitFrom = time.Now()
	if !kill {
		s.waitFor = "resign"
		s.say(m.id, "graceful hand-over: asked to resign")
		_, err := io.WriteString(m.input, "resign\n")
		return err
	}
	s.waitFor = "kill"
	s.say(m.id, "SIGKILL")
	if err := m.process.Process.Kill(); err != nil {
		return err
	}
	s.leader = ""
	return nil
}

// start starts one member and the reader of its lines.
func (s *show) start(name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	//nolint:noctx // the demo ends its members itself, in order
	cmd := exec.Command(self)
	cmd.Args = []string{"tenure", "demo", "--member", name, "--member-redis", s.redis}
	cmd.Stderr = os.Stderr
	apart(cmd)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.members[name] = &member{id: name, process: cmd, input: input}
	s.readers.Go(func() { // ends with the member
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				s.events <- r
			}
		}
		_ = cmd.Wait()
		s.events <- report{Member: name, Kind: "gone"}
	})
	return nil
}

// take takes in one line of a member. It returns true when an election has been settled.
func (s *show) take(r report) bool {
	switch r.Kind {
	case "led":
		s.sight(r)
	case "task":
		s.tasks++
		s.say(r.Member, "task report, slot %s, token %d", r.Text, r.Token)
	case "ended":
		s.say(r.Member, "leadership ended (%s)", strings.TrimPrefix(r.Text, "tenure: "))
	case "said":
		s.say(r.Member, "%s", strings.TrimPrefix(r.Text, "tenure: "))
	case "gone":
		s.members[r.Member].gone = true
		delete(s.frozen, r.Member)
		delete(s.drained, r.Member)
		if s.leader == r.Member { // it has died by itself
			s.leader = ""
		}
		switch {
		case s.ended:
		case s.dead[r.Member]:
			s.say(r.Member, "process gone; r revives it")
		default:
			s.again(r.Member)
		}
	case "acquired":
		took := time.Since(s.waitFrom)
		switch s.waitFor {
		case "kill":
			s.takeOvers = append(s.takeOvers, took)
			s.say(r.Member, "LEADS, token %d — take-over %v after SIGKILL (lease %v)", r.Token, took.Round(time.Millisecond), leaseTTL)
		case "pause":
			s.pauses = append(s.pauses, took)
			s.say(r.Member, "LEADS, token %d — take-over %v after SIGSTOP (lease %v)", r.Token, took.Round(time.Millisecond), leaseTTL)
		case "resign", "drain":
			s.handOvers = append(s.handOvers, took)
			s.say(r.Member, "LEADS, token %d — hand-over in %v", r.Token, took.Round(100*time.Microsecond))
		default:
			s.say(r.Member, "LEADS, token %d", r.Token)
		}
		s.waitFor, s.leader = "", r.Member
		s.elections++
		return true
	}
	return false
}

// registry prints what the registry says, read as any other program would.
func (s *show) registry(ctx context.Context) {
	instances, err := s.control.Registry().Instances(ctx, tenure.InstanceQuery{})
	if err != nil {
		return
	}
	var parts []string
	for _, instance := range instances {
		parts = append(parts, fmt.Sprintf("%s %s", instance.ID, instance.State))
	}
	slices.Sort(parts)
	s.say("", "registry: %s", strings.Join(parts, ", "))
}

// finish prints the summary and says whether the run was good.
func (s *show) finish() error {
	s.stop()
	overlaps := s.overlaps()
	paused := "" // only a key pauses
	if len(s.pauses) > 0 {
		paused = ", after SIGSTOP " + times(s.pauses)
	}
	_, _ = fmt.Fprintf(s.out, "\nsummary: %d elections, take-over after SIGKILL %s%s, graceful hand-over %s, %d task runs, two leaders at once: %d\n",
		s.elections, times(s.takeOvers), paused, times(s.handOvers), s.tasks, overlaps)
	switch {
	case overlaps > 0:
		return errAtOnce
	case s.elections == 0:
		return errors.New("nobody was ever elected")
	case !s.steered && s.waitFor != "" && time.Since(s.waitFrom) > nobodyMax:
		return errors.New("nobody took over")
	}
	return nil
}

// belief is the time for which a term is known to have been believed in: a term that ended never
// comes back, so that it was believed in all the way between two sightings.
type belief struct{ from, to int64 }

// sight extends the belief of a term by one sighting.
func (s *show) sight(r report) {
	b, seen := s.beliefs[r.Token]
	if !seen {
		b = belief{from: r.To, to: r.From}
	}
	s.beliefs[r.Token] = belief{from: min(b.from, r.To), to: max(b.to, r.From)}
}

// overlaps counts the pairs of terms that were believed in at the same instant.
func (s *show) overlaps() int {
	all := slices.Collect(maps.Values(s.beliefs))
	count := 0
	for i, a := range all {
		for _, b := range all[i+1:] {
			if max(a.from, b.from) <= min(a.to, b.to) {
				count++
			}
		}
	}
	return count
}

// stop ends the members: standard input closed means stop, SIGKILL if that does not help.
func (s *show) stop() {
	if s.ended {
		return
	}
	s.ended = true
	for _, m := range s.members {
		if s.frozen[m.id] {
			_ = freeze(m.process, false)
		}
		_ = m.input.Close()
	}
	done := make(chan struct{})
	go func() { // ends with the members
		s.readers.Wait()
		close(done)
	}()
	force := time.After(10 * time.Second)
	for {
		select {
		case r := <-s.events:
			s.take(r)
		case <-force:
			for _, m := range s.members {
				_ = m.process.Process.Kill()
			}
		case <-done:
			return
		}
	}
}

func (s *show) say(who, text string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "%6.2fs  %-5s  %s\n", time.Since(s.began).Seconds(), who, fmt.Sprintf(text, args...))
}

func times(all []time.Duration) string {
	if len(all) == 0 {
		return "not shown"
	}
	parts := make([]string, len(all))
	for i, d := range all {
		parts[i] = d.Round(100 * time.Microsecond).String()
	}
	return strings.Join(parts, ", ")
}
