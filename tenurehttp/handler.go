package tenurehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/tenure-go/tenure"
)

// Options configure a Handler. The zero value serves reads to everybody who reaches the handler,
// and nothing that changes anything.
type Options struct {
	// Authorize decides who may do what. Nil: the endpoints that change something do not exist.
	Authorize Authorizer
	// GuardReads has Authorize asked for each read too, with ActionRead. The status page itself and
	// openapi.json, which say nothing of the cluster, stay open, and so do the probes livez, readyz
	// and leaderz: what calls them has no credentials. False: reads are open.
	GuardReads bool
	// TrustedOrigins may send requests that change something from a page of theirs: "scheme://host"
	// or "scheme://host:port". Others are refused by http.CrossOriginProtection. Default: none.
	TrustedOrigins []string
	// MaxStreams is how many clients may follow the events at once; a further one gets 503.
	// Default 256, at most 100,000.
	MaxStreams int
	// Logger gets what an Authorizer that panics has said, at Error. Nil is silent.
	Logger *slog.Logger
}

const (
	defaultStreams = 256
	maxStreams     = 100_000
)

// Handler serves the state of a cluster over HTTP, and what may be asked of it. It can be mounted
// under any prefix, by http.StripPrefix:
//
//	mux.Handle("/tenure/", http.StripPrefix("/tenure", handler))
//
// All that it says of the cluster comes from one snapshot, which all readers share: it is read from
// Redis if somebody asks and the last one is older than a second, by one reader for all. So the
// commands that Redis gets do not grow with the readers, and a handler that nobody reads costs
// nothing. While Redis gives no answer, reads are answered with the last snapshot, "stale": true
// and its age.
//
// A client must take each 64 KiB of an answer within 30 s, or all of it within the WriteTimeout of
// the server, if that has one. It must send the body of a request within 30 s, or the ReadTimeout.
//
// Its methods are safe for concurrent use.
type Handler struct {
	coordinator *tenure.Coordinator // nil: this process takes no part
	control     *tenure.Control
	opts        Options
	protection  *http.CrossOriginProtection
	routes      []route
	files       map[string]pageFile
	now         *cell[*snapshot]
	all         *cell[*listing]
	audit       *cell[[]tenure.CommandRecord]
	runs        taskCells
	roles       roleCells
	hub         hub
	commands    chan struct{} // a place for each that is on

	close sync.Once
	done  chan struct{} // closed by Close
}

// New returns a handler for a coordinator. It says of this process whether it leads and why it
// waits, beside what all see. It may be made before Run, and goes on to serve after it. It returns
// an error that matches tenure.ErrMisconfigured for bad options. It does not talk to Redis.
func New(c *tenure.Coordinator, o Options) (*Handler, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: tenurehttp.New got a nil Coordinator", tenure.ErrMisconfigured)
	}
	return newHandler(c, c.Control(), o)
}

// NewDashboard returns a handler for a process that takes no part: a dashboard beside the service.
// What a handler of New says of its own process is missing, or null, and its readiness does not
// depend on the cluster. See New for the errors.
func NewDashboard(c *tenure.Control, o Options) (*Handler, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: tenurehttp.NewDashboard got a nil Control", tenure.ErrMisconfigured)
	}
	return newHandler(nil, c, o)
}

func newHandler(coordinator *tenure.Coordinator, control *tenure.Control, o Options) (*Handler, error) {
	o.MaxStreams = cmp.Or(o.MaxStreams, defaultStreams)
	protection := http.NewCrossOriginProtection()
	var problems []error
	for i, origin := range o.TrustedOrigins {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			problems = append(problems, fmt.Errorf("%w: TrustedOrigins[%d] = %q: %w", tenure.ErrMisconfigured, i, origin, err))
		}
	}
	if o.GuardReads && o.Authorize == nil {
		problems = append(problems, fmt.Errorf("%w: GuardReads = true: needs Authorize", tenure.ErrMisconfigured))
	}
	if o.MaxStreams < 1 || o.MaxStreams > maxStreams {
		problems = append(problems, fmt.Errorf("%w: MaxStreams = %d: must be between 1 and %d", tenure.ErrMisconfigured, o.MaxStreams, maxStreams))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	files, err := readPage()
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{
		coordinator: coordinator, control: control, opts: o, protection: protection, files: files,
		commands: make(chan struct{}, maxCommands), done: make(chan struct{}),
	}
	survey := survey{coordinator: coordinator, control: control}
	survey.instances = newCell(survey.list)
	h.now, h.all = newCell(survey.take), survey.instances
	h.audit = newCell(func(ctx context.Context) ([]tenure.CommandRecord, error) { return control.Commands(ctx, maxListed) })
	h.runs.h, h.roles.h = h, h
	h.hub.init(h)
	h.routes = h.table()
	return h, nil
}

// Close ends the streams of events, refuses commands, and has readyz answer 503 from then on. A
// command that has already begun is done and answered, and reads are still answered.
// http.Server.Shutdown waits for streams: call Close before it, or have it called by
// Server.RegisterOnShutdown. A client that does not read is cut off after a second. Close does not
// wait, and may be called again.
func (h *Handler) Close() {
	h.close.Do(func() {
		close(h.done)
		h.hub.cut()
	})
}

func (h *Handler) isClosed() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}
