package tenurehttp_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestShapes: the five endpoints have the names and kinds of the system that they are from: Unix
// times and whole seconds.
func TestShapes(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("pod-0", func(o *tenure.Options) { o.Registry.WorkerCount, o.Registry.WorkerID = 4, 2 })
		s.until(a.IsLeader)
		b := s.member("pod-1")
		w := s.serve(tenurehttp.New(b, tenurehttp.Options{}))
		s.until(func() bool { return w.get("/api/cluster/status")["active_instances"] == json.Number("2") })

		term, leads := a.Elector().Term()
		require.True(s, leads)
		since := strconv.FormatInt(term.Since.Unix(), 10)
		leader := `{"instance_id":"pod-0","since":` + since + `}`
		other := `{"id":"pod-1","is_leader":false}`
		status := w.get("/api/cluster/status")
		require.Equal(s, `cluster_healthy true, instance_count 2, active_instances 2, drifted_instances 0, leader `+leader+`, this_instance `+other,
			fields(status, "cluster_healthy", "instance_count", "active_instances", "drifted_instances", "leader", "this_instance"))
		require.Equal(s, "stale false", fields(status, "stale"))

		list := w.get("/api/cluster/instances")
		require.Equal(s, `total 2, current_leader "pod-0"`, fields(list, "total", "current_leader"))
		first, second := list["instances"].([]any)[0].(map[string]any), list["instances"].([]any)[1].(map[string]any)
		require.Equal(s, `instance_id "pod-0", status "active", is_leader true, worker_count 4`, fields(first, "instance_id", "status", "is_leader", "worker_count"))
		require.Equal(s, `instance_id "pod-1", status "active", is_leader false, worker_count 0`, fields(second, "instance_id", "status", "is_leader", "worker_count"))
		for _, name := range []string{"started_at", "last_heartbeat"} {
			require.Regexp(s, `^9[0-9]{8}$`, first[name], "whole Unix seconds of the year 2000")
		}

		require.Equal(s, `leader "pod-0", this_instance `+other, fields(w.get("/api/cluster/leader"), "leader", "this_instance"))
		require.Equal(s, `instance_id "pod-1", heartbeat_interval 15, heartbeat_ttl 90, leader_ttl 30, leader_renew_interval 10, drift_threshold 60, stale_threshold 300, `+
			`redis_host "127.0.0.1", redis_port `+"6379",
			fields(w.get("/api/cluster/config"), "instance_id", "heartbeat_interval", "heartbeat_ttl", "leader_ttl", "leader_renew_interval", "drift_threshold", "stale_threshold",
				"redis_host", "redis_port"))

		w = s.serve(tenurehttp.New(a, tenurehttp.Options{}))
		require.Equal(s, `instance_id "pod-0", is_leader true, worker_id 2, worker_count 4, `+
			`config {"drift_threshold":60,"heartbeat_interval":15,"leader_ttl":30,"stale_threshold":300}`,
			fields(w.get("/api/cluster/this"), "instance_id", "is_leader", "worker_id", "worker_count", "config"))
	})
}

// TestShapesWithoutALeader: what is not known is null.
func TestShapesWithoutALeader(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("pod-0", func(o *tenure.Options) { o.Election.Ineligible = true })
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{}))
		require.Equal(s, `cluster_healthy false, leader null, problems ["nobody leads"]`, fields(w.get("/api/cluster/status"), "cluster_healthy", "leader", "problems"))
		require.Equal(s, "current_leader null", fields(w.get("/api/cluster/instances"), "current_leader"))
		require.Equal(s, "leader null", fields(w.get("/api/cluster/leader"), "leader"))

		d, _ := s.dashboard(tenurehttp.Options{})
		require.Equal(s, `instance_count 1, this_instance null`, fields(d.get("/api/cluster/status"), "instance_count", "this_instance"))
		require.Equal(s, `leader null, this_instance null`, fields(d.get("/api/cluster/leader"), "leader", "this_instance"))
		d.refused(http.StatusNotFound, "no_instance", http.MethodGet, "/api/cluster/this", "")
		d.refused(http.StatusNotFound, "no_instance", http.MethodGet, "/api/cluster/config", "")
	})
}

// examples are the answers that the document of the older system shows.
var examples = map[string]string{
	"status": `{"cluster_healthy": true, "instance_count": 3, "active_instances": 3, "drifted_instances": 0,
		"leader": {"instance_id": "forms-waf-0", "since": 1734567890}, "this_instance": {"id": "forms-waf-1", "is_leader": false}}`,
	"instances": `{"total": 3, "current_leader": "forms-waf-0", "instances": [
		{"instance_id": "forms-waf-0", "status": "active", "is_leader": true, "started_at": 1734567000, "last_heartbeat": 1734567950, "worker_count": 4},
		{"instance_id": "forms-waf-1", "status": "active", "is_leader": false, "started_at": 1734567100, "last_heartbeat": 1734567945, "worker_count": 4}]}`,
	"leader": `{"leader": "forms-waf-0", "this_instance": {"id": "forms-waf-1", "is_leader": false}}`,
	"config": `{"instance_id": "forms-waf-1", "heartbeat_interval": 15, "heartbeat_ttl": 90, "leader_ttl": 30, "leader_renew_interval": 10,
		"drift_threshold": 60, "stale_threshold": 300, "redis_host": "redis", "redis_port": 6379}`,
	"this": `{"instance_id": "forms-waf-1", "is_leader": false, "worker_id": 0, "worker_count": 4,
		"config": {"heartbeat_interval": 15, "leader_ttl": 30, "drift_threshold": 60, "stale_threshold": 300}}`,
}

// TestDocumentedExamples: whoever reads the answers of the older system can read these. With the
// same instances, whatever is no time has the very values of its document.
func TestDocumentedExamples(t *testing.T) {
	inSite(t, func(s *site) {
		workers := func(o *tenure.Options) { o.Registry.WorkerCount = 4 }
		a := s.member("forms-waf-0", workers)
		s.until(a.IsLeader)
		b := s.member("forms-waf-1", workers)
		s.member("forms-waf-2", workers)
		w := s.serve(tenurehttp.New(b, tenurehttp.Options{}))
		for path, example := range examples {
			sameShape(s, path, w.object(example), w.get("/api/cluster/"+path))
		}
	})
}

// sameShape holds what is there against an example: it has each of its names, with values of one
// kind, and of one value but for times and places.
func sameShape(s *site, at string, example, is any) {
	s.Helper()
	switch example := example.(type) {
	case map[string]any:
		object, ok := is.(map[string]any)
		require.True(s, ok, at)
		for name, value := range example {
			require.Contains(s, object, name, at)
			sameShape(s, at+"."+name, value, object[name])
		}
	case []any:
		for i, value := range example {
			sameShape(s, at+"[]", value, is.([]any)[i])
		}
	case json.Number:
		require.IsType(s, example, is, at)
		require.NotContains(s, is, ".", "%s: whole", at)
		if len(example) < 10 {
			require.Equal(s, example, is, at)
		}
	default:
		if at == "config.redis_host" {
			example = "127.0.0.1"
		}
		require.Equal(s, example, is, at)
	}
}
