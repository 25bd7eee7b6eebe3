package tenurehttp

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// pageFiles are the status page: HTML, CSS and modules as they are written, nothing is built.
//
//go:embed page
var pageFiles embed.FS

// pagePolicy has the page load nothing but its own files, and ask nobody but this server.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action 'none'"

// pagePath is the prefix of what the page loads. It is no part of the API.
const pagePath = "/page/"

// pageFile is a file of the page, as it is sent.
type pageFile struct {
	body []byte
	kind string // Content-Type
	tag  string // ETag
}

// pageKinds are the types of the files. Those of package mime depend on the machine.
var pageKinds = map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

// readPage reads the files of the page, by name.
func readPage() (map[string]pageFile, error) {
	entries, err := pageFiles.ReadDir("page")
	if err != nil {
		return nil, err
	}
	files := make(map[string]pageFile, len(entries))
	for _, e := range entries {
		body, err := pageFiles.ReadFile("page/" + e.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		files[e.Name()] = pageFile{body, pageKinds[path.Ext(e.Name())] + "; charset=utf-8", `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return files, nil
}

// index lists the endpoints.
type index struct {
	Endpoints []string `json:"endpoints"`
}

// page serves what stands at the root of the handler: the status page to a browser, and to anybody
// else which endpoints there are. The page says nothing of the cluster, so everybody may have it:
// it reads the snapshot, which can be guarded, and has a field for a token.
func (h *Handler) page(w http.ResponseWriter, r *request) error {
	w.Header().Set("Vary", "Accept")
	if wantsHTML(r.Header.Values("Accept")) {
		if r.URL.Path == "" && !slashed(r) { // "/tenure": what the page refers to would be beside it
			return redirectInto(w, r)
		}
		return h.serveFile(w, r, "index.html")
	}
	if h.opts.GuardReads {
		if _, err := h.authorize(r.Request, ActionRead); err != nil {
			return err
		}
	}
	var i index
	for _, t := range h.routes {
		if !strings.HasPrefix(t.path, pagePath) {
			i.Endpoints = append(i.Endpoints, t.method+" "+t.path)
		}
	}
	return writeJSON(w, http.StatusOK, i)
}

// wantsHTML reports whether a request is that of a browser that shows a page. A weight of 0, also
// written 0.000, is a type that is not wanted.
func wantsHTML(accept []string) bool {
	for kind := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameters, err := mime.ParseMediaType(kind)
		if weight, bad := strconv.ParseFloat(parameters["q"], 64); err == nil && name == "text/html" && (bad != nil || weight > 0) {
			return true
		}
	}
	return false
}

// slashed reports whether the path that the client has sent ends with a slash, whatever
// http.StripPrefix has left of it.
func slashed(r *request) bool {
	sent, _, _ := strings.Cut(r.RequestURI, "?")
	return strings.HasSuffix(sent, "/")
}

// redirectInto sends a browser from the prefix to the prefix with a slash behind it, by a relative
// address: whatever stands before this handler may have removed a part.
func redirectInto(w http.ResponseWriter, r *request) error {
	asked, err := url.ParseRequestURI(r.RequestURI)
	last := ""
	if err == nil {
		last = path.Base(asked.EscapedPath())
	}
	if last == "" || last == "." {
		return &problem{Status: http.StatusNotFound, Code: "no_endpoint", Detail: "there is no such endpoint"}
	}
	into := "./" + last + "/"
	if asked.RawQuery != "" {
		into += "?" + asked.RawQuery
	}
	w.Header().Set("Location", into)
	w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

// file serves what the page loads.
func (h *Handler) file(w http.ResponseWriter, r *request) error {
	if r.name == "index.html" { // it refers to what is beside the root
		return &problem{Status: http.StatusNotFound, Code: "no_endpoint", Detail: "there is no such endpoint"}
	}
	return h.serveFile(w, r, r.name)
}

// serveFile sends a file of the page. A browser keeps it, and asks each time whether it is still
// the same: the answer is 304 then, so that a new version of the service is a new page at once.
func (h *Handler) serveFile(w http.ResponseWriter, r *request, name string) error {
	f, found := h.files[name]
	if !found {
		return &problem{Status: http.StatusNotFound, Code: "no_endpoint", Detail: "there is no such file"}
	}
	header := w.Header()
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Cache-Control", "no-cache")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("ETag", f.tag)
	for tag := range strings.SplitSeq(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == f.tag {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	write(w, http.StatusOK, f.kind, f.body)
	return nil
}
