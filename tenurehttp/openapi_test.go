package tenurehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// schema is as much of a JSON schema as openapi.json uses.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional any                `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	OneOf      []*schema          `json:"oneOf"`
	Format     string             `json:"format"`
}

type operation struct {
	Responses map[string]struct {
		Content map[string]struct {
			Schema *schema `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

type openAPI struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
	used map[string]bool // properties that a document had
}

func readOpenAPI(t *testing.T) *openAPI {
	text, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	o := &openAPI{used: make(map[string]bool)}
	require.NoError(t, json.Unmarshal(text, o))
	return o
}

// check says what is wrong with a value.
func (o *openAPI) check(at string, s *schema, value any) error {
	if name, is := strings.CutPrefix(s.Ref, "#/components/schemas/"); is {
		if o.Components.Schemas[name] == nil {
			return fmt.Errorf("%s: no schema %s", at, name)
		}
		return o.check(name, o.Components.Schemas[name], value)
	}
	if len(s.OneOf) > 0 {
		var all []error
		for _, one := range s.OneOf {
			err := o.check(at, one, value)
			if err == nil {
				return nil
			}
			all = append(all, err)
		}
		return errors.Join(all...)
	}
	kind := kindOf(value)
	if allowed := fmt.Sprint(s.Type); !slices.Contains(strings.Fields(strings.Trim(allowed, "[]")), kind) && (kind != "integer" || !strings.Contains(allowed, "number")) {
		return fmt.Errorf("%s: is %s %v, not %v", at, kind, value, s.Type)
	}
	switch value := value.(type) {
	case string:
		if s.Format == "date-time" {
			_, err := time.Parse(time.RFC3339, value)
			return err
		}
	case []any:
		for _, item := range value {
			if err := o.check(at+"[]", s.Items, item); err != nil {
				return err
			}
		}
	case map[string]any:
		return o.checkObject(at, s, value)
	}
	return nil
}

func (o *openAPI) checkObject(at string, s *schema, value map[string]any) error {
	for _, name := range s.Required {
		if _, there := value[name]; !there {
			return fmt.Errorf("%s: %s is missing", at, name)
		}
	}
	for name, one := range value {
		of := s.Properties[name]
		if of == nil && s.Additional == nil && len(s.Properties) > 0 {
			return fmt.Errorf("%s: %s is not described", at, name)
		}
		if of != nil {
			o.used[at+"."+name] = true
			if err := o.check(at+"."+name, of, one); err != nil {
				return err
			}
		}
	}
	return nil
}

func kindOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") {
			return "number"
		}
		return "integer"
	case []any:
		return "array"
	}
	return "object"
}

// answers holds an answer against what is written of it.
func (o *openAPI) answers(w *web, method, path, asked, body string) {
	w.Helper()
	of, there := o.Paths[path][strings.ToLower(method)]
	require.True(w, there, "%s %s is not described", method, path)
	a := w.do(method, asked, body)
	response, there := of.Responses[fmt.Sprint(a.StatusCode)]
	if !there {
		response = of.Responses["default"]
	}
	kind := a.Header.Get("Content-Type")
	content, there := response.Content[kind]
	require.True(w, there, "%s: %s", path, kind)
	if kind != "text/event-stream" {
		require.NoError(w, o.check(path, content.Schema, w.object(a.body)), "%s: %s", path, a.body)
	}
}

// TestOpenAPI: what is described is there, what is there is described, and every answer is as it is
// described, with each of its fields.
func TestOpenAPI(t *testing.T) {
	o := readOpenAPI(t)
	inSite(t, func(s *site) {
		full := func(opts *tenure.Options) {
			r := &opts.Registry
			r.Address, r.Host, r.Version, r.Ports, r.Roles, r.Capabilities = "b:80", "h", "v1", map[string]int{"http": 80}, []string{"w"}, []string{"gpu"}
			r.Load, r.LoadLimit, r.Metadata = tenure.Load{Jobs: 1}, tenure.Load{Jobs: 8}, map[string]string{"k": "v"}
		}
		options := tenure.Options{Namespace: "shop", InstanceID: "a"}
		full(&options)
		c, err := tenure.New(s.client("a").Client, options)
		require.NoError(s, err)
		fail := func(context.Context, tenure.TaskRun) error { return errors.New("no") }
		require.NoError(s, c.Tasks().Register(tenure.Task{Name: "t", Schedule: tenure.Every(time.Minute), Run: fail}))
		require.NoError(s, c.Tasks().Register(tenure.Task{Name: "p", Schedule: tenure.Every(time.Minute), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
		s.run(c)
		w := s.serve(tenurehttp.New(c, operators))
		w.token = "token-of-ann"
		o.answers(w, http.MethodGet, "/api/cluster/role", "/api/cluster/role", "") // nobody may lead yet
		s.until(c.IsLeader)
		b := s.member("b", full)
		s.pass(5 * time.Minute)
		id := w.post("trigger", `{"task":"t"}`)
		s.pass(time.Second)
		w.post("pause", `{"task":"p","reason":"r"}`)
		w.post("trigger", `{"task":"p"}`)
		require.NoError(s, c.Elector().Transfer(s.Context(), "b"))
		s.until(b.IsLeader)
		require.NoError(s, b.Elector().Resign(s.Context()))
		s.until(c.IsLeader)
		s.pass(time.Second)

		var described, there []string
		for path, methods := range o.Paths {
			for method := range methods {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
		for _, one := range w.get("/")["endpoints"].([]any) {
			there = append(there, one.(string))
		}
		require.ElementsMatch(s, described, there)
		for _, path := range slices.Sorted(maps.Keys(o.Paths)) {
			if path == "/api/cluster/events" || o.Paths[path]["get"].Responses == nil {
				continue
			}
			asked := path
			for of, value := range map[string]string{"tasks/{name}": "tasks/t", "instances/{id}": "instances/a", "commands/{id}": "commands/" + id} {
				asked = strings.Replace(asked, of, value, 1)
			}
			o.answers(w, http.MethodGet, path, asked, "")
		}
		d, _ := s.dashboard(tenurehttp.Options{})
		for _, path := range []string{"status", "leader", "this", "snapshot", "role"} {
			o.answers(d, http.MethodGet, "/api/cluster/"+path, "/api/cluster/"+path, "")
		}
		for _, action := range allActions {
			o.answers(w, http.MethodPost, "/api/cluster/"+string(action), "/api/cluster/"+string(action), `{}`)
			o.answers(w, http.MethodPost, "/api/cluster/"+string(action), "/api/cluster/"+string(action), `{"task":"none"}`)
		}
		o.answers(w, http.MethodPost, "/api/cluster/undrain", "/api/cluster/undrain", `{"instance_id":"b"}`)
		o.answers(w, http.MethodPost, "/api/cluster/resume", "/api/cluster/resume", `{"task":"p"}`)
		o.answers(w, http.MethodGet, "/api/cluster/commands", "/api/cluster/commands", "")
		s.net.Partition("a", simnet.Both, 0)
		s.net.Partition("b", simnet.Both, 0)
		s.pass(2 * time.Minute)
		o.answers(d, http.MethodGet, "/api/cluster/role", "/api/cluster/role", "") // nobody leads any more
	})
	for _, schema := range []string{"Status", "Instances", "Leader", "Config", "ThisInstance", "This", "Snapshot", "Counts", "LeaderInfo", "RunRecord", "TaskDocument", "RoleStatus", "RoleDocument", "CommandRecord", "Accepted", "Problem"} {
		for property := range o.Components.Schemas[schema].Properties {
			seen := o.used[schema+"."+property] || slices.Contains([]string{"error", "truncated", "address", "problems", "role", "leader", "trigger", "unread"}, property)
			require.True(t, seen, "no answer had %s.%s", schema, property)
		}
	}
}

// TestOpenAPILetsFieldsBeAdded: what is made of the description of one version takes the answers of
// the next one. What is asked for has the fields that are described, and no others.
func TestOpenAPILetsFieldsBeAdded(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	var document map[string]any
	require.NoError(t, json.Unmarshal(text, &document))
	bodies := 0
	var look func(at string, of any)
	look = func(at string, of any) {
		switch of := of.(type) {
		case map[string]any:
			if strings.HasSuffix(at, "/requestBody/content/application/json/schema") {
				bodies++
				require.Equal(t, false, of["additionalProperties"], at)
				return
			}
			require.NotEqual(t, false, of["additionalProperties"], at)
			for name, part := range of {
				look(at+"/"+name, part)
			}
		case []any:
			for _, part := range of {
				look(at, part)
			}
		}
	}
	look("", document)
	require.Len(t, allActions, bodies)
}

// TestOpenAPIHasThePublicSnapshots: the fields that the snapshots of package tenure have are those
// that are described.
func TestOpenAPIHasThePublicSnapshots(t *testing.T) {
	o := readOpenAPI(t)
	surface, err := os.ReadFile("../testdata/surface.txt")
	require.NoError(t, err)
	named := make(map[string][]string)
	for _, found := range regexp.MustCompile("(?m)^(\\w+)\\.\\w+ .*`json:\"(\\w+)").FindAllStringSubmatch(string(surface), -1) {
		named[found[1]] = append(named[found[1]], found[2])
	}
	checked := 0
	for name, s := range o.Components.Schemas {
		if len(named[name]) == 0 {
			continue
		}
		checked++
		var described []string
		for property := range s.Properties {
			if property != "error" && !strings.HasSuffix(property, "_seconds") { // which have a method to thank for it
				described = append(described, property)
			}
		}
		want := slices.DeleteFunc(named[name], func(field string) bool { return field == "error" || name == "Change" && field == "instances" })
		require.ElementsMatch(t, want, described, name)
	}
	require.Equal(t, 15, checked)
}
