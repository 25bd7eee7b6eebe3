package tenurehttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-go/tenure"
)

// The bounds of what is asked for.
const (
	maxBody     = 16 << 10
	maxCommands = 64               // that are on at once
	commandTime = 10 * time.Minute // for which one is waited for in the background
	maxReason   = 256
	maxArgs     = 1 << 10 // as JSON
	maxCaller   = 128
)

// parameters are what the body of a request may have. Each action takes some of them.
type parameters struct {
	Role       *string   `json:"role,omitempty"`
	InstanceID *string   `json:"instance_id,omitempty"`
	Token      *int64    `json:"token,omitempty"`
	Task       *string   `json:"task,omitempty"`
	Reason     *string   `json:"reason,omitempty"`
	Args       []*string `json:"args,omitempty"`

	triggered func(id string) // is called with the ID of a trigger
}

// of is a text that was given; "": it was not.
func of(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// action is one that changes something.
type action struct {
	action Action
	takes  []string // the fields of the body; those with a * must be given
	sent   bool     // an instance executes it: its end is not waited for
	do     func(ctx context.Context, c *tenure.Control, p parameters) error
}

// accepted is the answer to a command.
type accepted struct {
	tenure.CommandRecord
	Trigger string `json:"trigger,omitempty"` // of a task, as its runs name it
}

// actions are all of them.
var actions = []action{
	{ActionResign, []string{"role", "token"}, true, func(ctx context.Context, c *tenure.Control, p parameters) error {
		if p.Token != nil {
			return c.ResignTerm(ctx, of(p.Role), *p.Token)
		}
		return c.Resign(ctx, of(p.Role))
	}},
	{ActionTransfer, []string{"role", "instance_id", "token"}, true, func(ctx context.Context, c *tenure.Control, p parameters) error {
		if p.Token != nil {
			return c.TransferTerm(ctx, of(p.Role), *p.Token, of(p.InstanceID))
		}
		return c.Transfer(ctx, of(p.Role), of(p.InstanceID))
	}},
	{ActionDrain, []string{"instance_id*"}, true, func(ctx context.Context, c *tenure.Control, p parameters) error {
		return c.Drain(ctx, of(p.InstanceID))
	}},
	{ActionUndrain, []string{"instance_id*"}, true, func(ctx context.Context, c *tenure.Control, p parameters) error {
		return c.Undrain(ctx, of(p.InstanceID))
	}},
	{ActionRemove, []string{"instance_id*"}, false, func(ctx context.Context, c *tenure.Control, p parameters) error {
		return c.Remove(ctx, of(p.InstanceID))
	}},
	{ActionPause, []string{"task*", "reason"}, false, func(ctx context.Context, c *tenure.Control, p parameters) error {
		return c.Pause(ctx, of(p.Task), of(p.Reason))
	}},
	{ActionResume, []string{"task*"}, false, func(ctx context.Context, c *tenure.Control, p parameters) error { return c.Resume(ctx, of(p.Task)) }},
	{ActionTrigger, []string{"task*", "args"}, false, func(ctx context.Context, c *tenure.Control, p parameters) error {
		args := make([]string, len(p.Args))
		for i, arg := range p.Args {
			args[i] = of(arg)
		}
		id, err := c.Trigger(ctx, of(p.Task), args...)
		p.triggered(id)
		return err
	}},
	{ActionCancel, []string{"task*"}, false, func(ctx context.Context, c *tenure.Control, p parameters) error { return c.Cancel(ctx, of(p.Task)) }},
	{ActionForget, []string{"task", "role"}, false, func(ctx context.Context, c *tenure.Control, p parameters) error {
		if p.Role != nil {
			return c.ForgetRole(ctx, *p.Role)
		}
		return c.Forget(ctx, of(p.Task))
	}},
}

// refused is an error of the body.
func refused(detail string, args ...any) error {
	return &problem{Status: http.StatusBadRequest, Code: "body", Detail: fmt.Sprintf(detail, args...)}
}

// body reads the parameters of an action.
func (a action) body(w http.ResponseWriter, r *request) (p parameters, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return p, &problem{Status: http.StatusUnsupportedMediaType, Code: "content_type", Detail: "the body must be JSON, with Content-Type: application/json"}
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return p, &problem{Status: http.StatusRequestEntityTooLarge, Code: "body", Detail: fmt.Sprintf("the body must have at most %d bytes", maxBody)}
		}
		return p, refused("the body cannot be read")
	}
	if !utf8.Valid(text) {
		return p, refused("the body must be valid UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return p, refused("the body must be one JSON object")
	}
	for name := range fields {
		if !a.has(name) {
			return p, refused("%.100q: this endpoint has no such field, only %s", name, strings.ReplaceAll(strings.Join(a.takes, ", "), "*", ""))
		}
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, refused("the fields must be texts, args a list of texts, and token a whole number")
	}
	return p, a.check(p)
}

func (a action) has(name string) bool {
	for _, field := range a.takes {
		if strings.TrimSuffix(field, "*") == name {
			return true
		}
	}
	return false
}

// check refuses what the library would refuse.
func (a action) check(p parameters) error {
	if a.action == ActionForget && (of(p.Task) == "") == (p.Role == nil) {
		return refused("task or role: one of them must be given")
	}
	for _, field := range []struct {
		name  string
		value *string
	}{{"role", p.Role}, {"instance_id", p.InstanceID}, {"task", p.Task}} {
		must := a.has(field.name) && strings.Contains(strings.Join(a.takes, " ")+" ", field.name+"* ")
		value := of(field.value)
		if value == "" && must {
			return refused("%s: must be given", field.name)
		}
		if value != "" && (!named.MatchString(value) || field.name != "instance_id" && strings.Contains(value, ":")) || field.name == "role" && !isRole(value) {
			return refused("%s = %.100q: is no name", field.name, value)
		}
	}
	if p.Token != nil && *p.Token <= 0 {
		return refused("token = %d: must be above 0", *p.Token)
	}
	if reason := of(p.Reason); len(reason) > maxReason || strings.ContainsFunc(reason, unicode.IsControl) {
		return refused("reason: must have at most %d bytes and no control characters", maxReason)
	}
	if slices.Contains(p.Args, nil) {
		return refused("args: must be a list of texts, and null is none")
	}
	if text, err := json.Marshal(p.Args); err != nil || len(text) > maxArgs {
		return refused("args: must have at most %d bytes as JSON", maxArgs)
	}
	return nil
}

// asker is a name as the audit stream can have it.
func asker(caller string) string {
	quoted := strconv.QuoteToASCII(caller)
	name := strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), `\\`, `\`)
	return name[:min(len(name), maxCaller)]
}

// mutate serves an action.
func (h *Handler) mutate(a action) func(w http.ResponseWriter, r *request) error {
	return func(w http.ResponseWriter, r *request) error {
		p, err := a.body(w, r)
		if err != nil {
			return err
		}
		if h.isClosed() {
			return stopped()
		}
		select {
		case h.commands <- struct{}{}:
		default:
			return &problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: fmt.Sprintf("%d commands are on", maxCommands), retry: 1}
		}
		answer := accepted{CommandRecord: tenure.CommandRecord{
			Kind: string(a.action), Role: of(p.Role), InstanceID: of(p.InstanceID), Argument: of(p.Task), By: asker(r.caller), State: "asked",
		}}
		if a.action == ActionTransfer { // the instance is the heir, and not who is asked
			answer.InstanceID, answer.Argument = "", of(p.InstanceID)
		}
		trigger := make(chan string, 1)
		p.triggered = func(id string) { trigger <- id }
		id, err := h.run(r, a, p)
		if err != nil {
			failed := problemOf(interrupted(r.Context(), err))
			failed.Command = id
			return &failed
		}
		answer.ID = id
		if !a.sent {
			answer.State = "done"
		}
		select {
		case answer.Trigger = <-trigger:
		default:
		}
		if id != "" { // else Redis has refused to note it
			w.Header().Set("Location", "commands/"+id)
		}
		return writeJSON(w, http.StatusAccepted, answer)
	}
}

// run asks for something, and returns the ID of the command as soon as it was left for its
// instance, or once it was done if it needs none. What was asked for goes on if the client leaves.
func (h *Handler) run(r *request, a action, p parameters) (id string, err error) {
	ids, ended := make(chan string, 1), make(chan error, 1)
	control, err := h.control.As(asker(r.caller), func(id string) { ids <- id })
	if err != nil {
		<-h.commands
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	answered := make(chan struct{})
	defer close(answered)
	go func() { // ends with ctx
		select {
		case <-answered: // Close ends no command whose request waits for an answer
		case <-ctx.Done():
		}
		select {
		case <-h.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() { // ends with ctx, at the latest
		defer cancel()
		defer func() { <-h.commands }()
		err := a.do(ctx, control, p)
		h.all.expire()
		h.now.expire()
		h.audit.expire()
		ended <- err
	}()
	noted := ids
	if !a.sent { // its end comes at once
		noted = nil
	}
	select {
	case id = <-noted:
		h.audit.expire()
		return id, nil
	case err = <-ended:
	case <-r.Context().Done():
		return "", context.Cause(r.Context())
	}
	select {
	case id = <-ids:
	default:
	}
	return id, err
}
