package tenurehttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
)

// Action is what somebody wants to do. The name of an action that changes something is that of its
// endpoint.
type Action string

// The actions.
const (
	ActionRead     Action = "read" // only asked for with Options.GuardReads
	ActionResign   Action = "resign"
	ActionTransfer Action = "transfer"
	ActionDrain    Action = "drain"
	ActionUndrain  Action = "undrain"
	ActionRemove   Action = "remove"
	ActionPause    Action = "pause"
	ActionResume   Action = "resume"
	ActionTrigger  Action = "trigger"
	ActionCancel   Action = "cancel"
	ActionForget   Action = "forget"
)

// Authorizer decides whether a request may do something, and says who asks: that name stands in the
// audit stream (tenure.CommandRecord.By). Its characters that are not printable ASCII are escaped
// there, and it is cut at 128.
//
// Any error refuses. A *ChallengeError is answered with 401, every other error with 403; its text
// is not sent. A panic is answered with 500 and logged. An Authorizer is called for each request
// that changes something, for each read if Options.GuardReads is set, which of a stream of events
// is repeated once a minute with the request that began it, and for each action when somebody
// reads the snapshot, which lists what the caller may do: it should be quick. It must be safe for
// concurrent use, and must not read the body.
type Authorizer func(r *http.Request, action Action) (caller string, err error)

// ChallengeError says that the request has no credentials of a known caller, and which ones it can
// send.
type ChallengeError struct {
	Challenge string // for the header WWW-Authenticate: `Bearer realm="tenure"`
}

func (e *ChallengeError) Error() string { return "tenurehttp: credentials are missing or wrong" }

// BearerToken returns an Authorizer for requests with "Authorization: Bearer <token>". It lets each
// caller with a known token do everything. tokens has the token of each caller, by name. They are
// compared in constant time. An empty token is nobody's, and one that several callers have is
// refused, with an error that says so. The map is copied.
func BearerToken(tokens map[string]string) Authorizer {
	known := newSecrets(tokens)
	return func(r *http.Request, _ Action) (string, error) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		caller, holders := known.find("", token)
		switch {
		case holders == 0 || !strings.EqualFold(scheme, "Bearer"):
			return "", &ChallengeError{`Bearer realm="tenure"`}
		case holders > 1:
			return "", &problem{Status: http.StatusInternalServerError, Code: "misconfigured", Detail: "this token is that of several callers: it is not known who asks (fix: give each a token of its own)"}
		}
		return caller, nil
	}
}

// BasicAuth returns an Authorizer for requests with a user and a password, for which a browser
// asks. It lets each of them do everything. passwords has the password of each user. They are
// compared in constant time. An empty password is nobody's. The map is copied. Use it over TLS
// only.
func BasicAuth(passwords map[string]string) Authorizer {
	known := newSecrets(passwords)
	return func(r *http.Request, _ Action) (string, error) {
		user, password, ok := r.BasicAuth()
		if caller, holders := known.find(user, password); ok && holders > 0 && user != "" {
			return caller, nil
		}
		return "", &ChallengeError{`Basic realm="tenure", charset="UTF-8"`}
	}
}

// secrets are what is known of those who may ask: hashes, so that a comparison says nothing of how
// long a secret is.
type secrets []struct {
	name   string
	hashed [sha256.Size]byte
}

func newSecrets(byName map[string]string) secrets {
	known := make(secrets, 0, len(byName))
	for name, secret := range byName {
		if secret != "" {
			known = append(known, struct {
				name   string
				hashed [sha256.Size]byte
			}{name, sha256.Sum256([]byte(secret))})
		}
	}
	return known
}

// find returns whose secret that is, and of how many. With a name it must be that one's. All are
// compared, whichever it is.
func (s secrets) find(name, secret string) (caller string, holders int) {
	given := sha256.Sum256([]byte(secret))
	for _, one := range s {
		same := subtle.ConstantTimeCompare(given[:], one.hashed[:])
		if name != "" {
			same &= subtle.ConstantTimeCompare([]byte(name), []byte(one.name))
		}
		if same == 1 {
			caller, holders = one.name, holders+1
		}
	}
	return caller, holders
}

// pageHeader is a header that the requests of the status page have. The page asks for a password
// itself.
const pageHeader = "Tenure-Page"

// authorize asks the Authorizer. The error is a problem. One that panics, as a method of its error
// may, lets nobody in.
func (h *Handler) authorize(r *http.Request, action Action) (caller string, err error) {
	returned := false
	defer func() {
		if value := recover(); !returned { // also if it was runtime.Goexit, or panic(nil)
			h.opts.Logger.LogAttrs(r.Context(), slog.LevelError, "the authorizer of the HTTP API panicked: nothing was allowed",
				slog.String("action", string(action)), slog.String("panic", fmt.Sprint(value)), slog.String("stack", string(debug.Stack())))
			caller, err = "", &problem{Status: http.StatusInternalServerError, Code: "authorizer", Detail: "whether you may do this could not be found out"}
		}
	}()
	caller, err = h.opts.Authorize(r, action)
	if err != nil {
		caller, err = "", refusal(r, err)
	}
	returned = true
	return caller, err
}

// refusal is an error of the Authorizer as a problem.
func refusal(r *http.Request, err error) error {
	var challenge *ChallengeError
	var own *problem
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &challenge) && challenge != nil:
		p := &problem{Status: http.StatusUnauthorized, Code: "unauthenticated", Detail: "credentials are missing or wrong", challenge: challenge.Challenge}
		if scheme, _, _ := strings.Cut(p.challenge, " "); strings.EqualFold(scheme, "Basic") && r.Header.Get(pageHeader) != "" {
			p.challenge = "Tenure-" + p.challenge // which no browser knows: it would ask by itself, each time, and keep no way out
		}
		return p
	}
	return &problem{Status: http.StatusForbidden, Code: "forbidden", Detail: "you may not do this"}
}

// may lists what the caller of a request may ask for.
func (h *Handler) may(r *request) (caller string, may []Action) {
	may = []Action{}
	if h.opts.Authorize == nil {
		return "", may
	}
	for _, a := range actions {
		if name, err := h.authorize(r.Request, a.action); err == nil {
			caller, may = name, append(may, a.action)
		}
	}
	if r.caller != "" {
		caller = r.caller
	}
	return caller, may
}
