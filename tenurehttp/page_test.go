package tenurehttp_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/tenurehttp"
)

// browserAccepts is what a browser sends that shows a page.
const browserAccepts = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestPage: a browser gets the page, whole, with a policy that lets it load nothing else; a program
// gets the list of endpoints.
func TestPage(t *testing.T) {
	inSite(t, func(s *site) {
		w, rdb := s.dashboard(tenurehttp.Options{GuardReads: true, Authorize: tenurehttp.BearerToken(map[string]string{"alice": "secret"})})
		page := w.do(http.MethodGet, "/", "", "Accept", browserAccepts)
		require.Equal(s, http.StatusOK, page.StatusCode, "nothing of it is secret: it asks for a token itself")
		require.Equal(s, "text/html; charset=utf-8", page.Header.Get("Content-Type"))
		require.Equal(s, "Accept", page.Header.Get("Vary"))
		policy := page.Header.Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'none'"} {
			require.Contains(s, strings.Split(policy, "; "), rule)
		}
		require.NotContains(s, policy, "unsafe")

		referred := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(page.body, -1)
		files, err := filepath.Glob("page/*")
		require.NoError(s, err)
		require.Len(s, referred, len(files)-1+1, "all files but the page itself, which load at once; and the description of the API")
		for _, file := range referred {
			require.NotContains(s, file[1], ":", "it is its own")
			require.False(s, strings.HasPrefix(file[1], "/"), "relative, so that it works under any prefix")
			got := w.do(http.MethodGet, "/"+file[1], "") // as a browser follows a link: without a token
			require.Equal(s, http.StatusOK, got.StatusCode, file[1])
			if strings.HasPrefix(file[1], "api/") {
				continue
			}
			require.Equal(s, "no-cache", got.Header.Get("Cache-Control"))
			require.Equal(s, "nosniff", got.Header.Get("X-Content-Type-Options"))
			again := w.do(http.MethodGet, "/"+file[1], "", "If-None-Match", `"other", W/`+got.Header.Get("ETag"))
			require.Equal(s, http.StatusNotModified, again.StatusCode)
			require.Empty(s, again.body)
			require.Equal(s, http.StatusNotModified, w.do(http.MethodGet, "/"+file[1], "", "If-None-Match", "*").StatusCode, "any that there is")
		}
		w.refused(http.StatusNotFound, "no_endpoint", http.MethodGet, "/page/index.html", "")
		w.refused(http.StatusNotFound, "no_endpoint", http.MethodGet, "/page/none.js", "")
		w.refused(http.StatusMethodNotAllowed, "method", http.MethodPost, "/page/main.js", "")

		w.refused(http.StatusUnauthorized, "unauthenticated", http.MethodGet, "/", "", "Accept", "application/json, text/html;q=0")
		w.token = "secret"
		require.Contains(s, w.get("/")["endpoints"], "GET /api/cluster/snapshot")
		require.Equal(s, "application/json", w.do(http.MethodGet, "/", "", "Accept", "application/json, text/html;q=0").Header.Get("Content-Type"))
		for accept, kind := range map[string]string{
			"text/html;q=0.000": "application/json", "text/html; q=0.0, */*": "application/json", "text/html;Q=0": "application/json",
			"text/html;q=0.001": "text/html; charset=utf-8", "text/html;q=1.000": "text/html; charset=utf-8", "text/html;q=0, TEXT/HTML": "text/html; charset=utf-8",
		} {
			require.Equal(s, kind, w.do(http.MethodGet, "/", "", "Accept", accept).Header.Get("Content-Type"), accept)
		}
		require.Zero(s, rdb.sent.Load(), "a page that nobody has let in costs Redis nothing")
	})
}

// TestPageUnderAPrefix: a browser that asks for the prefix without its last slash is sent on, by an
// address that is right whatever a proxy before it has cut off.
func TestPageUnderAPrefix(t *testing.T) {
	inSite(t, func(s *site) {
		inner, _ := s.dashboard(tenurehttp.Options{})
		w := s.host(http.StripPrefix("/ops/tenure", inner.Handler))
		sent := w.do(http.MethodGet, "/ops/tenure?wall", "", "Accept", browserAccepts)
		require.Equal(s, http.StatusTemporaryRedirect, sent.StatusCode)
		to, err := sent.Request.URL.Parse(sent.Header.Get("Location"))
		require.NoError(s, err)
		require.Equal(s, "/ops/tenure/?wall", to.RequestURI())
		require.Contains(s, w.do(http.MethodGet, "/ops/tenure/", "", "Accept", browserAccepts).body, "<!doctype html>")
		require.Contains(s, w.get("/ops/tenure")["endpoints"], "GET /livez", "a program needs no slash")

		behind := s.host(http.StripPrefix("/a:b", inner.Handler))
		sent = behind.do(http.MethodGet, "/a:b", "", "Accept", browserAccepts)
		to, err = sent.Request.URL.Parse(sent.Header.Get("Location"))
		require.NoError(s, err)
		require.Equal(s, "/a:b/", to.Path)

		slash := s.host(http.StripPrefix("/ops/", inner.Handler)) // as examples of http.StripPrefix have it
		require.Contains(s, slash.do(http.MethodGet, "/ops/", "", "Accept", browserAccepts).body, "<!doctype html>")
		require.Equal(s, http.StatusOK, slash.do(http.MethodGet, "/ops/page/main.js", "").StatusCode)
		require.Equal(s, http.StatusOK, slash.do(http.MethodGet, "/ops/api/cluster/status", "").StatusCode)
		slash = s.host(http.StripPrefix("/", inner.Handler))
		require.Contains(s, slash.do(http.MethodGet, "/", "", "Accept", browserAccepts).body, "<!doctype html>")

		dot := s.host(http.StripPrefix("/ops/.", inner.Handler)) // there is no last part to send it to
		dot.refused(http.StatusNotFound, "no_endpoint", http.MethodGet, "/ops/.", "", "Accept", browserAccepts)
		asked := &http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: http.Header{"Accept": {browserAccepts}}} // no server has read it
		answered := httptest.NewRecorder()
		inner.ServeHTTP(answered, asked)
		require.Equal(s, http.StatusNotFound, answered.Code)
	})
}

// TestPrefixThatNothingTakesOff: a handler that is mounted without http.StripPrefix answers
// nothing, and says why.
func TestPrefixThatNothingTakesOff(t *testing.T) {
	inSite(t, func(s *site) {
		inner, _ := s.dashboard(tenurehttp.Options{})
		mux := http.NewServeMux()
		mux.Handle("/ops/tenure/", inner.Handler)
		w := s.host(mux)
		for _, path := range []string{"/ops/tenure/", "/ops/tenure/livez", "/ops/tenure/page/main.js", "/ops/tenure/api/cluster/status", "/ops/tenure/api/cluster/instances/a"} {
			detail := w.refused(http.StatusNotFound, "no_endpoint", http.MethodGet, path, "")["detail"]
			require.Contains(s, detail, `http.StripPrefix("/ops/tenure", handler)`, path)
		}
		stripped := s.host(http.StripPrefix("/ops", inner.Handler))
		for path, w := range map[string]*web{"/ops/tenure/livez": stripped, "/ops/none": stripped, "/none": inner, "/api/cluster/": inner, "/api/cluster/none": inner, "/page/none/": inner} {
			require.Equal(s, "there is no such endpoint", w.refused(http.StatusNotFound, "no_endpoint", http.MethodGet, path, "")["detail"], path)
		}
	})
}

// TestPageHasNoMarkupOfOthers: no script of the page can make markup of a text, or code; the HTML
// has neither a script nor a style in it; and modules import what there is.
func TestPageHasNoMarkupOfOthers(t *testing.T) {
	files, err := filepath.Glob("page/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc|\beval\(|new Function|javascript:|setTimeout\("|setAttribute\("style"`)
	imported := regexp.MustCompile(`from "\./([^"]+)"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, markup.FindAllString(string(text), -1), file)
		require.NotRegexp(t, `https?://[^w]`, string(text), "%s: nothing comes from elsewhere", file)
		for _, module := range imported.FindAllStringSubmatch(string(text), -1) {
			require.FileExists(t, filepath.Join("page", module[1]), file)
		}
		if filepath.Ext(file) == ".html" {
			require.NotRegexp(t, `<style|\sstyle=|\son[a-z]+=|<script(?: type="module")?>`, string(text))
		}
	}
}
