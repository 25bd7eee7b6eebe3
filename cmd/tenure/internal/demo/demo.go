// Package demo shows an election live: three processes over an embedded Redis, the leader killed
// with SIGKILL, then a graceful hand-over, each with its measured time, and the status page.
package demo

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// leaseTTL is short, so that the take-over after a crash can be watched.
const leaseTTL = 3 * time.Second

// Namespace is that of the demo.
const Namespace = "tenure-demo"

// Options say how the demo goes.
type Options struct {
	For    time.Duration // how long after the first election it ends; 0: when ctx does
	Listen string        // where the status page is served
	Out    io.Writer
	// Keys are what somebody types, who may kill, pause, drain and revive instances; nil: nobody.
	Keys <-chan byte
}

// Run starts Redis and the members, plays the show and prints a summary. It returns an error if an
// election has failed, or if two processes led at once.
func Run(ctx context.Context, o Options) error {
	embedded, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer embedded.Close()
	embedded.ClockTTL(true)
	client := redis.NewClient(&redis.Options{Addr: embedded.Addr()})
	defer func() { _ = client.Close() }()
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: Namespace, By: "demo"})
	if err != nil {
		return err
	}
	s := &show{out: o.Out, length: o.For, redis: embedded.Addr(), control: control, began: time.Now(), events: make(chan report, 64)}
	s.say("", "three processes over an embedded Redis, namespace %s, lease %v", Namespace, leaseTTL)
	closePage, err := s.servePage(ctx, control, o.Listen)
	if err != nil {
		return err
	}
	defer closePage()
	if o.Keys != nil {
		s.say("", "%s", help)
		s.keys = o.Keys
	}
	return s.run(ctx)
}

// servePage serves the status page, with its actions, to this machine.
func (s *show) servePage(ctx context.Context, control *tenure.Control, listen string) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	at := listener.Addr().String()
	handler, err := tenurehttp.NewDashboard(control, tenurehttp.Options{Authorize: func(r *http.Request, _ tenurehttp.Action) (string, error) {
		if r.Host != at { // a name that leads here is a page of somebody else
			return "", errors.New("it is asked for under another name")
		}
		return "demo", nil
	}, GuardReads: true})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { // ends with Close; awaited by stop
		defer close(done)
		_ = server.Serve(listener)
	}()
	s.say("", "status page: http://%s/   tenure top --api http://%s", at, at)
	return func() {
		handler.Close()
		_ = server.Close()
		<-done
	}, nil
}

// help names the keys.
const help = "keys: k kill the leader, p pause it, d drain it, r revive all, 1 2 3 choose another one first, q quit"

// press takes a key. It returns false if the demo is to end. From the first key on the demo leaves
// its members alone.
func (s *show) press(ctx context.Context, key byte) bool {
	target := s.chosen
	if target == "" {
		target = s.leader
	}
	m := s.members[target]
	switch key {
	case 'q', 3, 4: // Ctrl-C, Ctrl-D
		return false
	case '1', '2', '3':
		s.steered, s.chosen = true, names[key-'1']
		s.say(s.chosen, "chosen: k kill, p pause, d drain, r revive it")
		return true
	case 'r':
		s.revive(ctx)
		s.steered, s.chosen = true, ""
		return true
	case 'k', 'p', 'd':
	default:
		s.say("", "%s", help)
		return true
	}
	s.steered, s.chosen = true, ""
	if m == nil || m.gone {
		s.say(target, "there is nobody to do that to")
		return true
	}
	switch key {
	case 'k':
		s.dead[m.id] = true
		s.disturbed(m, "kill", "SIGKILL")
		_ = m.process.Process.Kill()
	case 'p':
		s.disturbed(m, "pause", "paused with SIGSTOP")
		if err := freeze(m.process, true); err != nil {
			s.say(m.id, "%v", err)
			return true
		}
		s.frozen[m.id] = true
	case 'd':
		s.disturbed(m, "drain", "drain: it hands over, and leads nothing until it is revived")
		s.ask(ctx, m.id, s.control.Drain)
		s.drained[m.id] = true
	}
	return true
}

// disturbed notes what is done to a member. If it leads, the next election is measured.
func (s *show) disturbed(m *member, how, text string) {
	s.say(m.id, "%s", text)
	if m.id == s.leader {
		s.waitFor, s.waitFrom, s.leader = how, time.Now(), ""
	}
}

// ask sends a command. It is not waited for: keys go on.
func (s *show) ask(ctx context.Context, id string, do func(context.Context, string) error) {
	s.readers.Go(func() { // ends with ctx
		if err := do(ctx, id); err != nil && ctx.Err() == nil {
			s.events <- report{Member: id, Kind: "said", Text: err.Error()}
		}
	})
}

// revive brings back the chosen member, or all.
func (s *show) revive(ctx context.Context) {
	for _, name := range names {
		m := s.members[name]
		if s.chosen != "" && s.chosen != name {
			continue
		}
		if s.dead[name] {
			delete(s.dead, name)
			if m.gone { // else it starts again when it is
				s.again(name)
			}
			continue // with nothing of what was done to it before
		}
		if s.frozen[name] {
			delete(s.frozen, name)
			s.say(name, "goes on")
			if err := freeze(m.process, false); err != nil {
				s.say(name, "%v", err)
			}
		}
		if s.drained[name] {
			delete(s.drained, name)
			s.say(name, "undrain: it may lead again")
			s.ask(ctx, name, s.control.Undrain)
		}
	}
}

// again starts a member that is gone.
func (s *show) again(name string) {
	s.say(name, "process gone, starting it again")
	if err := s.start(name); err != nil {
		s.say(name, "%v", err)
	}
}

var errAtOnce = errors.New("two processes led at once")
