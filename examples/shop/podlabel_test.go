package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestPodLabels: the leader's pod has the label, no other has it, and nobody's when the term is
// over. The API fails at first.
func TestPodLabels(t *testing.T) {
	var mu sync.Mutex
	labels := map[string]bool{"shop-0": true} // of a leader that died
	failures := 1
	labelled := make(chan struct{}, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if failures > 0 || r.Header.Get("Authorization") != "Bearer secret" {
			failures--
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if r.Method == http.MethodGet {
			if r.URL.Query().Get("labelSelector") != "tenure.dev/leader=true" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			items := []any{}
			for name := range labels {
				items = append(items, map[string]any{"metadata": map[string]any{"name": name}})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
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
			labels[pod] = true
			labelled <- struct{}{}
		} else {
			delete(labels, pod)
		}
	}))
	defer api.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	l := &podLabels{client: api.Client(), pods: api.URL + "/api/v1/namespaces/shop/pods", token: token, pod: "shop-1"}

	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.lead(ctx, tenure.Term{}) }() // ends with end
	<-labelled
	mu.Lock()
	require.Equal(t, map[string]bool{"shop-1": true}, labels)
	mu.Unlock()
	end()
	require.NoError(t, <-ended)
	require.Empty(t, labels)
}
