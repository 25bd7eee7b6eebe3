package tenurehttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure"
)

// problem is an error as RFC 9457 has it. Code is a word for programs.
type problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Code    string `json:"code"`
	Command string `json:"command,omitempty"` // ID of the command that failed, if it is in the audit stream
	// What a request that only the leader serves is refused with.
	Role    string `json:"role,omitempty"`
	Leader  string `json:"leader,omitempty"`
	Address string `json:"address,omitempty"`

	challenge string
	retry     int // seconds
}

func (p *problem) Error() string { return p.Detail }

// kinds are the errors of package tenure. The first that matches counts.
var kinds = []struct {
	err    error
	status int
	code   string
}{
	{tenure.ErrNotFound, http.StatusNotFound, "not_found"},
	{tenure.ErrNoLeader, http.StatusConflict, "no_leader"},
	{tenure.ErrNotLeader, http.StatusConflict, "not_leader"},
	{tenure.ErrNotReady, http.StatusConflict, "not_ready"},
	{tenure.ErrTransferring, http.StatusConflict, "transferring"},
	{tenure.ErrTriggerWaiting, http.StatusConflict, "trigger_waiting"},
	{tenure.ErrRegistered, http.StatusConflict, "registered"},
	{tenure.ErrNotTaken, http.StatusGatewayTimeout, "not_taken"},
	{tenure.ErrDrainTimeout, http.StatusGatewayTimeout, "drain_timeout"},
	{tenure.ErrCommandFailed, http.StatusBadGateway, "failed"},
	{tenure.ErrStopped, http.StatusServiceUnavailable, "stopped"},
	{tenure.ErrUnreachable, http.StatusServiceUnavailable, "unreachable"},
	{tenure.ErrMisconfigured, http.StatusInternalServerError, "misconfigured"},
}

// stopped is what is refused once Close was called.
func stopped() *problem {
	return &problem{Status: http.StatusServiceUnavailable, Code: "stopped", Detail: "this process stops", retry: 1}
}

// problemOf is an error as a problem.
func problemOf(err error) problem {
	var own *problem
	if errors.As(err, &own) {
		return *own
	}
	p := problem{Status: http.StatusInternalServerError, Code: "internal", Detail: err.Error()}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			p.Status, p.Code = kind.status, kind.code
			break
		}
	}
	if p.Status == http.StatusServiceUnavailable {
		p.retry = 1
	}
	return p
}

// interrupted is the error of a request with that context. If it only says that the context has
// ended, with the client, the term or the time that there was, that is no fault of this server.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return &problem{Status: http.StatusServiceUnavailable, Code: "interrupted", Detail: "the request ended before it was answered: a command may have been done all the same"}
}

func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	header := w.Header()
	if p.challenge != "" {
		header.Set("WWW-Authenticate", p.challenge)
	}
	if p.retry > 0 {
		header.Set("Retry-After", strconv.Itoa(p.retry))
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and numbers
	}
	write(w, p.Status, "application/problem+json", append(body, '\n'))
}

// The bounds for a client that hardly reads, or not at all: each piece of an answer has so long, as
// has the body of a request.
const (
	pieceBound = 30 * time.Second
	pieceSize  = 64 << 10
)

// boundWriter is what an answer goes to that a client must take in time.
type boundWriter struct{ http.ResponseWriter }

func (w boundWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bound makes an answer one that is written in time, after a request whose body comes in time: else
// what is not read of it holds up the answer. A server with a ReadTimeout or a WriteTimeout has its
// own bound.
func bound(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		server = &http.Server{}
	}
	if r.ContentLength != 0 && server.ReadTimeout <= 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(pieceBound)) // net/http ends it with the body
	}
	if server.WriteTimeout > 0 {
		return w
	}
	return boundWriter{w}
}

// writePart sends a part of an answer.
func writePart(w http.ResponseWriter, part []byte) error {
	if _, is := w.(boundWriter); !is {
		_, err := w.Write(part)
		return err
	}
	control := http.NewResponseController(w)
	for piece := range slices.Chunk(part, pieceSize) {
		if err := control.SetWriteDeadline(time.Now().Add(pieceBound)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// write sends a whole answer, which may consist of several parts.
func write(w http.ResponseWriter, status int, kind string, parts ...[]byte) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
	for _, part := range parts {
		if writePart(w, part) != nil {
			return // the client has gone
		}
	}
}

// field is a field of an object whose value is JSON already.
type field struct {
	name  string
	value []byte
}

// joined is an object as JSON, in parts, with more fields behind those of head. The values are
// those of the fields, not copies: what all readers get is encoded once.
func joined(head any, fields ...field) ([][]byte, error) {
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	text = text[:len(text)-1]
	parts := [][]byte{text}
	for _, f := range fields {
		between := `,"` + f.name + `":`
		if len(text) == 1 { // nothing stands before it
			between = between[1:]
		}
		text = nil
		parts = append(parts, []byte(between), f.value)
	}
	return append(parts, []byte{'}'}), nil
}

// writeParts sends what joined has returned.
func writeParts(w http.ResponseWriter, parts [][]byte) {
	write(w, http.StatusOK, "application/json", append(parts, []byte{'\n'})...)
}

// writeJSON sends a value. What the cluster says of itself is text in it: encoding/json escapes
// what HTML could take for markup.
func writeJSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	write(w, status, "application/json", append(body, '\n'))
	return nil
}
