package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tenure-go/tenure"
)

// The times of one who waits for the end of a command.
const (
	firstLook = 20 * time.Millisecond // doubled up to
	lastLook  = time.Second

	// Another process of the service may answer, whose last look at the audit is older.
	heardOf = 5 * time.Second
)

// ask has the API ask for something, and waits for its end.
func (a *API) ask(ctx context.Context, action string, body map[string]any) (trigger string, err error) {
	for name, value := range body {
		if value == "" {
			delete(body, name)
		}
	}
	r, err := a.request(ctx, http.MethodPost, action, nil, body)
	if err != nil {
		return "", err
	}
	var accepted struct {
		tenure.CommandRecord
		Trigger string `json:"trigger"`
	}
	if err := a.read(r, &accepted); err != nil {
		return "", err
	}
	if accepted.State != "asked" {
		return accepted.Trigger, a.ended(accepted.CommandRecord)
	}
	began := time.Now()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", fmt.Errorf("tenure: the command may still be executed: %w", context.Cause(ctx))
		}
		var d struct {
			Command tenure.CommandRecord `json:"command"`
		}
		err := a.get(ctx, "commands/"+url.PathEscape(accepted.ID), nil, &d)
		var refused *apiError
		switch {
		case errors.Is(err, tenure.ErrNotFound) && time.Since(began) < heardOf:
		case errors.As(err, &refused) && (refused.code == "forbidden" || refused.code == "unauthenticated"):
			return "", fmt.Errorf("%w: the command was accepted, and what becomes of it must not be read: %v", tenure.ErrUnreachable, err)
		case errors.Is(err, tenure.ErrMisconfigured): // of the API: it does not pass by itself
			return "", fmt.Errorf("%w: the command was accepted, and what becomes of it cannot be read: %v", tenure.ErrUnreachable, err)
		case errors.Is(err, tenure.ErrNotFound):
			return "", fmt.Errorf("%w: what became of the command is not known any more", tenure.ErrUnreachable)
		case err == nil && d.Command.State != "asked":
			return "", a.ended(d.Command)
		}
	}
}

// ended is the error of a command as the audit stream has it.
func (a *API) ended(c tenure.CommandRecord) error {
	switch c.State {
	case "done":
		return nil
	case "expired":
		return fmt.Errorf("%w: instance %s has not taken it in time", tenure.ErrNotTaken, clipped(c.InstanceID))
	case "failed":
		kind, known := kinds[c.Code]
		if !known {
			kind = tenure.ErrCommandFailed
		}
		return &apiError{kind: kind, text: fmt.Sprintf("%v: instance %s says: %s", kind, clipped(c.InstanceID), clipped(c.Error))}
	}
	return fmt.Errorf("%w: the state of the command is %.100q", tenure.ErrUnreachable, c.State)
}

func (a *API) do(ctx context.Context, action string, body map[string]any) error {
	_, err := a.ask(ctx, action, body)
	return err
}

// ResignTerm has the leader of a role resign, if its term is that of token.
func (a *API) ResignTerm(ctx context.Context, role string, token int64) error {
	return a.do(ctx, "resign", map[string]any{"role": role, "token": token})
}

// TransferTerm hands a role over, if its term is that of token.
func (a *API) TransferTerm(ctx context.Context, role string, token int64, instanceID string) error {
	return a.do(ctx, "transfer", map[string]any{"role": role, "token": token, "instance_id": instanceID})
}

// Drain has an instance drain.
func (a *API) Drain(ctx context.Context, instanceID string) error {
	return a.do(ctx, "drain", map[string]any{"instance_id": instanceID})
}

// Undrain ends a drain.
func (a *API) Undrain(ctx context.Context, instanceID string) error {
	return a.do(ctx, "undrain", map[string]any{"instance_id": instanceID})
}

// Remove removes the record of an instance.
func (a *API) Remove(ctx context.Context, instanceID string) error {
	return a.do(ctx, "remove", map[string]any{"instance_id": instanceID})
}

// Pause pauses a task.
func (a *API) Pause(ctx context.Context, task, reason string) error {
	return a.do(ctx, "pause", map[string]any{"task": task, "reason": reason})
}

// Resume ends a pause.
func (a *API) Resume(ctx context.Context, task string) error {
	return a.do(ctx, "resume", map[string]any{"task": task})
}

// Trigger has a task run once.
func (a *API) Trigger(ctx context.Context, task string, args ...string) (id string, err error) {
	body := map[string]any{"task": task}
	if len(args) > 0 {
		body["args"] = args
	}
	return a.ask(ctx, "trigger", body)
}

// Cancel ends the run that is on.
func (a *API) Cancel(ctx context.Context, task string) error {
	return a.do(ctx, "cancel", map[string]any{"task": task})
}

// Forget removes the record of a task.
func (a *API) Forget(ctx context.Context, task string) error {
	return a.do(ctx, "forget", map[string]any{"task": task})
}

// ForgetRole removes what is kept of a role that is gone.
func (a *API) ForgetRole(ctx context.Context, role string) error {
	return a.do(ctx, "forget", map[string]any{"role": &role}) // it must be there, also if it is ""
}
