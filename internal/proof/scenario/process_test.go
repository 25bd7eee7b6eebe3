//go:build unix

package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// process is a candidate in a process of its own.
type process struct {
	*redistest.Child
	name string

	mu    sync.Mutex
	said  []string
	ended bool
}

// spawn starts a candidate that asks the Redis at addr; it is killed with the test.
func (s *stage) spawn(name, addr string, env ...string) *process {
	s.Helper()
	p := &process{name: name}
	env = append(env, envName+"="+name, envAddr+"="+addr, envTTL+"="+s.ttl.String())
	p.Child = redistest.StartChild(s, "candidate", env...)
	heard := make(chan struct{})
	go func() { // ends with the child's output; waited for in the clean-up
		defer close(heard)
		for line := range p.Lines() {
			p.hear(s, line)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended = true
	}()
	s.Cleanup(func() {
		p.Kill(s)
		<-heard
		if s.Failed() {
			s.Logf("%s said:\n%s", name, strings.Join(p.said, "\n"))
		}
	})
	return p
}

// hear takes one line of a child: a sighting of its belief, or something to remember.
func (p *process) hear(s *stage, line string) {
	if rest, ok := strings.CutPrefix(line, "leads "); ok {
		numbers := numbersOf(s, rest)
		s.beliefs.saw(p.name, numbers[0], time.Duration(numbers[1]), time.Duration(numbers[2]))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, line)
}

// numbersOf reads numbers that are separated by blanks.
func numbersOf(s *stage, text string) []int64 {
	var numbers []int64
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			s.Errorf("a child said %q", text)
		}
		numbers = append(numbers, n)
	}
	return append(numbers, 0, 0, 0) // a broken line fails the test and not this process
}

// find looks for a line that starts with prefix and returns the rest of it.
func (p *process) find(prefix string) (rest string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.said, func(line string) bool { return strings.HasPrefix(line, prefix) })
	if i < 0 {
		return "", false
	}
	return strings.TrimPrefix(p.said[i], prefix), true
}

// says waits for a line that starts with prefix and returns the rest of it.
func (p *process) says(s *stage, prefix string) string {
	s.Helper()
	var rest string
	s.eventually(fmt.Sprintf("%s to say %q", p.name, prefix), func() bool {
		var ok bool
		rest, ok = p.find(prefix)
		return ok
	})
	return rest
}

// chief waits until one of some processes leads under a token above the given one.
func (s *stage) chief(above int64, processes ...*process) (*process, belief) {
	s.Helper()
	var chief *process
	var found belief
	s.eventually(fmt.Sprintf("a process that leads under a token above %d", above), func() bool {
		for _, b := range s.beliefs.all() {
			for _, p := range processes {
				if b.token > above && b.who == p.name {
					chief, found = p, b
					return true
				}
			}
		}
		return false
	})
	return chief, found
}

// The lease of a leader that is killed runs out, and its followers ask right then.
func TestP7_KilledLeaderIsReplacedWhenItsLeaseEnds(t *testing.T) {
	s := newParallelStage(t, time.Second)
	server := redistest.Start(t)
	admin := server.Client(t)
	var fleet []*process
	for i := range 3 {
		fleet = append(fleet, s.spawn(fmt.Sprint("process-", i), server.Addr()))
	}
	chief, term := s.chief(0, fleet...)
	for i := range 4 {
		for _, p := range fleet {
			p.says(s, "ready")
		}
		chief.Kill(t)
		killed := monotonic() // and not after Redis was asked
		remaining, err := admin.PTTL(t.Context(), leaderKey).Result()
		s.must(err)
		ends := killed + remaining
		fleet = slices.DeleteFunc(fleet, func(p *process) bool { return p == chief })
		var next belief
		chief, next = s.chief(term.token, fleet...)
		t.Logf("killed: led again after %v, %v beyond the end of the lease", round(next.first-killed), round(next.first-ends))
		if next.first < ends-5*time.Millisecond {
			t.Errorf("%v before the lease had ended", next)
		}
		term = next
		fleet = append(fleet, s.spawn(fmt.Sprint("process-", 3+i), server.Addr()))
	}
}

// oneProcessor lets a goroutine that spins be the first to run when its process wakes up: before
// any timer.
const oneProcessor = "GOMAXPROCS=1"

// A leader that is frozen past its lease finds itself deposed at its first look, is told so, and
// its late write is refused.
func TestP3P4_FrozenLeaderWakesDeposed(t *testing.T) {
	s := newParallelStage(t, time.Second)
	server := redistest.Start(t)
	var fleet []*process
	for i := range 3 {
		fleet = append(fleet, s.spawn(fmt.Sprint("process-", i), server.Addr(), envVigil+"=1", oneProcessor))
	}
	above := int64(0)
	for range 5 {
		chief, term := s.chief(above, fleet...)
		chief.says(s, fmt.Sprintf("wrote %d accepted", term.token))
		chief.says(s, fmt.Sprintf("watches %d", term.token))
		chief.Pause(t)
		paused := monotonic()
		others := slices.DeleteFunc(slices.Clone(fleet), func(p *process) bool { return p == chief })
		next, later := s.chief(term.token, others...)
		next.says(s, fmt.Sprintf("wrote %d accepted", later.token))
		s.eventually("all of the lease to pass", func() bool { return monotonic()-paused > s.ttl*5/4 })
		chief.Resume(t)
		woke := chief.says(s, fmt.Sprintf("woke %d ", term.token))
		if !strings.HasSuffix(woke, " false") {
			t.Errorf("the first IsLeader after waking: %s", woke)
		}
		chief.says(s, fmt.Sprintf("cancelled %d ", term.token))
		refused := chief.says(s, fmt.Sprintf("late write %d ", term.token))
		if refused != "refused" {
			t.Errorf("a late write under token %d was %s", term.token, refused)
		}
		t.Logf("slept for and first answered: %s", woke)
		above = later.token - 1
	}
	s.acceptedInOrder(server)
}

// acceptedInOrder fails the test if the fenced resource ever accepted a token below one that it had
// accepted before (P3).
func (s *stage) acceptedInOrder(server *redistest.Server) {
	s.Helper()
	accepted, err := server.Client(s).LRange(s.Context(), fenceKey+":accepted", 0, -1).Result()
	s.must(err)
	highest := int64(0)
	for _, text := range accepted {
		token := numbersOf(s, text)[0]
		if token < highest {
			s.Errorf("P3: a write under token %d was accepted after one under %d", token, highest)
		}
		highest = max(highest, token)
	}
	if len(accepted) == 0 {
		s.Error("no write was accepted")
	}
}

// A leader that is asked to stop hands over at once.
func TestP7P8_StoppedLeaderHandsOver(t *testing.T) {
	s := newParallelStage(t, 2*time.Second)
	server := redistest.Start(t)
	var fleet []*process
	for i := range 5 {
		fleet = append(fleet, s.spawn(fmt.Sprint("process-", i), server.Addr()))
	}
	above := int64(0)
	for range 4 {
		chief, term := s.chief(above, fleet...)
		for _, p := range fleet {
			p.says(s, "ready")
		}
		asked := monotonic()
		chief.Signal(t, syscall.SIGTERM)
		if status := chief.Wait(t, patience); status.ExitCode() != 0 {
			t.Errorf("%s ended with %v", chief.name, status)
		}
		if err := chief.says(s, "ended "); err != "<nil>" {
			t.Errorf("Run returned %s", err)
		}
		fleet = slices.DeleteFunc(fleet, func(p *process) bool { return p == chief })
		_, next := s.chief(term.token, fleet...)
		last := s.beliefs.term(term.token).last
		t.Logf("hand-over: led again %v after SIGTERM, %v after the old leader was last believed in", round(next.first-asked),
			round(next.first-last))
		above = term.token
	}
}

// A starved process is cancelled late, but never believed in past its deadline.
func TestP4_StarvedLeaderStepsDownInTime(t *testing.T) {
	s := newStage(t, 2*time.Second)
	server := redistest.Start(t)
	for i := range 2 {
		proxy := redistest.NewProxy(t, server.Addr())
		p := s.spawn(fmt.Sprint("starved-", i), proxy.Addr())
		_, term := s.chief(0, p)
		p.Signal(t, syscall.SIGUSR1)
		p.says(s, "starved")
		proxy.Blackhole()
		text := p.says(s, fmt.Sprintf("cancelled %d ", term.token))
		times := numbersOf(s, text)
		at, deadline := time.Duration(times[0]), time.Duration(times[1])
		guard := max(50*time.Millisecond, s.ttl/50)
		last := s.beliefs.term(term.token).last
		drift := max(s.ttl/100, 10*time.Millisecond) + 2*time.Millisecond
		t.Logf("cancelled %v after the cancel point, %v before the deadline, %v before the lease ends", round(at-deadline+guard),
			round(deadline-at), round(deadline+drift-at))
		if last >= deadline {
			t.Errorf("%v led %v past its deadline", term, last-deadline)
		}
		p.Kill(t)
	}
}
