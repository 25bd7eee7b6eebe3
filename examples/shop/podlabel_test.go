package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// pods is a Kubernetes with pods and their labels. It fails at first.
type pods struct {
	mu       sync.Mutex
	labels   map[string]map[string]string // by name
	failures int
	labelled chan struct{}
}

func (p *pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures > 0 || r.Header.Get("Authorization") != "Bearer secret" {
		p.failures--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodGet {
		type pod struct {
			Metadata struct {
				Name   string            `json:"name"`
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		}
		items := []pod{}
		for name, labels := range p.labels {
			if selected(r.URL.Query().Get("labelSelector"), labels) && selected(r.URL.Query().Get("fieldSelector"), map[string]string{"metadata.name": name}) {
				var found pod
				found.Metadata.Name, found.Metadata.Labels = name, labels
				items = append(items, found)
			}
		}
		if err := json.NewEncoder(w).Encode(map[string][]pod{"items": items}); err != nil {
			panic(err)
		}
		return
	}
	var patch struct {
		Metadata struct {
			Labels map[string]*string `json:"labels"`
		} `json:"metadata"`
	}
	_ = json.NewDecoder(r.Body).Decode(&patch)
	pod := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if value := patch.Metadata.Labels[leaderLabel]; value != nil && *value == "true" {
		p.labels[pod][leaderLabel] = "true"
		p.labelled <- struct{}{}
	} else {
		delete(p.labels[pod], leaderLabel)
	}
}

// selected reports whether a selector of the form a=b,c=d selects labels.
func selected(selector string, labels map[string]string) bool {
	for part := range strings.SplitSeq(selector, ",") {
		if name, value, _ := strings.Cut(part, "="); selector != "" && labels[name] != value {
			return false
		}
	}
	return true
}

// leaders are the pods that have the label.
func (p *pods) leaders() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, labels := range p.labels {
		if labels[leaderLabel] == "true" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestPodLabels: the leader's pod has the label, no other of the service has it, and nobody's when
// the term is over. The leaders of other services keep theirs, be it another release of this one.
func TestPodLabels(t *testing.T) {
	of := func(name, release string) map[string]string {
		return map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/instance": release}
	}
	kubernetes := &pods{failures: 1, labelled: make(chan struct{}, 10), labels: map[string]map[string]string{
		"shop-0": of("shop", "shop"), // of a leader that died
		"shop-1": of("shop", "shop"), "shop-2": of("shop", "shop"), "billing-0": of("billing", "billing"), "canary-0": of("shop", "canary"),
	}}
	for _, leader := range []string{"shop-0", "billing-0", "canary-0"} {
		kubernetes.labels[leader][leaderLabel] = "true"
	}
	api := httptest.NewServer(kubernetes)
	defer api.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	l := &podLabels{client: api.Client(), pods: api.URL + "/api/v1/namespaces/shop/pods", token: token, pod: "shop-1"}

	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.lead(ctx, tenure.Term{}) }() // ends with end
	<-kubernetes.labelled
	require.Equal(t, []string{"billing-0", "canary-0", "shop-1"}, kubernetes.leaders())
	end()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"billing-0", "canary-0"}, kubernetes.leaders())
}

// TestPodsURL: a cluster may have IPv6 only.
func TestPodsURL(t *testing.T) {
	require.Equal(t, "https://10.96.0.1:443/api/v1/namespaces/shop/pods", podsURL("10.96.0.1", "443", "shop"))
	require.Equal(t, "https://[fd00:10:96::1]:443/api/v1/namespaces/shop/pods", podsURL("fd00:10:96::1", "443", "shop"))
}
