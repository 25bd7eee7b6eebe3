package tenurehttp

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/internal/store"
)

// route is one thing that can be asked for. Paths are compared as they are: nothing is cleaned,
// decoded again or redirected, so that a prefix before the handler keeps what it stands for.
type route struct {
	method string // GET, which serves HEAD too, or POST
	path   string // a segment in braces stands for any name
	action Action // who may; "": everybody
	serve  func(w http.ResponseWriter, r *request) error
}

// request is a request with what the route has found out.
type request struct {
	*http.Request
	caller string // by the Authorizer; "": nobody was asked
	name   string // the segment of the path that stands for a name
	action Action
}

// api is the prefix of all but the page and the probes.
const api = "/api/cluster/"

// table lists the routes.
func (h *Handler) table() []route {
	read := func(path string, serve func(http.ResponseWriter, *request) error) route {
		return route{http.MethodGet, api + path, ActionRead, readable(serve)}
	}
	probe := func(path string, serve func(http.ResponseWriter, *request) error) route {
		return route{http.MethodGet, path, "", readable(serve)}
	}
	routes := []route{
		{http.MethodGet, "/", "", h.page}, {http.MethodGet, pagePath + "{name}", "", h.file},
		probe("/livez", h.livez), probe("/readyz", h.readyz), probe("/leaderz", h.leaderz),
		read("status", h.status), read("instances", h.instances), read("leader", h.leader), read("config", h.config), read("this", h.this),
		read("snapshot", h.snapshot), read("instances/{id}", h.instance), read("tasks", h.tasks), read("tasks/{name}", h.task), read("tasks/{name}/runs", h.taskRuns),
		read("role", h.role), read("terms", h.terms), read("log", h.log), read("events", h.events), read("commands", h.commandList), read("commands/{id}", h.command),
		{http.MethodGet, api + "openapi.json", "", readable(h.openAPI)}, // as open as the page, which refers to it: a browser sends no token with a link
	}
	if h.opts.Authorize != nil {
		for _, a := range actions {
			routes = append(routes, route{http.MethodPost, api + string(a.action), a.action, h.mutate(a)})
		}
	}
	return routes
}

// readable refuses a query of which a part cannot be read: without that it may be about another
// role.
func readable(serve func(http.ResponseWriter, *request) error) func(http.ResponseWriter, *request) error {
	return func(w http.ResponseWriter, r *request) error {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			return &problem{Status: http.StatusBadRequest, Code: "parameter", Detail: fmt.Sprintf("the query cannot be read: %.100q", r.URL.RawQuery)}
		}
		return serve(w, r)
	}
}

// named is what a name in a path may be: an instance, a task, a command.
var named = store.IDPattern

// colons reads the one character of a name that encodeURIComponent, and clients that are made from
// openapi.json, do not leave as it is. No other part of a path has it.
var colons = strings.NewReplacer("%3A", ":", "%3a", ":")

// matches reports whether a path is that of the route, and the name that it has.
func (t route) matches(path string) (name string, ok bool) {
	before, after, open := strings.Cut(t.path, "{")
	if !open {
		return "", path == t.path
	}
	_, after, _ = strings.Cut(after, "}")
	name, ok = strings.CutPrefix(path, before)
	if ok {
		name, ok = strings.CutSuffix(name, after)
	}
	return name, ok && named.MatchString(name)
}

// find returns the route of a request, and the methods that its path has.
func (h *Handler) find(r *http.Request) (found *route, name string, allowed []string) {
	path := r.URL.Path
	if !strings.HasPrefix(path, "/") { // http.StripPrefix has left nothing, or has taken the slash too
		path = "/" + path
	}
	if raw := r.URL.RawPath; raw != "" && colons.Replace(raw) != r.URL.Path { // written otherwise than it reads: what stands before the handler may have read it otherwise
		return nil, "", nil
	}
	for i, t := range h.routes {
		of, ok := t.matches(path)
		if !ok {
			continue
		}
		methods := []string{t.method}
		if t.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		if slices.Contains(methods, r.Method) {
			found, name = &h.routes[i], of
		}
		allowed = append(allowed, methods...)
	}
	return found, name, allowed
}

// nowhere is why a path leads to nothing. A handler that is mounted under a prefix which nothing
// takes off finds no endpoint at all.
func (h *Handler) nowhere(r *http.Request) error {
	p := &problem{Status: http.StatusNotFound, Code: "no_endpoint", Detail: "there is no such endpoint"}
	if prefix := h.unstripped(r); prefix != "" {
		p.Detail += fmt.Sprintf(" (fix: if this handler is mounted under %.100q, mount it as http.StripPrefix(%.100q, handler))", prefix+"/", prefix)
	}
	return p
}

// maxPrefix is the longest prefix that is looked for: anybody may send a path of a million slashes.
const maxPrefix = 200

// unstripped is what stands before an endpoint in the path of a request of which nothing was taken
// off; "": there is none.
func (h *Handler) unstripped(r *http.Request) string {
	path := r.URL.Path
	sent, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || sent.Path != path || strings.HasPrefix(path, api) || strings.HasPrefix(path, pagePath) {
		return ""
	}
	for i := 1; i < min(len(path), maxPrefix); i++ {
		if path[i] != '/' {
			continue
		}
		for _, t := range h.routes {
			if _, ok := t.matches(path[i:]); ok {
				return path[:i]
			}
		}
	}
	return ""
}

// foreign is why a request from a page of another origin is refused. It may be none: a proxy that
// replaces Host makes a page of this server look like one.
func foreign(r *http.Request) error {
	const fix = "(fix: if a proxy before this server replaces Host, have it pass on that of the client, or list the origin of the page in Options.TrustedOrigins)"
	return &problem{
		Status: http.StatusForbidden, Code: "cross_origin",
		Detail: fmt.Sprintf("a page of another origin may not ask for this: the page is of %.100q, and what it asks is %.100q %s", r.Header.Get("Origin"), r.Host, fix),
	}
}

// ServeHTTP serves a request. The paths are those after the prefix that the handler is mounted
// under.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	w = bound(w, r)
	if err := h.dispatch(w, r); err != nil {
		writeProblem(w, interrupted(r.Context(), err))
	}
}

func (h *Handler) dispatch(w http.ResponseWriter, r *http.Request) error {
	found, name, allowed := h.find(r)
	switch {
	case len(allowed) == 0:
		return h.nowhere(r)
	case found == nil:
		w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return &problem{Status: http.StatusMethodNotAllowed, Code: "method", Detail: "this endpoint has " + strings.Join(allowed, ", ")}
	}
	if found.method == http.MethodPost {
		if err := h.protection.Check(r); err != nil {
			return foreign(r)
		}
	}
	asked := &request{Request: r, name: name, action: found.action}
	if found.action != "" && (found.action != ActionRead || h.opts.GuardReads) {
		caller, err := h.authorize(r, found.action)
		if err != nil {
			return err
		}
		asked.caller = caller
	}
	return found.serve(w, asked)
}
