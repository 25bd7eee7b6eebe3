package source

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
)

// The bounds of what an API may say.
const (
	maxAnswer    = 64 << 20
	maxProblem   = 64 << 10
	maxHeader    = 64 << 10
	maxText      = 1 << 10 // of an error
	maxRedirects = 3

	// A decoded element takes up to 2 KiB, however short its text is: of so many each must have so
	// many bytes. An instance has 150 at least.
	fewElements  = 10_000
	leastElement = 48
	leastValue   = 8 // with the comma behind it; null has five
)

// Credentials are what an API is told of who asks. The zero value is nobody.
type Credentials struct{ Token, User, Password string }

// APIOptions say where an API is.
type APIOptions struct {
	URL         string // up to the prefix that the handler is mounted under
	Credentials Credentials
	Secrets     func() (token, password string) // what those of Credentials are by now; nil: as they are there
	Authorities *x509.CertPool                  // who vouches for it; nil: those of the system
	Namespace   string                          // that it must serve; "": any
	Timeout     time.Duration                   // of one question, while changes are followed or instances waited for
	Transport   http.RoundTripper
}

// API is the source that asks the HTTP API of tenurehttp.
type API struct {
	base      *url.URL
	options   APIOptions
	client    *http.Client
	checked   bool          // Namespace is that of the API
	minReturn time.Duration // between the end of a stream of events and the next one
}

var _ Source = (*API)(nil)

// NewAPI returns an API. It does not talk to it.
func NewAPI(o APIOptions) (*API, error) {
	base, err := url.Parse(o.URL)
	switch {
	case err != nil, base.Scheme != "http" && base.Scheme != "https", base.Host == "", base.Opaque != "":
		return nil, errors.New("the URL of the API must look like https://HOST:PORT/PREFIX") // the cause would repeat it
	case base.User != nil:
		return nil, errors.New("the URL of the API must have no user and no password (fix: TENURE_API_TOKEN_FILE, or TENURE_API_USER and TENURE_API_PASSWORD_FILE)")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the URL of the API must have no query and no fragment")
	case o.Credentials.Token != "" && o.Credentials.User != "":
		return nil, errors.New("a token and a user are too much: the API takes one of them")
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), ""
	if o.Transport == nil {
		o.Transport = Transport(o.Authorities)
	}
	a := &API{base: base, options: o, minReturn: minReturn}
	a.client = &http.Client{Transport: o.Transport, CheckRedirect: a.redirect}
	return a, nil
}

// Transport returns one that trusts what those authorities vouch for; nil: those of the system.
func Transport(authorities *x509.CertPool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = maxHeader
	if authorities != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	}
	return t
}

// Close drops the connections.
func (a *API) Close() { a.client.CloseIdleConnections() }

// redirect follows a server only to itself: credentials, and what is asked for, are for it alone.
func (a *API) redirect(to *http.Request, before []*http.Request) error {
	switch {
	case to.URL.Scheme != a.base.Scheme || to.URL.Host != a.base.Host:
		return &apiError{text: fmt.Sprintf("the API at %s sends to %s://%s, which is another server (fix: --api with that, if you trust it)", a.base.Redacted(), to.URL.Scheme, to.URL.Host)}
	case before[0].Method != http.MethodGet, len(before) > maxRedirects:
		return &apiError{text: fmt.Sprintf("the API at %s redirects (fix: --api with the URL of the handler itself)", a.base.Redacted())}
	}
	return nil
}

// apiError is an error that the API has said, or that is about it.
type apiError struct {
	kind error // a sentinel of package tenure; nil: none
	text string
	code string
	busy bool // it may go another time: nobody has looked at what was asked
}

func (e *apiError) Error() string { return e.text }

func (e *apiError) Unwrap() error { return e.kind }

// kinds are the words of the API for the errors of package tenure.
var kinds = map[string]error{
	"not_found": tenure.ErrNotFound, "no_leader": tenure.ErrNoLeader, "not_leader": tenure.ErrNotLeader, "not_ready": tenure.ErrNotReady,
	"transferring": tenure.ErrTransferring, "trigger_waiting": tenure.ErrTriggerWaiting, "registered": tenure.ErrRegistered, "not_taken": tenure.ErrNotTaken,
	"drain_timeout": tenure.ErrDrainTimeout, "failed": tenure.ErrCommandFailed, "stopped": tenure.ErrStopped, "unreachable": tenure.ErrUnreachable,
	"misconfigured": tenure.ErrMisconfigured, "gone": tenure.ErrNotFound, "interrupted": tenure.ErrUnreachable,
}

// Passing reports whether what keeps somebody from an answer may pass: Redis or the API cannot be
// reached, a proxy before it has a bad moment, or it is about to stop or has too much to do.
func Passing(err error) bool {
	var own *apiError
	return errors.Is(err, tenure.ErrUnreachable) || errors.As(err, &own) && own.busy
}

// request makes a request with the credentials. The path is as it is sent: names in it are escaped.
func (a *API) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	at := *a.base
	at.RawPath = a.base.EscapedPath() + "/api/cluster/" + path
	at.RawQuery = query.Encode()
	var err error
	if at.Path, err = url.PathUnescape(at.RawPath); err != nil {
		return nil, err
	}
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, at.String(), content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "tenure")
	c := a.options.Credentials
	if a.options.Secrets != nil {
		c.Token, c.Password = a.options.Secrets()
	}
	switch {
	case c.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.Token)
	case c.User != "":
		r.SetBasicAuth(c.User, c.Password)
	}
	return r, nil
}

// send sends a request. Without an error the answer is of the wanted kind, and its body must be
// closed.
func (a *API) send(r *http.Request, kind string) (*http.Response, error) {
	response, err := a.client.Do(r)
	if err != nil {
		return nil, a.failed(r.Context(), err)
	}
	if got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); response.StatusCode/100 != 2 || got != kind {
		defer func() { _ = response.Body.Close() }()
		return nil, a.problem(r, response, got)
	}
	return response, nil
}

// failed is the error of a request that got no answer.
func (a *API) failed(ctx context.Context, err error) error {
	var own *apiError
	switch {
	case errors.As(err, &own):
		return own
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), tenure.ErrUnreachable):
		return context.Cause(ctx)
	}
	if failed, is := errors.AsType[*url.Error](err); is {
		err = failed.Err // the rest is the URL
	}
	fix := "look whether the program runs there, and at --api"
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		fix = "have TENURE_API_CA_FILE name the authority that has signed its certificate, or renew that"
	}
	return &apiError{kind: tenure.ErrUnreachable, text: fmt.Sprintf("the API at %s gives no answer: %v (fix: %s)", a.base.Redacted(), err, fix)}
}

// problem is the error that the API has answered with.
func (a *API) problem(r *http.Request, response *http.Response, kind string) error {
	var p struct {
		Detail string `json:"detail"`
		Code   string `json:"code"`
	}
	at, status := a.base.Redacted(), strings.TrimSpace(fmt.Sprintln(response.StatusCode, http.StatusText(response.StatusCode))) // in our words
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxProblem))                                                            // what is there
	if kind != "application/problem+json" || json.Unmarshal(text, &p) != nil || p.Code == "" {
		if response.StatusCode >= http.StatusInternalServerError || isBusy(response.StatusCode) { // of a proxy, it may be: what was asked for may have been done
			return &apiError{kind: tenure.ErrUnreachable, text: fmt.Sprintf("the API at %s answers %s with %.100q (fix: look whether the program runs behind it, and at --api)", at, status, kind)}
		}
		return &apiError{text: fmt.Sprintf("the API at %s answers %s with %.100q (fix: --api must end with the prefix that the handler of tenurehttp is mounted under)", at, status, kind)}
	}
	p.Detail = clipped(p.Detail)
	e := &apiError{kind: kinds[p.Code], text: p.Detail, code: p.Code, busy: isBusy(response.StatusCode)}
	switch {
	case p.Code == "unauthenticated":
		e.text = fmt.Sprintf("the API at %s does not know who asks (fix: TENURE_API_TOKEN or TENURE_API_TOKEN_FILE; or TENURE_API_USER and TENURE_API_PASSWORD)", at)
	case p.Code == "forbidden":
		e.text = fmt.Sprintf("the API at %s refuses it: %s (fix: its Options.Authorize says who may)", at, p.Detail)
	case p.Code == "no_endpoint" && strings.Contains(p.Detail, "(fix: "):
		detail, fix, _ := strings.Cut(p.Detail, "(fix: ")
		e.text = fmt.Sprintf("the API at %s: %s(fix: --api must end with the prefix that it is mounted under; %s", at, detail, fix)
	case p.Code == "no_endpoint" && r.Method == http.MethodPost:
		e.text = fmt.Sprintf("the API at %s takes no commands (fix: its program must set tenurehttp.Options.Authorize)", at)
	case p.Code == "no_endpoint":
		e.text = fmt.Sprintf("the API at %s has no %s (fix: look which version of tenure it is)", at, r.URL.Path)
	case p.Code == "unreachable":
		e.text = fmt.Sprintf("the API at %s has had no answer from redis: %s (fix: tenure doctor, with --redis)", at, strings.TrimPrefix(p.Detail, "tenure: "))
	}
	return e
}

// isBusy reports whether a status says that it may go another time.
func isBusy(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// get reads a document into to.
func (a *API) get(ctx context.Context, path string, query url.Values, to any) error {
	r, err := a.request(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	return a.read(r, to)
}

// read sends a request and decodes the answer.
func (a *API) read(r *http.Request, to any) error {
	response, err := a.send(r, "application/json")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return a.failed(r.Context(), err)
	case len(text) > maxAnswer:
		return &apiError{text: fmt.Sprintf("the API at %s answers with more than %d MiB", a.base.Redacted(), maxAnswer>>20)}
	}
	elements, commas := bytes.Count(text, []byte{'{'}), bytes.Count(text, []byte{','})
	if elements > fewElements && len(text)/elements < leastElement || commas > 10*fewElements && len(text)/commas < leastValue {
		return &apiError{text: fmt.Sprintf("the API at %s answers with %d elements that are all but empty", a.base.Redacted(), max(elements, commas))}
	}
	if err := json.Unmarshal(text, to); err != nil {
		return &apiError{text: fmt.Sprintf("the API at %s answers with what this program does not understand: %v", a.base.Redacted(), err)}
	}
	return nil
}

// Ready asks for the least: if somebody has to fix something first to have that, for what shows all
// else.
func (a *API) Ready(ctx context.Context) error {
	var s statusDocument
	err := a.get(ctx, "status", nil, &s)
	if errors.Is(err, tenure.ErrMisconfigured) {
		err = a.get(ctx, "snapshot", url.Values{"limit": {"0"}}, &s)
	}
	if err != nil {
		return err
	}
	if want := a.options.Namespace; want != "" && s.Namespace != want {
		return &apiError{text: fmt.Sprintf("the API at %s serves the namespace %s, not %s", a.base.Redacted(), s.Namespace, want)}
	}
	a.checked = true
	return s.stale()
}

// mine returns an error if the API serves another namespace than is meant.
func (a *API) mine(ctx context.Context) error {
	if a.checked || a.options.Namespace == "" {
		return nil
	}
	var stale *StaleError
	if err := a.Ready(ctx); err != nil && !errors.As(err, &stale) {
		return err
	}
	return nil
}
