//go:build unix

package fleet

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	startBound = 60 * time.Second // for a process to call Run, on a starved machine
	stopSlack  = 10 * time.Second // beyond the shutdown timeout, for the same reason
)

// instance is the place of one process in the fleet: its processes come and go, its name and its
// link to Redis stay.
type instance struct {
	cluster *cluster
	name    string
	link    *link
	version int
	lives   int
	asked   atomic.Bool // the process is to end

	mu     sync.Mutex
	child  *redistest.Child
	page   *page
	alive  bool
	frozen bool
	ended  chan struct{} // closed when the process is gone and all that it said is in the log
}

// start starts a process and returns when it has called Run.
func (s *instance) start() {
	s.lives++
	s.asked.Store(false)
	t := s.cluster.t
	file := filepath.Join(s.cluster.dir, fmt.Sprintf("%s-%d", s.name, s.lives))
	shared, err := openPage(file)
	if err != nil {
		t.Fatalf("fleet: %v", err)
	}
	settings, err := json.Marshal(settings{
		Namespace: s.cluster.servers.namespace(), Name: s.name, Life: s.lives, Connection: s.cluster.servers.connection(s.link),
		Resource: s.cluster.resource.path, Page: file, Election: s.cluster.election,
		Version: fmt.Sprint("v", s.version), Asked: s.cluster.operator != nil,
	})
	if err != nil {
		t.Fatalf("fleet: %v", err)
	}
	child, running, ended := make(chan *redistest.Child, 1), make(chan struct{}), make(chan struct{})
	go s.live(envSettings+"="+string(settings), shared, child, running, ended) // ends with the process; awaited by gone
	select {
	case <-running:
	case <-ended:
		t.Fatalf("fleet: %s did not start", s.name)
	case <-time.After(startBound):
		t.Fatalf("fleet: %s did not call Run within %v", s.name, startBound)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child, s.page, s.ended, s.alive, s.frozen = <-child, shared, ended, true, false
}

// live is the life of one process: it takes down what the process says until it is gone, and then
// what it could not say.
func (s *instance) live(env string, shared *page, started chan<- *redistest.Child, running, ended chan struct{}) {
	defer close(ended)
	self, said := process{s.name, s.lives}, false
	err := redistest.Do(func(t redistest.TB) { // a scope of its own: a process of hundreds leaves nothing behind
		child := redistest.StartChild(t, memberChild, env)
		started <- child
		for text := range child.Lines() {
			var e Entry
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Errorf("%v said %q: %v", self, text, err)
				continue
			}
			s.cluster.journal.add(e)
			if e.Kind == Started && !said {
				said = true
				close(running)
			}
		}
		if !s.asked.Load() {
			t.Errorf("it ended by itself")
		}
	})
	if err != nil {
		s.cluster.t.Errorf("fleet: %v: %v", self, err)
	}
	if led, untold := shared.untold(); untold {
		led.Who, led.Life = self.who, self.life
		s.cluster.journal.add(led)
	}
	s.cluster.journal.add(Entry{Kind: Gone, At: hostclock.Now(), Who: self.who, Life: self.life})
}

// leads reports whether the process believed to lead just now, and under which token.
func (s *instance) leads() (token int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.alive || s.frozen {
		return 0, false
	}
	return s.page.fresh(50 * time.Millisecond)
}

func (s *instance) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive
}

// kill ends the process with SIGKILL.
func (s *instance) kill() {
	s.asked.Store(true)
	s.child.Kill(s.cluster.t)
	s.gone()
}

// stop ends the process as a deployment does. That Run returns in time is for the checker; here it
// must return at all.
func (s *instance) stop() {
	s.ask()
	s.awaitStop()
}

// ask sends SIGTERM.
func (s *instance) ask() {
	s.asked.Store(true)
	s.child.Signal(s.cluster.t, syscall.SIGTERM)
}

func (s *instance) awaitStop() {
	select {
	case <-s.ended:
	case <-time.After(memberShutdown + stopSlack):
		s.cluster.t.Errorf("fleet: P11: %s has not ended %v after its shutdown timeout", s.name, stopSlack)
		s.child.Kill(s.cluster.t)
	}
	s.gone()
}

// tell has the process report what it sees.
func (s *instance) tell() { s.child.Signal(s.cluster.t, syscall.SIGUSR2) }

// resign has the process resign, if it leads.
func (s *instance) resign() { s.child.Signal(s.cluster.t, syscall.SIGUSR1) }

// transfer has the process hand over to the best candidate, if it leads.
func (s *instance) transfer() { s.child.Signal(s.cluster.t, syscall.SIGHUP) }

// drain has the process drain for a lease.
func (s *instance) drain() { s.child.Signal(s.cluster.t, syscall.SIGWINCH) }

func (s *instance) freeze() {
	s.child.Pause(s.cluster.t)
	s.setFrozen(true)
}

func (s *instance) thaw() {
	s.setFrozen(false)
	s.child.Resume(s.cluster.t)
}

func (s *instance) setFrozen(frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = frozen
}

// gone waits until all that a process has left is in the log.
func (s *instance) gone() {
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = false
	if err := s.page.close(); err != nil {
		s.cluster.t.Errorf("fleet: %v", err)
	}
}

// link is the network between one member and every server: a proxy of its own in front of each.
type link struct{ proxies map[string]*redistest.Proxy }

// newLink builds the links of one member to the servers at some addresses.
func newLink(t redistest.TB, addrs []string) *link {
	t.Helper()
	l := &link{proxies: map[string]*redistest.Proxy{}}
	for _, addr := range addrs {
		l.proxies[addr] = redistest.NewProxy(t, addr)
	}
	return l
}

// each does the same to every proxy.
func (l *link) each(do func(*redistest.Proxy)) {
	for _, p := range l.proxies {
		do(p)
	}
}

func (l *link) heal() { l.each((*redistest.Proxy).Heal) }

// via maps the address of a server to that of the proxy in front of it.
func (l *link) via() map[string]string {
	via := map[string]string{}
	for addr, p := range l.proxies {
		via[addr] = p.Addr()
	}
	return via
}
