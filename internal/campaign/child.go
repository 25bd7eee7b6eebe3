//go:build unix

package campaign

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/redistest"
)

// childName is what RunChild knows the children by.
const childName = "campaign"

// Register makes this binary able to be a child; it is to be called before redistest.RunChild.
func Register() { redistest.ChildMain(childName, childMain) }

// envSetup carries a setup to a child.
const envSetup = "TENURE_CAMPAIGN"

// setup is what a child is told.
type setup struct {
	Name, Resource     string
	Namespace          string
	Addr               string   // of a single server
	Sentinels, Cluster []string // or of these
	Username, Password string
	CA                 []byte // TLS
	TTL                time.Duration
	Renew, Margin      time.Duration
}

// taskEvery is the interval of the children's task.
const taskEvery = time.Second

func (s *setup) client() redis.UniversalClient {
	var secure *tls.Config
	if len(s.CA) > 0 {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(s.CA)
		secure = &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	}
	switch {
	case len(s.Sentinels) > 0:
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: s.Sentinels})
	case len(s.Cluster) > 0:
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Cluster})
	}
	return redis.NewClient(&redis.Options{Addr: s.Addr, Username: s.Username, Password: s.Password, TLSConfig: secure})
}

// childMain is one process. It says on standard output, with times of the host's monotonic clock:
//
//	leads <token> <first> <last>           it believed to lead from first to last at least
//	over <token> <at> <deadline> <cause>   the context of the term was done; the last deadline that was seen
//	event <type> <subject>                 what is worth counting
//	ended <error>                          Run returned
func childMain() {
	redis.SetLogger(silent{}) // its pools complain of each server that is down
	var s setup
	out := &speaker{}
	if err := json.Unmarshal([]byte(os.Getenv(envSetup)), &s); err != nil {
		out.say("ended %v", err)
		return
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", s.Resource)
	if err != nil {
		out.say("ended %v", err)
		return
	}
	c := &child{out: out, resource: newResourceClient(conn)}
	opts := tenure.Options{
		Namespace: s.Namespace, InstanceID: s.Name, ShutdownTimeout: 10 * time.Second,
		Election: tenure.ElectionOptions{LeaseTTL: s.TTL, RenewInterval: s.Renew, FailoverMargin: s.Margin},
		Registry: tenure.RegistryOptions{BeatInterval: time.Second, BeatTTL: 3 * time.Second, SweepInterval: time.Second, DriftedAfter: 3 * time.Second, DownAfter: 8 * time.Second},
	}
	coordinator, err := tenure.New(s.client(), opts)
	if err != nil {
		out.say("ended %v", err)
		return
	}
	c.Coordinator = coordinator
	coordinator.Observe(func(e tenure.Event) {
		switch e.Type {
		case tenure.EventDown, tenure.EventMisconfigured, tenure.EventClockStep, tenure.EventTaskSkipped, tenure.EventDuplicateID, tenure.EventOverrun:
			subject := e.Subject
			if subject == "" {
				subject = "-"
			}
			out.say("event %s %s", e.Type, subject)
		}
	})
	err = coordinator.Tasks().Register(tenure.Task{Name: "tick", Schedule: tenure.Every(taskEvery), Run: c.task})
	if err != nil {
		out.say("ended %v", err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	resign := make(chan os.Signal, 1)
	signal.Notify(resign, syscall.SIGUSR1)
	go func() { // ends with the process
		for range resign {
			_ = coordinator.Elector().Resign(ctx)
		}
	}()
	go c.probe() // ends with the process
	out.say("ready")
	out.say("ended %v", coordinator.Run(ctx, c.lead))
}

type child struct {
	*tenure.Coordinator
	out      *speaker
	resource *resourceClient
	deadline atomic.Int64
}

// probe asks what the elector believes, all the time.
func (c *child) probe() {
	var token int64
	var first, last, told time.Duration
	tell := func() {
		if token != 0 {
			c.out.say("leads %d %d %d", token, first, last)
		}
		told = monotonic()
	}
	for range time.Tick(2 * time.Millisecond) {
		before := monotonic()
		term, leads := c.Elector().Term()
		leads = leads && c.IsLeader()
		after := monotonic()
		if !leads || term.Token != token {
			tell()
			token = 0
		}
		if leads {
			if token == 0 {
				token, first = term.Token, after
				last = after
				tell()
			}
			last = max(before, first)
			if status := c.Elector().Status(); status.State == tenure.StateLeading && status.Token == token {
				c.deadline.Store(int64(monotonic() + time.Until(status.Deadline)))
			}
		}
		if token != 0 && before-told > 20*time.Millisecond {
			tell()
		}
	}
}

// lead writes to the resource for as long as the term lasts.
func (c *child) lead(ctx context.Context, term tenure.Term) error {
	for {
		c.resource.write(fmt.Sprintf("write %d %d", term.Token, monotonic()))
		select {
		case <-ctx.Done():
			c.out.say("over %d %d %d %v", term.Token, monotonic(), c.deadline.Load(), context.Cause(ctx))
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// task writes too, for a while.
func (c *child) task(ctx context.Context, run tenure.TaskRun) error {
	c.resource.write(fmt.Sprintf("start %d %d %d %d %s", run.Token, monotonic(), run.Slot.UnixMilli(), run.Attempt, run.ID))
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
	c.resource.write(fmt.Sprintf("end %d %d %d %d %s", run.Token, monotonic(), run.Slot.UnixMilli(), run.Attempt, run.ID))
	return ctx.Err()
}

// silent says nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// speaker writes whole lines to standard output.
type speaker struct{ mu sync.Mutex }

func (s *speaker) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// resourceClient asks the fenced resource, one question at a time.
type resourceClient struct {
	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Reader
}

func newResourceClient(conn net.Conn) *resourceClient {
	return &resourceClient{conn: conn, lines: bufio.NewReader(conn)}
}

func (r *resourceClient) write(line string) (accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.conn.Write([]byte(line + "\n")); err != nil {
		return false
	}
	answer, err := r.lines.ReadString('\n')
	return err == nil && answer == "accepted\n"
}

// monotonic reads the monotonic clock of the host, which is the same for all its processes.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Unix has this clock
	}
	return time.Duration(now.Nano())
}
