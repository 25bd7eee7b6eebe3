// Package manifest decodes the manifests of the kit as strictly as the API server does.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// Kinds are the types that manifests may have, by "apiVersion kind".
type Kinds map[string]func() any

// Kubernetes are those of Kubernetes itself.
func Kubernetes() Kinds {
	return Kinds{
		"apps/v1 Deployment":                       func() any { return new(appsv1.Deployment) },
		"apps/v1 StatefulSet":                      func() any { return new(appsv1.StatefulSet) },
		"v1 Service":                               func() any { return new(corev1.Service) },
		"v1 ServiceAccount":                        func() any { return new(corev1.ServiceAccount) },
		"v1 ConfigMap":                             func() any { return new(corev1.ConfigMap) },
		"v1 Secret":                                func() any { return new(corev1.Secret) },
		"policy/v1 PodDisruptionBudget":            func() any { return new(policyv1.PodDisruptionBudget) },
		"networking.k8s.io/v1 NetworkPolicy":       func() any { return new(networkingv1.NetworkPolicy) },
		"rbac.authorization.k8s.io/v1 Role":        func() any { return new(rbacv1.Role) },
		"rbac.authorization.k8s.io/v1 RoleBinding": func() any { return new(rbacv1.RoleBinding) },
	}
}

// Decode decodes every document of a text: an unknown field, or one that is there twice, is an
// error. A document without anything but comments is left out: templates leave some.
func (k Kinds) Decode(text []byte) (all []any, err error) {
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	buffer := make([]byte, len(text)+1)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := strict.Unmarshal(buffer[:n], &kind); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, buffer[:n])
		}
		if kind.APIVersion == "" && kind.Kind == "" && empty(buffer[:n]) {
			continue
		}
		newObject := k[kind.APIVersion+" "+kind.Kind]
		if newObject == nil {
			return nil, fmt.Errorf("no such kind: %+v in:\n%s", kind, buffer[:n])
		}
		object := newObject()
		if err := strict.UnmarshalStrict(buffer[:n], object); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, buffer[:n])
		}
		all = append(all, object)
	}
}

func empty(document []byte) bool {
	var content any
	return strict.Unmarshal(document, &content) == nil && content == nil
}
