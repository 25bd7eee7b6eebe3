package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
)

// leaderLabel is the label of the pod whose process leads: the Service shop-leader selects it.
const leaderLabel = "tenure.dev/leader"

// ofService are the labels that tell the pods of the service from those of others, as the selector
// of shop-leader does: their leaders have the label too.
var ofService = []string{"app.kubernetes.io/name", "app.kubernetes.io/instance"}

// podLabels sets the label of the leader on its pod, through the API of Kubernetes. It needs the
// rights to list and patch pods: see deploy/kubernetes/leader-service.yaml.
type podLabels struct {
	client *http.Client
	pods   string // URL of the pods of the namespace
	token  string // path of the token, which Kubernetes renews
	pod    string
}

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// newPodLabels returns nil outside of Kubernetes, and if SHOP_POD is not set.
func newPodLabels() (*podLabels, error) {
	host, port, pod := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), os.Getenv("SHOP_POD")
	if host == "" || pod == "" {
		return nil, nil //nolint:nilnil // there is nothing to label
	}
	authority, err := os.ReadFile(serviceAccount + "ca.crt")
	if err != nil {
		return nil, err
	}
	namespace, err := os.ReadFile(serviceAccount + "namespace")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &podLabels{
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
		pods:   podsURL(host, port, string(namespace)), token: serviceAccount + "token", pod: pod,
	}, nil
}

func podsURL(host, port, namespace string) string {
	api := url.URL{Scheme: "https", Host: net.JoinHostPort(host, port), Path: "/api/v1/namespaces/" + namespace + "/pods"}
	return api.String()
}

// lead is leader work. It takes the label off every other pod of the service, sets it on this one,
// and takes it off again when the term is over. It tries for as long as the term goes on: a
// Kubernetes that does not answer ends no term.
func (l *podLabels) lead(ctx context.Context, _ tenure.Term) error {
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, 30*time.Second) {
		err := l.take(ctx)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			slog.Warn("the label of the leader is not on its pod yet", "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = l.set(bound, l.pod, nil) // the next leader does it too
	return nil
}

func (l *podLabels) take(ctx context.Context) error {
	own, err := l.list(ctx, "fieldSelector", "metadata.name="+l.pod)
	if err != nil {
		return err
	}
	if len(own) != 1 {
		return fmt.Errorf("kubernetes has %d pods %s", len(own), l.pod)
	}
	selectors := []string{leaderLabel + "=true"}
	for _, label := range ofService {
		if value := own[0].Metadata.Labels[label]; value != "" {
			selectors = append(selectors, label+"="+value)
		}
	}
	labelled, err := l.list(ctx, "labelSelector", strings.Join(selectors, ","))
	if err != nil {
		return err
	}
	for _, pod := range labelled {
		if pod.Metadata.Name != l.pod {
			if err := l.set(ctx, pod.Metadata.Name, nil); err != nil {
				return err
			}
		}
	}
	return l.set(ctx, l.pod, "true")
}

// pod is what is read of one.
type pod struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

// list lists the pods that a selector of a kind selects.
func (l *podLabels) list(ctx context.Context, kind, selector string) ([]pod, error) {
	var found struct {
		Items []pod `json:"items"`
	}
	err := l.call(ctx, http.MethodGet, l.pods+"?"+url.Values{kind: {selector}}.Encode(), nil, &found)
	return found.Items, err
}

// set sets the label of a pod; nil removes it.
func (l *podLabels) set(ctx context.Context, pod string, value any) error {
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{leaderLabel: value}}}
	return l.call(ctx, http.MethodPatch, l.pods+"/"+url.PathEscape(pod), patch, nil)
}

func (l *podLabels) call(ctx context.Context, method, url string, body, answer any) error {
	token, err := os.ReadFile(l.token)
	if err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := l.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound { // a pod that is gone has no label
		return fmt.Errorf("kubernetes answers %s to %s", response.Status, method)
	}
	if answer == nil {
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
