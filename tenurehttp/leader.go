package tenurehttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/store"
)

// The headers of what only the leader serves.
const (
	// LeaderHeader names the leader in an answer of an instance that is not: its ID.
	LeaderHeader = "Tenure-Leader"
	// ForwardedHeader is in a request that Proxy has forwarded: the role, quoted. An instance that
	// gets such a request and does not lead refuses it, so that none goes in circles.
	ForwardedHeader = "Tenure-Forwarded"
)

// Elsewhere answers a request that only the leader serves, on an instance that does not lead: see
// Reject, Redirect and Proxy. leader says who leads as far as it is known: Leader is "" if it is
// not, and Address is "" if the leader advertises none (tenure.RegistryOptions.Address).
type Elsewhere func(w http.ResponseWriter, r *http.Request, leader tenure.NotLeaderError)

// LeaderOnly returns a handler that calls next while this process leads, by Elector.Do: the context
// of the request ends with the client and with the term, tenure.TermFrom finds the term in it, and
// the lease is not released before next has returned. So that no client delays a hand-over for
// longer, what next reads from the client, or writes to it, fails from two seconds after the end of
// that context on. A later deadline that next sets itself then holds for two seconds at most. While
// this process does not lead it calls elsewhere, also while it stands back after a term of its own,
// or drains. A request that has ended before it was begun is answered with 503, whose code is
// "not_begun".
//
// Who leads is known without asking Redis, except right after a change: then one request asks
// Redis, and the others wait for its answer. As long as the leader has no address, one request a
// second asks again. While Redis gives no answer a request waits for it for at most a second, and
// most do not. All handlers of e share what they know, so that a framework may make one for each
// request. LeaderOnly panics if e, next or elsewhere is nil.
func LeaderOnly(e *tenure.Elector, next http.Handler, elsewhere Elsewhere) http.Handler {
	switch { // an instance that leads would not call elsewhere, so that only the second one would fail
	case e == nil:
		panic("tenurehttp: LeaderOnly got a nil Elector: there is no such role")
	case next == nil:
		panic("tenurehttp: LeaderOnly got a nil Handler")
	case elsewhere == nil:
		panic("tenurehttp: LeaderOnly got a nil Elsewhere: use Reject, Redirect or Proxy")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		led := false
		err := e.Do(r.Context(), func(ctx context.Context, _ tenure.Term) error {
			led = true
			defer cutOff(ctx, w)()
			own := r.WithContext(ctx)
			next.ServeHTTP(w, own)
			if r.MultipartForm == nil {
				r.MultipartForm = own.MultipartForm // whose files the server removes after the request
			}
			return nil
		})
		if led {
			return
		}
		if !errors.Is(err, tenure.ErrNotLeader) { // the client has gone, or the time for the request is up
			writeProblem(w, &problem{Status: http.StatusServiceUnavailable, Code: "not_begun", Detail: "the request had ended before it was begun", Role: e.Role(), retry: 1})
			return
		}
		leader := tenure.NotLeaderError{Role: e.Role()}
		var not *tenure.NotLeaderError
		if errors.As(err, &not) {
			leader = *not
		}
		is := tenure.LeaderInfo{InstanceID: leader.Leader, Token: leader.Token}
		if leader.Leader == "" || leader.Address == "" && leader.Token != 0 {
			var answer *tenure.LeaderInfo
			began, shared := time.Now(), leaderOf(e)
			if last := shared.known.Load(); last.counts(is) {
				answer = &last.LeaderInfo
			} else if v, err := shared.ask(r.Context()); err == nil && v.err == nil && !v.at.Before(began) && v.value.InstanceID != e.InstanceID() {
				// It is no answer from before, which there may be while Redis hangs. And this
				// process, which does not lead, still holds the lease while its term drains.
				answer = &v.value
				shared.known.Store(&knownLeader{*answer, v.at})
			}
			if answer != nil { // which may be about a leader that this process has not heard of yet
				leader.Leader, leader.Token, leader.Address = answer.InstanceID, answer.Token, answer.Address
			}
		}
		elsewhere(w, r, leader)
	})
}

// slowBound is for how long a client may hold up a hand-over.
const slowBound = 2 * time.Second

// cutOff has what is read from the client, or written to it, fail a while after ctx is done. The
// handler is over when release is called. The handler may set later deadlines meanwhile, as this
// package does for each piece of a long answer: they are replaced.
func cutOff(ctx context.Context, w http.ResponseWriter) (release func()) {
	control, over, done := http.NewResponseController(w), make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // ends with the handler; awaited by release
		defer close(done)
		at := time.Now().Add(slowBound)
		tick := time.NewTicker(slowBound)
		defer tick.Stop()
		for {
			_ = control.SetReadDeadline(at) // it may be that what stands before hides the connection
			_ = control.SetWriteDeadline(at)
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(over)
		if !stop() {
			<-done // else it would be about the next request
		}
	}
}

// sharedLeader is what all handlers of one elector know of the leader.
type sharedLeader struct {
	asked *cell[tenure.LeaderInfo]
	known atomic.Pointer[knownLeader] // the last one that was read
}

// leaderOf returns that of an elector, which keeps it. A handler cannot: echo.WrapMiddleware, and
// what is written by hand for gin, make a new one for each request.
func leaderOf(e *tenure.Elector) *sharedLeader {
	return hook.Beside(e, func() any { return &sharedLeader{asked: &cell[tenure.LeaderInfo]{load: e.Leader}} }).(*sharedLeader)
}

// ask asks Redis who leads. Nobody waits for long while Redis hangs, and nobody at all for a while
// after it has given no answer: it is asked again meanwhile.
func (s *sharedLeader) ask(ctx context.Context) (view[tenure.LeaderInfo], error) {
	if s.asked.silent() {
		s.asked.look(0)
		return view[tenure.LeaderInfo]{}, tenure.ErrUnreachable
	}
	ctx, cancel := context.WithTimeout(ctx, waitBound)
	defer cancel()
	return s.asked.anew(ctx)
}

// knownLeader is a leader that was read then.
type knownLeader struct {
	tenure.LeaderInfo
	at time.Time
}

// counts reports whether this is what is known of the leader. One without an address may say it
// later.
func (k *knownLeader) counts(is tenure.LeaderInfo) bool {
	return k != nil && k.Token == is.Token && k.InstanceID == is.InstanceID && (k.Address != "" || time.Since(k.at) < fresh)
}

// Reject answers 503, with the leader in LeaderHeader and in a body by RFC 9457, whose code is
// "not_leader" or, if nobody is known to lead, "no_leader".
func Reject(w http.ResponseWriter, _ *http.Request, leader tenure.NotLeaderError) {
	reject(w, leader, "this instance does not lead")
}

func reject(w http.ResponseWriter, leader tenure.NotLeaderError, detail string) {
	p := &problem{
		Status: http.StatusServiceUnavailable, Code: "not_leader", Detail: detail, Role: leader.Role, Leader: leader.Leader, Address: leader.Address, retry: 1,
	}
	if leader.Leader == "" {
		p.Code, p.Detail = "no_leader", "this instance does not lead, and it is not known who does"
	}
	name(w, leader)
	writeProblem(w, p)
}

// Redirect answers 307, to the same path at the address that the leader advertises: a URL, or a
// host and port, which are reached by HTTP. Without such an address it is Reject. Clients go on
// with the same method and body, and most without the header Authorization.
func Redirect(w http.ResponseWriter, r *http.Request, leader tenure.NotLeaderError) {
	to, err := at(leader, r)
	if err != nil {
		Reject(w, r, leader)
		return
	}
	name(w, leader)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// Proxy returns an Elsewhere that forwards the request to the address that the leader advertises,
// as Redirect does, and its answer back. With the header X-Forwarded-For it says who asks, and with
// X-Forwarded-Host and X-Forwarded-Proto for which host and how; what a proxy before has said in
// those two, or in Forwarded, stays as it is. A request that was forwarded already is rejected:
// leaders may change meanwhile. If the leader cannot be reached, the answer is 502, with
// Retry-After if there was no connection, so that the request was not sent; if
// http.MaxBytesHandler before this one refuses the body, it is 413. Nil is a transport like
// http.DefaultTransport that goes straight to the leader, whatever HTTP_PROXY says, keeps as many
// connections to it as to all hosts, and waits for at most a minute for an answer to begin. All
// that are made with nil share it, so that a framework may make one for each request. Give it one
// of your own if the instances have certificates that are not trusted by default.
func Proxy(transport http.RoundTripper) Elsewhere {
	if transport == nil {
		transport = straight()
	}
	return func(w http.ResponseWriter, r *http.Request, leader tenure.NotLeaderError) {
		role := strconv.Quote(leader.Role)
		if slices.Contains(r.Header.Values(ForwardedHeader), role) {
			reject(w, leader, "the request was forwarded to this instance, which does not lead any more")
			return
		}
		to, err := at(leader, r)
		if err != nil {
			Reject(w, r, leader)
			return
		}
		proxy := httputil.ReverseProxy{
			Transport: transport,
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL, p.Out.Host = to, ""
				p.Out.Trailer = p.In.Trailer // which is filled in behind the body
				p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
				p.SetXForwarded()
				for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
					if said := p.In.Header.Values(name); len(said) > 0 {
						p.Out.Header[name] = said
					}
				}
				p.Out.Header.Add(ForwardedHeader, role)
			},
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				name(w, leader)
				writeProblem(w, unforwarded(r.Context(), err, leader))
			},
		}
		proxy.ServeHTTP(w, r)
	}
}

// unforwarded is why a request has no answer of the leader. It is not the leader's fault if the
// body is larger than a handler before this one allows, or if the request has ended.
func unforwarded(ctx context.Context, err error, leader tenure.NotLeaderError) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &problem{Status: http.StatusRequestEntityTooLarge, Code: "body", Detail: fmt.Sprintf("the body must have at most %d bytes", large.Limit)}
	}
	if ctx.Err() != nil {
		return interrupted(ctx, context.Cause(ctx))
	}
	p := &problem{
		Status: http.StatusBadGateway, Code: "leader_unreachable", Detail: "the leader cannot be reached", Role: leader.Role, Leader: leader.Leader, Address: leader.Address,
	}
	if store.NeverSent(err) { // its process may answer its last requests, and another leads in a moment
		p.Detail, p.retry = "the leader cannot be reached: the request was not sent to it", 1
	}
	return p
}

// straights are the last transport that straight has made, and what it was made of.
var straights struct {
	mu       sync.Mutex
	of, made *http.Transport
}

// straight is a transport between the instances of one service: a proxy to the world outside must
// not get their requests, and a leader that is frozen must not hold them. It is the same each time,
// unless the application has replaced http.DefaultTransport meanwhile: the connections of one that
// was made for a single request would stay open behind it.
func straight() http.RoundTripper {
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the application has replaced it
		return http.DefaultTransport
	}
	straights.mu.Lock()
	defer straights.mu.Unlock()
	if straights.of != standard {
		transport := standard.Clone()
		transport.Proxy, transport.ResponseHeaderTimeout = nil, time.Minute
		transport.MaxIdleConnsPerHost = transport.MaxIdleConns // all go to one host, which has 2 else
		straights.of, straights.made = standard, transport
	}
	return straights.made
}

// name puts the leader into the header of the answer, if it can stand there.
func name(w http.ResponseWriter, leader tenure.NotLeaderError) {
	if named.MatchString(leader.Leader) {
		w.Header().Set(LeaderHeader, leader.Leader)
	}
}

var errAddress = errors.New("tenurehttp: no address that a request can be sent to")

// at is where the leader serves what a request asks for: by the path that the client has sent, also
// behind http.StripPrefix. An address comes from Redis: only its scheme, host and path count.
func at(leader tenure.NotLeaderError, r *http.Request) (*url.URL, error) {
	address := leader.Address
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Hostname() == "" || base.User != nil || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%w: %.300q", errAddress, leader.Address)
	}
	asked := r.URL
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil {
		asked = sent
	}
	escaped := strings.TrimSuffix(base.EscapedPath(), "/") + asked.EscapedPath()
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, fmt.Errorf("%w: %.300q", errAddress, leader.Address)
	}
	return &url.URL{Scheme: base.Scheme, Host: base.Host, Path: path, RawPath: escaped, RawQuery: asked.RawQuery}, nil
}
