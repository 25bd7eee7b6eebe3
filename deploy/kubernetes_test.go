package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/tenure-go/tenure/deploy/internal/manifest"
)

// manifests decodes every document of kubernetes/: an unknown field, or one that is there twice, is
// an error.
func manifests(t *testing.T) (all []any) {
	paths, err := filepath.Glob("kubernetes/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		objects, err := manifest.Kubernetes().Decode(text)
		require.NoError(t, err, path)
		all = append(all, objects...)
	}
	return all
}

// pods are the pod templates, by the kind of what makes them.
func pods(t *testing.T) map[string]corev1.PodTemplateSpec {
	found := make(map[string]corev1.PodTemplateSpec)
	for _, object := range manifests(t) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			require.Equal(t, o.Spec.Selector.MatchLabels["app.kubernetes.io/name"], o.Spec.Template.Labels["app.kubernetes.io/name"])
			found["Deployment"] = o.Spec.Template
		case *appsv1.StatefulSet:
			require.Equal(t, appsv1.ParallelPodManagement, o.Spec.PodManagementPolicy)
			require.Equal(t, o.Spec.Selector.MatchLabels["app.kubernetes.io/name"], o.Spec.Template.Labels["app.kubernetes.io/name"])
			found["StatefulSet"] = o.Spec.Template
		}
	}
	require.Len(t, found, 2)
	require.Equal(t, found["Deployment"], found["StatefulSet"], "the pods of both are the same")
	return found
}

// TestPods: the ID is the name of the pod, the probes are the handler's, and the grace periods add
// up.
func TestPods(t *testing.T) {
	settings := config(t)
	for kind, pod := range pods(t) {
		c := pod.Spec.Containers[0]
		from := make(map[string]string)
		for _, env := range c.Env {
			if env.ValueFrom != nil {
				from[env.Name] = env.ValueFrom.FieldRef.FieldPath
			}
		}
		require.Equal(t, "metadata.name", from["SHOP_INSTANCE_ID"], kind)
		require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
		require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path)
		require.Equal(t, "/livez", c.StartupProbe.HTTPGet.Path)
		port := c.LivenessProbe.HTTPGet.Port.StrVal
		require.True(t, slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port }))
		shutdown, err := time.ParseDuration(settings["SHOP_SHUTDOWN_TIMEOUT"])
		require.NoError(t, err)
		const grace = 4 * time.Second // of tenurehttp.Service
		stop := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + grace + shutdown
		require.Less(t, stop, time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second, kind)
		require.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
	}
}

// config is the config map.
func config(t *testing.T) map[string]string {
	for _, object := range manifests(t) {
		if c, ok := object.(*corev1.ConfigMap); ok {
			return c.Data
		}
	}
	t.Fatal("no ConfigMap")
	return nil
}

// TestReferences: what a manifest names is there, and every selector finds the pods.
func TestReferences(t *testing.T) {
	labels := pods(t)["Deployment"].Labels
	names := make(map[string]bool)
	for _, object := range manifests(t) {
		switch o := object.(type) {
		case *corev1.Service:
			names["Service "+o.Name] = true
			for label, value := range o.Spec.Selector {
				if label != "tenure.dev/leader" { // examples/shop sets it
					require.Equal(t, labels[label], value, o.Name)
				}
			}
			for _, port := range o.Spec.Ports {
				require.Equal(t, "http", port.TargetPort.StrVal, o.Name)
			}
		case *corev1.ServiceAccount:
			names["ServiceAccount "+o.Name] = true
		case *corev1.ConfigMap:
			names["ConfigMap "+o.Name] = true
		case *corev1.Secret:
			names["Secret "+o.Name] = true
		case *policyv1.PodDisruptionBudget:
			require.Equal(t, labels["app.kubernetes.io/name"], o.Spec.Selector.MatchLabels["app.kubernetes.io/name"])
			require.Equal(t, policyv1.AlwaysAllow, *o.Spec.UnhealthyPodEvictionPolicy)
		}
	}
	for _, pod := range pods(t) {
		require.True(t, names["ServiceAccount "+pod.Spec.ServiceAccountName])
		for _, from := range pod.Spec.Containers[0].EnvFrom {
			if from.ConfigMapRef != nil {
				require.True(t, names["ConfigMap "+from.ConfigMapRef.Name])
			} else {
				require.True(t, names["Secret "+from.SecretRef.Name])
			}
		}
	}
	for _, object := range manifests(t) {
		if o, ok := object.(*appsv1.StatefulSet); ok {
			require.True(t, names["Service "+o.Spec.ServiceName])
		}
	}
	label, err := os.ReadFile("../examples/shop/podlabel.go")
	require.NoError(t, err)
	require.Contains(t, string(label), strconv.Quote("tenure.dev/leader"))
}

// TestVariables: the variables of the manifests are those that the service reads.
func TestVariables(t *testing.T) {
	env, err := os.ReadFile("../env.go")
	require.NoError(t, err)
	own := []string{"SHOP_POD", "SHOP_ADMIN_TOKEN"}
	check := func(name string) {
		if !slices.Contains(own, name) {
			require.Contains(t, string(env), strings.TrimPrefix(name, "SHOP_"), name)
		}
	}
	for name := range config(t) {
		check(name)
	}
	for _, pod := range pods(t) {
		for _, variable := range pod.Spec.Containers[0].Env {
			check(variable.Name)
		}
	}
}
