{{/* The name of all objects. The longest that is made of it is NAME-leader-label. */}}
{{- define "tenure.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "tenure.selector" -}}
app.kubernetes.io/name: {{ include "tenure.fullname" . | toJson }}
app.kubernetes.io/instance: {{ .Release.Name | toJson }}
{{- end }}

{{- define "tenure.labels" -}}
{{ include "tenure.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service | toJson }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | toJson }}
{{- end }}

{{- define "tenure.version" -}}
{{- .Values.version | default .Values.image.tag | trunc 63 | trimAll "-_." -}}
{{- end }}

{{- define "tenure.prefix" -}}
{{- .Values.run.enabled | ternary "TENURE" .Values.envPrefix -}}
{{- end }}

{{- define "tenure.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "tenure.fullname" .) "default") -}}
{{- end }}

{{/* Of the program itself; `tenure run` serves no HTTP. */}}
{{- define "tenure.http" -}}
{{- if and .Values.http.enabled (not .Values.run.enabled) }}true{{ end -}}
{{- end }}

{{/* A value as text: numbers come as floats. */}}
{{- define "tenure.text" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ toString . }}{{ end -}}
{{- end }}

{{/* The variables that every instance has in common, as JSON. */}}
{{- define "tenure.config" -}}
{{- $prefix := include "tenure.prefix" . }}
{{- $own := dict "NAMESPACE" (.Values.namespace | default .Release.Name) "SHUTDOWN_TIMEOUT" (printf "%ds" (int64 .Values.shutdown.timeoutSeconds)) }}
{{- with .Values.role }}{{ $_ := set $own "ROLE" . }}{{ end }}
{{- with .Values.roles }}{{ $_ := set $own "ROLES" (join "," .) }}{{ end }}
{{- with .Values.redis }}
{{- if .cluster }}{{ $_ := set $own "REDIS_CLUSTER" "true" }}{{ end }}
{{- if .urlSecret.name }}
{{- if or .url .passwordSecret.name }}{{ fail "redis.urlSecret stands alone: neither redis.url nor redis.passwordSecret beside it" }}{{ end }}
{{- else if .url }}{{ $_ := set $own "REDIS_URL" .url }}
{{- else }}
{{- $_ := set $own "REDIS_HOST" (required "redis.host, redis.url or redis.urlSecret.name: where is Redis?" .host) }}
{{- if ne (int64 .port) 6379 }}{{ $_ := set $own "REDIS_PORT" (toString (int64 .port)) }}{{ end }}
{{- if .username }}{{ $_ := set $own "REDIS_USERNAME" .username }}{{ end }}
{{- if .db }}{{ $_ := set $own "REDIS_DB" (toString (int64 .db)) }}{{ end }}
{{- if .tls }}{{ $_ := set $own "REDIS_TLS" "true" }}{{ end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}{{ $_ := set $own $name (include "tenure.text" $value) }}{{ end }}
{{- $data := dict }}
{{- range $name, $value := $own }}{{ $_ := set $data (printf "%s_%s" $prefix $name) $value }}{{ end }}
{{- range $name, $value := .Values.env }}
{{- if or (hasKey $data $name) (has $name (list "POD_IP" (printf "%s_INSTANCE_ID" $prefix) (printf "%s_VERSION" $prefix) (printf "%s_ADDRESS" $prefix))) }}
{{- fail (printf "env.%s: the chart sets it itself" $name) }}
{{- end }}
{{- $_ := set $data $name (include "tenure.text" $value) }}
{{- end }}
{{- toJson $data -}}
{{- end }}

{{- define "tenure.grace" -}}
{{- with .Values.shutdown }}
{{- $sum := int64 .timeoutSeconds }}
{{- if include "tenure.http" $ }}{{ $sum = add $sum .preStopSeconds .requestSeconds }}{{ end }}
{{- add $sum .spareSeconds -}}
{{- end }}
{{- end }}
