package helm_test

import (
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/deploy/internal/manifest"
)

// render renders the chart for a release with values as -f reads them, and decodes what comes out.
func render(t *testing.T, release, values string) ([]any, error) {
	t.Helper()
	chart, err := loader.LoadDir("tenure")
	require.NoError(t, err)
	require.NoError(t, chart.Validate())
	given, err := chartutil.ReadValues([]byte(values))
	require.NoError(t, err)
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: release, Namespace: "default", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	kinds := manifest.Kubernetes()
	kinds["monitoring.coreos.com/v1 ServiceMonitor"] = func() any { return new(monitoringv1.ServiceMonitor) }
	kinds["monitoring.coreos.com/v1 PrometheusRule"] = func() any { return new(monitoringv1.PrometheusRule) }
	var objects []any
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(path) == ".yaml" {
			decoded, err := kinds.Decode([]byte(files[path]))
			require.NoError(t, err, path)
			objects = append(objects, decoded...)
		}
	}
	check(t, objects)
	return objects, nil
}

// rendered are the objects of values that are right.
func rendered(t *testing.T, release, values string) []any {
	t.Helper()
	objects, err := render(t, release, values)
	require.NoError(t, err)
	return objects
}

// pod is the template of the pods.
func pod(t *testing.T, objects []any) corev1.PodTemplateSpec {
	t.Helper()
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			return o.Spec.Template
		case *appsv1.StatefulSet:
			return o.Spec.Template
		}
	}
	require.Fail(t, "no pods")
	return corev1.PodTemplateSpec{}
}

// find returns the object of a type and name, or nil.
func find[T metav1.Object](objects []any, name string) (found T) {
	for _, object := range objects {
		if o, ok := object.(T); ok && o.GetName() == name {
			return o
		}
	}
	return found
}

// check holds what is right of every rendering: names and labels are valid, no two objects are one,
// selectors find the pods, and what a pod names is there.
func check(t *testing.T, objects []any) {
	t.Helper()
	template := pod(t, objects)
	selects := func(selector map[string]string) {
		require.NotEmpty(t, selector)
		for label, value := range selector {
			if label != "tenure.dev/leader" {
				require.Equal(t, value, template.Labels[label], label)
			}
		}
	}
	names := make(map[string]bool)
	for _, object := range objects {
		o := object.(metav1.Object)
		kind := jsonOf(t, object)["kind"].(string)
		require.Empty(t, validation.IsDNS1123Subdomain(o.GetName()), "%s %s", kind, o.GetName())
		require.False(t, names[kind+" "+o.GetName()], "%s %s is there twice", kind, o.GetName())
		names[kind+" "+o.GetName()] = true
		for label, value := range o.GetLabels() {
			require.Empty(t, validation.IsQualifiedName(label), label)
			require.Empty(t, validation.IsValidLabelValue(value), "%s=%s", label, value)
		}
		switch o := object.(type) {
		case *corev1.Service:
			selects(o.Spec.Selector)
			require.Empty(t, validation.IsDNS1035Label(o.Name))
		case *appsv1.Deployment:
			selects(o.Spec.Selector.MatchLabels)
		case *appsv1.StatefulSet:
			selects(o.Spec.Selector.MatchLabels)
			require.Equal(t, appsv1.ParallelPodManagement, o.Spec.PodManagementPolicy)
			require.NotNil(t, find[*corev1.Service](objects, o.Spec.ServiceName), "the Service of the names")
		}
	}
	for label, value := range template.Labels {
		require.Empty(t, validation.IsQualifiedName(label), label)
		require.Empty(t, validation.IsValidLabelValue(value), "%s=%s", label, value)
	}
	container := template.Spec.Containers[0]
	require.Empty(t, validation.IsDNS1123Label(container.Name))
	if name := template.Spec.ServiceAccountName; name != "default" && name != "there" {
		require.True(t, names["ServiceAccount "+name], name)
	}
	for _, from := range container.EnvFrom {
		if from.ConfigMapRef != nil {
			require.True(t, names["ConfigMap "+from.ConfigMapRef.Name])
		} else if from.SecretRef.Name != "there" {
			require.True(t, names["Secret "+from.SecretRef.Name])
		}
	}
	seen := make(map[string]bool)
	for _, variable := range container.Env {
		require.Empty(t, validation.IsEnvVarName(variable.Name))
		require.False(t, seen[variable.Name], "%s is there twice", variable.Name)
		seen[variable.Name] = true
	}
	id := slices.IndexFunc(container.Env, func(v corev1.EnvVar) bool { return strings.HasSuffix(v.Name, "_INSTANCE_ID") })
	require.Equal(t, "metadata.name", container.Env[id].ValueFrom.FieldRef.FieldPath)
}

func jsonOf(t *testing.T, object any) (fields map[string]any) {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &fields))
	return fields
}

// shop are the values with which the chart makes what is in ../kubernetes.
const shop = `
image: {repository: example.com/shop, tag: 1.0.0}
envPrefix: SHOP
redis: {host: redis, username: shop}
secrets: {SHOP_REDIS_PASSWORD: change-me, SHOP_ADMIN_TOKEN: change-me-too}
leaderService: {enabled: true}
networkPolicy: {enabled: true, redisSelector: {app.kubernetes.io/name: redis}}
`

// TestChartMakesTheManifests: with the values of the shop the chart makes what is in ../kubernetes,
// but for what it adds: labels of Helm, checksums, and how images are pulled.
func TestChartMakesTheManifests(t *testing.T) {
	paths, err := filepath.Glob("../kubernetes/*.yaml")
	require.NoError(t, err)
	want := make(map[string]map[string]any)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		objects, err := manifest.Kubernetes().Decode(text)
		require.NoError(t, err)
		for _, object := range objects {
			fields := jsonOf(t, object)
			want[fields["kind"].(string)+" "+object.(metav1.Object).GetName()] = own(fields).(map[string]any)
		}
	}
	require.Greater(t, len(want), 10)
	made := make(map[string]bool)
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		for _, object := range rendered(t, "shop", shop+"kind: "+kind) {
			fields := jsonOf(t, object)
			name := fields["kind"].(string) + " " + object.(metav1.Object).GetName()
			require.Equal(t, want[name], own(fields), name)
			made[name] = true
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(made)))
}

// own leaves out what the chart adds.
func own(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch key {
			case "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart", "checksum/config", "checksum/secrets", "imagePullPolicy":
				delete(v, key)
			default:
				v[key] = own(inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = own(v[i])
		}
	}
	return value
}

// TestDefaults: as they are, the values have the probes, ports and waits of ../kubernetes, a config
// that tenure takes, and no right.
func TestDefaults(t *testing.T) {
	objects := rendered(t, "orders", "")
	template := pod(t, objects)
	same := pod(t, rendered(t, "orders", shop))
	require.Equal(t, same.Spec.TerminationGracePeriodSeconds, template.Spec.TerminationGracePeriodSeconds)
	c, s := template.Spec.Containers[0], same.Spec.Containers[0]
	require.Equal(t, s.Ports, c.Ports)
	require.Equal(t, s.LivenessProbe, c.LivenessProbe)
	require.Equal(t, s.ReadinessProbe, c.ReadinessProbe)
	require.Equal(t, s.StartupProbe, c.StartupProbe)
	require.Equal(t, s.Lifecycle, c.Lifecycle)
	require.Equal(t, s.SecurityContext, c.SecurityContext)
	require.False(t, *template.Spec.AutomountServiceAccountToken)
	require.Equal(t, map[string]string{
		"TENURE_NAMESPACE": "orders", "TENURE_REDIS_HOST": "redis", "TENURE_LEASE_TTL": "30s", "TENURE_SHUTDOWN_TIMEOUT": "20s",
	}, find[*corev1.ConfigMap](objects, "orders").Data)
	require.Equal(t, tenure.EnvElect, taken(t, objects, "TENURE").Mode)
	require.Equal(t, 20*time.Second, taken(t, rendered(t, "shop", shop), "SHOP").Options.ShutdownTimeout)
	for _, object := range objects {
		kind := jsonOf(t, object)["kind"]
		require.NotContains(t, []string{"Role", "RoleBinding", "Secret", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"}, kind)
	}
}

// taken is what tenure reads from the variables of the config map, and from the Secrets that are
// mounted.
func taken(t *testing.T, objects []any, prefix string) tenure.EnvOptions {
	t.Helper()
	root := mount(t, pod(t, objects).Spec)
	for _, object := range objects {
		if config, ok := object.(*corev1.ConfigMap); ok {
			for name, value := range config.Data {
				if strings.HasSuffix(name, "_FILE") {
					value = filepath.Join(root, value)
				}
				t.Setenv(name, value)
			}
		}
	}
	env, err := tenure.OptionsFromEnv(prefix)
	require.NoError(t, err)
	require.NotNil(t, env.Redis)
	require.NoError(t, env.Redis.Close())
	return env
}

// mount makes a folder with the Secrets that the container of a pod sees. Each key has a
// certificate, which is a password, too.
func mount(t *testing.T, spec corev1.PodSpec) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	root := t.TempDir()
	for _, mounted := range spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mounted.Name })
		require.NotEqual(t, -1, i, "no volume %s", mounted.Name)
		if spec.Volumes[i].Projected == nil {
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Join(root, mounted.MountPath), 0o700))
		require.Empty(t, mounted.SubPath, "a file of its own would not be replaced")
		for _, source := range spec.Volumes[i].Projected.Sources {
			for _, item := range source.Secret.Items {
				require.NoError(t, os.WriteFile(filepath.Join(root, mounted.MountPath, item.Path), text, 0o600))
			}
		}
	}
	return root
}

// TestGraceAddsUp: whatever the parts are, the pod is killed after their sum.
func TestGraceAddsUp(t *testing.T) {
	for _, c := range []struct {
		values string
		want   int64
	}{
		{"shutdown: {preStopSeconds: 10, requestSeconds: 30, timeoutSeconds: 300}", 343},
		{"shutdown: {preStopSeconds: 0, requestSeconds: 0, timeoutSeconds: 1, spareSeconds: 1}", 2},
		{"http: {enabled: false}", 23},
		{"run: {enabled: true, command: [x]}", 23},
	} {
		require.Equal(t, c.want, *pod(t, rendered(t, "a", c.values)).Spec.TerminationGracePeriodSeconds, c.values)
	}
}

// TestReplicasOfAnAutoscaler: it says how many there are, and a deploy does not set them back.
func TestReplicasOfAnAutoscaler(t *testing.T) {
	require.Nil(t, find[*appsv1.Deployment](rendered(t, "shop", "replicas: null"), "shop").Spec.Replicas)
	require.Nil(t, find[*appsv1.StatefulSet](rendered(t, "shop", "replicas: null\nkind: StatefulSet"), "shop").Spec.Replicas)
	require.Equal(t, int32(0), *find[*appsv1.Deployment](rendered(t, "shop", "replicas: 0"), "shop").Spec.Replicas)
}

// TestServiceWithTLSOfItsOwn: who asks it for its health or its metrics does so with TLS, as do
// instances that forward to the leader.
func TestServiceWithTLSOfItsOwn(t *testing.T) {
	own := "http: {scheme: HTTPS}\nprobes: {startSeconds: 120}\nmaxSurge: 25%\n"
	objects := rendered(t, "shop", own)
	template := pod(t, objects)
	c := template.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		require.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme)
	}
	require.Equal(t, "https", template.Annotations["prometheus.io/scheme"])
	for _, variable := range c.Env {
		if variable.ValueFrom == nil {
			t.Setenv(variable.Name, variable.Value)
		} else if variable.ValueFrom.FieldRef.FieldPath == "status.podIP" {
			t.Setenv(variable.Name, "fd00::7")
		}
	}
	require.Equal(t, "https://[fd00::7]:8080", taken(t, objects, "TENURE").Options.Registry.Address, "where others forward to")
	require.Equal(t, int32(120), c.StartupProbe.FailureThreshold*c.StartupProbe.PeriodSeconds)
	require.Equal(t, "25%", find[*appsv1.Deployment](objects, "shop").Spec.Strategy.RollingUpdate.MaxSurge.String())

	objects = rendered(t, "shop", own+"metrics: {serviceMonitor: {enabled: true, tlsConfig: {insecureSkipVerify: true}}}")
	endpoint := find[*monitoringv1.ServiceMonitor](objects, "shop").Spec.Endpoints[0]
	text, err := json.Marshal(endpoint)
	require.NoError(t, err)
	require.Contains(t, string(text), `"scheme":"https"`)
	require.Contains(t, string(text), `"insecureSkipVerify":true`)
}

// TestRenderings: values of many kinds make manifests that Kubernetes takes.
func TestRenderings(t *testing.T) {
	for name, values := range map[string]string{
		"statefulset":    "kind: StatefulSet",
		"no http":        "http: {enabled: false}\nkind: StatefulSet",
		"bare":           "podDisruptionBudget: {enabled: false}\nserviceAccount: {create: false}\nmetrics: {annotations: false}\nresources: null\nhttp: {enabled: false}",
		"account":        "serviceAccount: {create: false, name: there}\nleaderService: {enabled: true}",
		"annotated":      `serviceAccount: {annotations: {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}}`,
		"secret":         "existingSecret: there",
		"password":       "redis: {host: redis, port: 6380, db: 3, tls: true, passwordSecret: {name: redis}}",
		"authority":      "redis: {url: 'rediss://shop@redis:6380', passwordSecret: {name: redis}, caSecret: {name: private, key: tls.crt}}\nextraVolumes: [{name: tmp, emptyDir: {}}]\nextraVolumeMounts: [{name: tmp, mountPath: /tmp}]",
		"url":            "redis: {url: 'rediss://shop@redis:6380/1?master_name=main'}",
		"url secret":     "redis: {urlSecret: {name: redis, key: url}, cluster: true}\nnamespace: '{shop}'",
		"digest":         "image: {repository: r/x, digest: 'sha256:" + strings.Repeat("0a", 32) + "'}",
		"long tag":       "image: {repository: r/x, tag: '" + strings.Repeat("v.", 64) + "'}",
		"budget":         "podDisruptionBudget: {maxUnavailable: 50%}",
		"monitor":        "metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}, prometheusRule: {enabled: true, labels: {release: prometheus}}}",
		"scheduling":     "nodeSelector: {a: b}\ntolerations: [{operator: Exists}]\naffinity: {nodeAffinity: {}}\ntopologySpreadConstraints: [{maxSkew: 1, topologyKey: k, whenUnsatisfiable: DoNotSchedule}]\nimagePullSecrets: [{name: registry}]",
		"volumes":        "extraVolumes: [{name: tmp, emptyDir: {}}]\nextraVolumeMounts: [{name: tmp, mountPath: /tmp}]",
		"labels":         `{podLabels: {team: a}, podAnnotations: {"example.com/x": "y: z\n# {{ }}"}}`,
		"settings":       "settings: {WORKER_COUNT: 1000000, SPREAD: true, METADATA: 'zone=a,rack=b', PRIORITY: -3}\nrole: export\nroles: [api, worker]",
		"number of name": "fullnameOverride: n1",
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, "shop", values)
			c := pod(t, objects).Spec.Containers[0]
			switch name {
			case "url":
				taken(t, objects, "TENURE")
			case "settings":
				require.Equal(t, 1000000, taken(t, objects, "TENURE").Options.Registry.WorkerCount)
				config := find[*corev1.ConfigMap](objects, "shop").Data
				require.Equal(t, "1000000", config["TENURE_WORKER_COUNT"])
				require.Equal(t, "-3", config["TENURE_PRIORITY"])
				require.Equal(t, "true", config["TENURE_SPREAD"])
				require.Equal(t, "api,worker", config["TENURE_ROLES"])
				require.Equal(t, "export", config["TENURE_ROLE"])
			case "authority":
				taken(t, objects, "TENURE")
				require.Len(t, c.VolumeMounts, 2)
				sources := pod(t, objects).Spec.Volumes[1].Projected.Sources
				require.Equal(t, []string{"redis", "redis-password", "private", "tls.crt"}, []string{
					sources[0].Secret.Name, sources[0].Secret.Items[0].Key, sources[1].Secret.Name, sources[1].Secret.Items[0].Key,
				})
			case "password":
				taken(t, objects, "TENURE")
				require.False(t, slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return strings.Contains(v.Name, "PASSWORD") }), "it would not follow a rotation")
				config := find[*corev1.ConfigMap](objects, "shop").Data
				require.Equal(t, []string{"6380", "3", "true"}, []string{config["TENURE_REDIS_PORT"], config["TENURE_REDIS_DB"], config["TENURE_REDIS_TLS"]})
			case "url secret":
				for variable := range find[*corev1.ConfigMap](objects, "shop").Data {
					require.True(t, variable == "TENURE_REDIS_CLUSTER" || !strings.Contains(variable, "REDIS"), "%s beside a URL is refused", variable)
				}
			case "digest":
				require.Equal(t, "r/x@sha256:"+strings.Repeat("0a", 32), c.Image)
			case "monitor":
				monitored(t, objects)
			}
		})
	}
	for _, release := range []string{"null", "true", strings.Repeat("a", 53), strings.Repeat("a", 49) + "-bcd", strings.Repeat("a", 48) + "--bcd"} {
		for _, kind := range []string{"Deployment", "StatefulSet"} {
			rendered(t, release, shop+"kind: "+kind)
			rendered(t, "1.e3", shop+"fullnameOverride: shop\nkind: "+kind)
		}
	}
}

// monitored: a ServiceMonitor scrapes each pod once, and the rules are those of ../prometheus.
func monitored(t *testing.T, objects []any) {
	monitor := find[*monitoringv1.ServiceMonitor](objects, "shop")
	services := 0
	for _, object := range objects {
		if service, ok := object.(*corev1.Service); ok {
			found := true
			for label, value := range monitor.Spec.Selector.MatchLabels {
				found = found && service.Labels[label] == value
			}
			if found {
				services++
				require.Equal(t, service.Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
			}
		}
	}
	require.Equal(t, 1, services)
	require.Equal(t, "prometheus", monitor.Labels["release"])
	require.NotContains(t, pod(t, objects).Annotations, "prometheus.io/scrape", "it would be scraped twice")
	rules := find[*monitoringv1.PrometheusRule](objects, "shop")
	require.Equal(t, "prometheus", rules.Labels["release"])
	require.Contains(t, rules.Spec.Groups[0].Rules[0].Annotations["summary"], "$labels.namespace }}")
}

// TestRulesAreThoseOfPrometheus: a chart has no files of its neighbours. TENURE_UPDATE=1 copies
// them.
func TestRulesAreThoseOfPrometheus(t *testing.T) {
	const path = "tenure/files/tenure.rules.yml"
	want, err := os.ReadFile("../prometheus/tenure.rules.yml")
	require.NoError(t, err)
	if os.Getenv("TENURE_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, want, 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(text), "TENURE_UPDATE=1 go test ./deploy/helm copies it")
	objects := rendered(t, "shop", "metrics: {prometheusRule: {enabled: true}}")
	rules := 0
	for _, group := range find[*monitoringv1.PrometheusRule](objects, "shop").Spec.Groups {
		rules += len(group.Rules)
	}
	require.Equal(t, strings.Count(string(want), "- alert:"), rules)
}

// TestNetworkPolicy: it selects what the values say, and nothing more. It shuts the service out of
// no port that a URL may name.
func TestNetworkPolicy(t *testing.T) {
	const policy = "networkPolicy: {enabled: true, redisSelector: {app: cache}}\nredis: "
	of := func(redis string) networkingv1.NetworkPolicySpec {
		return find[*networkingv1.NetworkPolicy](rendered(t, "shop", policy+redis), "shop-redis").Spec
	}
	spec := of("{host: redis, port: 6380}")
	require.Equal(t, map[string]string{"app": "cache"}, spec.PodSelector.MatchLabels)
	require.Len(t, spec.Ingress, 2)
	require.Len(t, spec.Ingress[0].Ports, 1)
	require.Equal(t, 6380, spec.Ingress[0].Ports[0].Port.IntValue())
	for _, redis := range []string{"{url: 'redis://redis:6380'}", "{url: 'redis://sentinel:26379?master_name=main'}", "{urlSecret: {name: redis}}"} {
		spec := of(redis)
		require.Len(t, spec.Ingress, 2, redis)
		require.NotEmpty(t, spec.Ingress[0].From, redis)
		require.Empty(t, spec.Ingress[0].Ports, redis)
	}
}

// TestRedisOfSeveralPods: the policy does not cut the pods of Redis off from each other: replicas
// follow a master, Sentinels ask both, and nodes of a Cluster talk on a second port.
func TestRedisOfSeveralPods(t *testing.T) {
	for _, values := range []string{
		"redis: {url: 'redis://sentinel:26379?master_name=main'}", "redis: {host: redis}",
		"redis: {host: redis, cluster: true}\nnamespace: '{shop}'",
	} {
		policy := find[*networkingv1.NetworkPolicy](rendered(t, "shop", "networkPolicy: {enabled: true, redisSelector: {app: cache}}\n"+values), "shop-redis")
		service := map[string]string{"app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": "shop"}
		for _, port := range []int{6379, 16379, 26379} {
			require.True(t, admits(policy, map[string]string{"app": "cache", "role": "replica"}, port), "%s: %d", values, port)
			require.False(t, admits(policy, map[string]string{"app": "other"}, port), "%s: %d", values, port)
		}
		require.True(t, admits(policy, service, 6379), values)
	}
}

// admits reports whether a policy lets a pod of the same namespace with these labels in.
func admits(policy *networkingv1.NetworkPolicy, labels map[string]string, port int) bool {
	return slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
		from := slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
			for label, value := range peer.PodSelector.MatchLabels {
				if labels[label] != value {
					return false
				}
			}
			return true
		})
		return from && (len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntValue() == port }))
	})
}

// TestNumbers: a number arrives as it is written.
func TestNumbers(t *testing.T) {
	config := find[*corev1.ConfigMap](rendered(t, "shop", "env: {A: 9007199254740991, B: '9007199254740993', C: -9007199254740991}"), "shop").Data
	require.Equal(t, []string{"9007199254740991", "9007199254740993", "-9007199254740991"}, []string{config["A"], config["B"], config["C"]})
}

// TestRun: any program under tenure run, which takes part under the name of the pod.
func TestRun(t *testing.T) {
	template := pod(t, rendered(t, "reports", "run: {enabled: true, args: [--restart, always], command: [python3, 'a \"b\" $(X).py']}\nrole: reports\nenvPrefix: SHOP"))
	c := template.Spec.Containers[0]
	require.Equal(t, []string{"tenure", "run", "--restart", "always", "--", "python3", `a "b" $(X).py`}, c.Command)
	require.Equal(t, []string{"tenure", "healthcheck", "--timeout", "4s"}, c.ReadinessProbe.Exec.Command)
	require.Nil(t, c.LivenessProbe, "a restart does not help if Redis is down")
	require.Empty(t, c.Ports)
	require.Equal(t, "TENURE_INSTANCE_ID", c.Env[0].Name, "whatever envPrefix is")
}

// TestHostileValues: quotes, line ends and templates are values and nothing else.
func TestHostileValues(t *testing.T) {
	for _, hostile := range []string{
		"a\"\n  SHOP_EVIL: \"1", "'\n---\nkind: Pod", "{{ .Values.secrets }}", "a: b # c", "\\\"", "<&>\u2028\t", "yes", "0x10", "null", "- a", "!!binary aGk=", "*a", "",
	} {
		values, err := json.Marshal(map[string]any{
			"envPrefix": "SHOP", "secrets": map[string]any{"SHOP_ADMIN_TOKEN": hostile}, "env": map[string]any{"X": hostile},
			"settings": map[string]any{"METADATA": hostile}, "redis": map[string]any{"username": "a" + hostile, "host": "h" + hostile},
			"image": map[string]any{"repository": "r" + hostile, "tag": "1"}, "podAnnotations": map[string]any{"a": hostile},
			"probes": map[string]any{"live": "/" + hostile}, "run": map[string]any{"args": []string{hostile}}, "imagePullSecrets": []any{},
			"serviceAccount": map[string]any{"annotations": map[string]any{"a": hostile}},
		})
		require.NoError(t, err)
		objects := rendered(t, "shop", string(values))
		config, secret := find[*corev1.ConfigMap](objects, "shop"), find[*corev1.Secret](objects, "shop")
		require.Equal(t, map[string]string{
			"SHOP_NAMESPACE": "shop", "SHOP_REDIS_HOST": "h" + hostile, "SHOP_REDIS_USERNAME": "a" + hostile, "SHOP_LEASE_TTL": "30s", "SHOP_SHUTDOWN_TIMEOUT": "20s",
			"SHOP_METADATA": hostile, "X": hostile,
		}, config.Data)
		require.Equal(t, map[string]string{"SHOP_ADMIN_TOKEN": hostile}, secret.StringData)
		template := pod(t, objects)
		require.Equal(t, "r"+hostile+":1", template.Spec.Containers[0].Image)
		require.Equal(t, "/"+hostile, template.Spec.Containers[0].LivenessProbe.HTTPGet.Path)
		require.Equal(t, hostile, template.Annotations["a"])
		require.Equal(t, hostile, find[*corev1.ServiceAccount](objects, "shop").Annotations["a"])
	}
}

// TestValuesOfTheDocs: the examples of docs/kubernetes.md are values that the chart takes, and
// tenure takes what it makes of them.
func TestValuesOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 2)
	taken(t, rendered(t, "orders", blocks[0][1]), "ORDERS")
	objects := rendered(t, "reports", blocks[1][1])
	taken(t, objects, "TENURE")
	spec := pod(t, objects).Spec
	program := spec.Containers[0]
	require.True(t, *program.SecurityContext.ReadOnlyRootFilesystem)
	file := program.Command[len(program.Command)-1]
	require.True(t, slices.ContainsFunc(program.VolumeMounts, func(m corev1.VolumeMount) bool {
		return !m.ReadOnly && strings.HasPrefix(file, m.MountPath+"/")
	}), "it cannot write to %s", file)
	require.NotNil(t, spec.SecurityContext.FSGroup, "a volume is root's")
}

// TestPodsOfSomeUser: of the numbers that are given, and never root.
func TestPodsOfSomeUser(t *testing.T) {
	given := pod(t, rendered(t, "shop", "podSecurityContext: {runAsUser: 1000650000, runAsGroup: 0, fsGroup: 1000650001, supplementalGroups: [7, 1000650002], fsGroupChangePolicy: OnRootMismatch}")).Spec.SecurityContext
	user, group, files, policy := int64(1000650000), int64(0), int64(1000650001), corev1.FSGroupChangeOnRootMismatch
	want := *pod(t, rendered(t, "shop", "")).Spec.SecurityContext
	require.True(t, *want.RunAsNonRoot)
	want.RunAsUser, want.RunAsGroup, want.FSGroup, want.SupplementalGroups, want.FSGroupChangePolicy = &user, &group, &files, []int64{7, 1000650002}, &policy
	require.Equal(t, want, *given)
}

// TestRefusals: what would not work is refused before it is installed, with the name of the value.
func TestRefusals(t *testing.T) {
	for values, want := range map[string]string{
		"imgae: {}":                                       "imgae",
		"kind: DaemonSet":                                 "kind",
		"envPrefix: shop":                                 "envPrefix",
		"namespace: 'a b'":                                "namespace",
		"fullnameOverride: 'a\"b'":                        "fullnameOverride",
		"settings: {LEASE_TLL: 3s}":                       "LEASE_TLL",
		"settings: {NAMESPACE: b}":                        "NAMESPACE",
		"env: {\"A\\n  B\": c}":                           "does not match pattern",
		"env: {TENURE_NAMESPACE: other}":                  "TENURE_NAMESPACE",
		"env: {TENURE_INSTANCE_ID: one-for-all}":          "TENURE_INSTANCE_ID",
		"redis: {host: ''}":                               "redis.host",
		"redis: {url: 'redis://:secret@redis'}":           "url",
		"redis: {url: 'redis://a:secret@redis'}":          "url",
		"redis: {url: http://redis}":                      "url",
		"redis: {url: 'redis://r', urlSecret: {name: a}}": "urlSecret",
		"redis: {url: 'redis://r', tls: true}":            "neither redis.tls",
		"redis: {url: 'rediss://r', username: a}":         "nor redis.username",
		"redis: {urlSecret: {name: a}, db: 1}":            "nor redis.db",
		"redis: {caSecret: {name: a}}":                    "redis.caSecret is for TLS",
		"redis: {url: 'redis://r', caSecret: {name: a}}":  "redis.caSecret is for TLS",
		"redis: {passwordSecret: {name: a}}\nsecrets: {TENURE_REDIS_PASSWORD: b}": "secrets.TENURE_REDIS_PASSWORD: redis.passwordSecret is there, too",
		"podLabels: {app.kubernetes.io/name: other}":                              "app.kubernetes.io/name",
		"podLabels: {tenure.dev/leader: 'true'}":                                  "tenure.dev/leader",
		"podAnnotations: {checksum/config: x}":                                    "checksum/config",
		"run: {enabled: true}":                                                    "run.command",
		"run: {enabled: true, command: [x]}\nleaderService: {enabled: true}":      "leaderService",
		"http: {enabled: false}\nmetrics: {serviceMonitor: {enabled: true}}":      "serviceMonitor",
		"podSecurityContext: {runAsUser: 0}":                                      "runAsUser",
		"podSecurityContext: {runAsNonRoot: false}":                               "runAsNonRoot",
		"shutdown: {timeoutSeconds: 0}":                                           "timeoutSeconds",
		"shutdown: {spareSeconds: 0}":                                             "spareSeconds",
		"image: {tag: 'a b'}":                                                     "tag",
		"replicas: -1":                                                            "replicas",
		"secrets: {A: 1}":                                                         "secrets",
		"env: {SHOP: 9007199254740993}":                                           "env.SHOP: Helm loses digits",
		"settings: {PRIORITY: -9007199254740993}":                                 "settings.PRIORITY: Helm loses digits",
		"env: {TENURE_ADDRESS_HOST: other}":                                       "TENURE_ADDRESS_HOST",
		"env: {TENURE_ADDRESS_SCHEME: https}":                                     "TENURE_ADDRESS_SCHEME",
		"networkPolicy: {enabled: true}":                                          "networkPolicy.redisSelector",
		"redis: {cluster: true}":                                                  `namespace "shop": a Redis Cluster needs a hash tag in it, so that its keys share a slot. Set namespace: "{shop}"`,
		"maxSurge: 0":                                                             "maxSurge",
		"http: {scheme: https}":                                                   "scheme",
		"probes: {startSeconds: 0}":                                               "startSeconds",
		"redis: {db: 9007199254740993}":                                           "db",
		"podAnnotations: {a: \"x\\x85y\"}":                                        "podAnnotations: a text has a control character",
		"secrets: {A: \"\\x7f\"}":                                                 "secrets: a text has a control character",
		"extraVolumes: [{name: \"\\u009f\"}]":                                     "extraVolumes: a text has a control character",
	} {
		_, err := render(t, "shop", values)
		require.ErrorContains(t, err, want, values)
	}
	for _, release := range []string{"1", "1e3", "a.b", "4-shop"} {
		_, err := render(t, release, "")
		require.ErrorContains(t, err, "fullnameOverride")
	}
}

// TestSchemaIsComplete: it has every value, and as settings the variables of OptionsFromEnv that
// the chart does not set itself.
func TestSchemaIsComplete(t *testing.T) {
	text, err := os.ReadFile("tenure/values.schema.json")
	require.NoError(t, err)
	var schema map[string]any
	require.NoError(t, json.Unmarshal(text, &schema))
	values, err := chartutil.ReadValuesFile("tenure/values.yaml")
	require.NoError(t, err)
	var compare func(path string, schema map[string]any, values map[string]any)
	compare = func(path string, schema, values map[string]any) {
		properties, fixed := schema["properties"].(map[string]any)
		if !fixed {
			return // a map of any names
		}
		require.Equal(t, false, schema["additionalProperties"], path)
		for name, property := range properties {
			if name == "global" {
				continue // Helm's own
			}
			value, there := values[name]
			require.True(t, there, "values.yaml has no %s%s", path, name)
			if inner, ok := value.(map[string]any); ok {
				compare(path+name+".", property.(map[string]any), inner)
			}
		}
	}
	compare("", schema, values)

	env, err := os.ReadFile("../../env.go")
	require.NoError(t, err)
	var want []string
	for _, found := range regexp.MustCompile(`\be\.(?:text|duration|number|integer|flag|flagOr|list|pairs)\("([A-Z_]+)"`).FindAllStringSubmatch(string(env), -1) {
		set := slices.Contains([]string{"NAMESPACE", "ROLE", "ROLES", "INSTANCE_ID", "ADDRESS", "ADDRESS_HOST", "ADDRESS_PORT", "ADDRESS_SCHEME", "VERSION", "SHUTDOWN_TIMEOUT"}, found[1])
		if !set && !strings.HasPrefix(found[1], "REDIS_") && !slices.Contains(want, found[1]) {
			want = append(want, found[1])
		}
	}
	var settings []string
	for _, name := range schema["properties"].(map[string]any)["settings"].(map[string]any)["propertyNames"].(map[string]any)["enum"].([]any) {
		settings = append(settings, name.(string))
	}
	require.ElementsMatch(t, want, settings)
}
