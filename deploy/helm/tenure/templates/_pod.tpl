{{/* The pods of a Deployment and of a StatefulSet are the same. */}}
{{- define "tenure.pod" -}}
{{- $prefix := include "tenure.prefix" . -}}
{{- $http := include "tenure.http" . -}}
{{- $scheme := ternary ", scheme: HTTPS" "" (eq .Values.http.scheme "HTTPS") -}}
metadata:
  labels:
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- include "tenure.selector" . | nindent 4 }}
    app.kubernetes.io/version: {{ include "tenure.version" . | toJson }}
  annotations:
    checksum/config: {{ include "tenure.config" . | sha256sum }}
    checksum/secrets: {{ .Values.secrets | toJson | sha256sum }}
    {{- if and $http .Values.metrics.annotations (not .Values.metrics.serviceMonitor.enabled) }}
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ .Values.http.port | int64 | toString | toJson }}
    {{- if ne .Values.metrics.path "/metrics" }}
    prometheus.io/path: {{ .Values.metrics.path | toJson }}
    {{- end }}
    {{- if eq .Values.http.scheme "HTTPS" }}
    prometheus.io/scheme: https
    {{- end }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "tenure.serviceAccount" . | toJson }}
  {{- if not (or .Values.leaderService.enabled .Values.serviceAccount.mountToken) }}
  automountServiceAccountToken: false
  {{- end }}
  terminationGracePeriodSeconds: {{ include "tenure.grace" . }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    seccompProfile: { type: RuntimeDefault }
    {{- range $name, $value := .Values.podSecurityContext }}
    {{ $name }}: {{ include "tenure.numbers" $value }}
    {{- end }}
  topologySpreadConstraints:
    {{- with .Values.topologySpreadConstraints }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "tenure.selector" . | nindent 10 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{ toJson . }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{ toJson . }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{ toJson . }}
  {{- end }}
  {{- with include "tenure.volumes" . | fromJsonArray }}
  volumes: {{ toJson . }}
  {{- end }}
  containers:
    - name: {{ include "tenure.fullname" . | toJson }}
      {{- with .Values.image }}
      image: {{ if .digest }}{{ printf "%s@%s" .repository .digest | toJson }}{{ else }}{{ printf "%s:%s" .repository .tag | toJson }}{{ end }}
      imagePullPolicy: {{ .pullPolicy }}
      {{- end }}
      {{- if .Values.run.enabled }}
      {{- if not .Values.run.command }}{{ fail "run.command: which program?" }}{{ end }}
      command: {{ concat (list .Values.run.tenure "run") .Values.run.args (list "--") .Values.run.command | toJson }}
      {{- end }}
      {{- if $http }}
      ports:
        - { name: http, containerPort: {{ int64 .Values.http.port }} }
      {{- end }}
      envFrom:
        - configMapRef: { name: {{ include "tenure.fullname" . | toJson }} }
        {{- if .Values.secrets }}
        - secretRef: { name: {{ include "tenure.fullname" . | toJson }} }
        {{- end }}
        {{- with .Values.existingSecret }}
        - secretRef: { name: {{ toJson . }} }
        {{- end }}
      env:
        # The name of the pod, and not HOSTNAME of the environment: with hostNetwork that is the name
        # of the node, which two pods share.
        - name: {{ $prefix }}_INSTANCE_ID
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        {{- if .Values.leaderService.enabled }}
        - name: {{ $prefix }}_POD
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        {{- end }}
        - name: {{ $prefix }}_VERSION
          valueFrom: { fieldRef: { fieldPath: "metadata.labels['app.kubernetes.io/version']" } }
        {{- if $http }}
        # Not one variable with both: an IPv6 address needs brackets there.
        - name: {{ $prefix }}_ADDRESS_HOST
          valueFrom: { fieldRef: { fieldPath: status.podIP } }
        - name: {{ $prefix }}_ADDRESS_PORT
          value: {{ .Values.http.port | int64 | toString | toJson }}
        {{- if eq .Values.http.scheme "HTTPS" }}
        - name: {{ $prefix }}_ADDRESS_SCHEME
          value: https
        {{- end }}
        {{- end }}
        {{- with .Values.redis.urlSecret }}
        {{- if .name }}
        - name: {{ $prefix }}_REDIS_URL
          valueFrom: { secretKeyRef: { name: {{ toJson .name }}, key: {{ toJson .key }} } }
        {{- end }}
        {{- end }}
      {{- if $http }}
      # A process that lives and does not lead is well: none of these depends on leading.
      startupProbe:
        httpGet: { path: {{ toJson .Values.probes.live }}, port: http{{ $scheme }} }
        periodSeconds: 1
        failureThreshold: {{ int64 .Values.probes.startSeconds }}
      livenessProbe:
        httpGet: { path: {{ toJson .Values.probes.live }}, port: http{{ $scheme }} }
        periodSeconds: 10
        failureThreshold: 3
      readinessProbe:
        httpGet: { path: {{ toJson .Values.probes.ready }}, port: http{{ $scheme }} }
        periodSeconds: 2
        failureThreshold: 1
      {{- if .Values.shutdown.preStopSeconds }}
      lifecycle:
        preStop:
          sleep: { seconds: {{ int64 .Values.shutdown.preStopSeconds }} }
      {{- end }}
      {{- else if .Values.run.enabled }}
      # It asks Redis, so that it is no liveness probe: a deploy waits until a new instance takes part.
      readinessProbe:
        exec: { command: [{{ toJson .Values.run.tenure }}, healthcheck, --timeout, 4s] }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: {{ .Values.readOnlyRootFilesystem }}
        capabilities: { drop: [ALL] }
      {{- with .Values.resources }}
      resources: {{ toJson . }}
      {{- end }}
      {{- with include "tenure.volumeMounts" . | fromJsonArray }}
      volumeMounts: {{ toJson . }}
      {{- end }}
{{- end }}
