{{/* The name of all objects. The longest that is made of it is NAME-leader-label. */}}
{{- define "tenure.fullname" -}}
{{- $name := .Values.fullnameOverride | default .Release.Name | trunc 50 | regexFind "^.*[^-]" }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "the release name %q: a Service cannot be called so. Set fullnameOverride: lower-case letters, digits and -, a letter first" .Release.Name) }}
{{- end }}
{{- $name -}}
{{- end }}

{{/* Fails on what YAML would read as something else: toJson leaves these characters as they are. */}}
{{- define "tenure.check" -}}
{{- range $name, $value := .Values }}
{{- if regexMatch "[\\x{7f}-\\x{9f}\\x{fffe}\\x{ffff}]" (toJson $value) }}
{{- fail (printf "%s: a text has a control character between U+007F and U+009F, U+FFFE or U+FFFF, which YAML cannot have" $name) }}
{{- end }}
{{- end }}
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

{{/* A value as text, by its name: numbers come as floats. */}}
{{- define "tenure.text" -}}
{{- if kindIs "float64" .value }}
{{- if or (ge .value 9007199254740992.0) (le .value -9007199254740992.0) }}{{ fail (printf "%s: Helm loses digits of a number from 2^53 on: write it in quotes" .name) }}{{ end }}
{{- int64 .value }}
{{- else }}{{ toString .value }}{{ end -}}
{{- end }}

{{/* A value as JSON, with whole numbers: they come as floats. */}}
{{- define "tenure.numbers" -}}
{{- if kindIs "float64" . }}{{ int64 . }}
{{- else if kindIs "slice" . }}{{ $whole := list }}{{ range . }}{{ $whole = append $whole (int64 .) }}{{ end }}{{ toJson $whole }}
{{- else }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* The variables that every instance has in common, as JSON. */}}
{{- define "tenure.config" -}}
{{- $prefix := include "tenure.prefix" . }}
{{- $namespace := .Values.namespace | default .Release.Name }}
{{- if and .Values.redis.cluster (not (regexMatch "\\{[A-Za-z0-9._:-]+\\}" $namespace)) }}
{{- fail (printf "namespace %q: a Redis Cluster needs a hash tag in it, so that its keys share a slot. Set namespace: %q" $namespace (printf "{%s}" $namespace)) }}
{{- end }}
{{- $own := dict "NAMESPACE" $namespace "SHUTDOWN_TIMEOUT" (printf "%ds" (int64 .Values.shutdown.timeoutSeconds)) }}
{{- with .Values.role }}{{ $_ := set $own "ROLE" . }}{{ end }}
{{- with .Values.roles }}{{ $_ := set $own "ROLES" (join "," .) }}{{ end }}
{{- with .Values.redis }}
{{- if .cluster }}{{ $_ := set $own "REDIS_CLUSTER" "true" }}{{ end }}
{{- if and (or .url .urlSecret.name) (or .tls .username .db) }}{{ fail "redis.url and redis.urlSecret name the user, the database and TLS (rediss://) themselves: neither redis.tls nor redis.username nor redis.db beside them" }}{{ end }}
{{- if and .caSecret.name (not (or .tls .urlSecret.name (hasPrefix "rediss://" .url))) }}{{ fail "redis.caSecret is for TLS: set redis.tls, or a redis.url of rediss://" }}{{ end }}
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
{{- range include "tenure.mounted" . | fromJsonArray }}
{{- if hasKey $.Values.secrets (printf "%s_%s" $prefix (trimSuffix "_FILE" .variable)) }}{{ fail (printf "secrets.%s_%s: redis.%s is there, too" $prefix (trimSuffix "_FILE" .variable) .value) }}{{ end }}
{{- $_ := set $own .variable (printf "%s/%s" (include "tenure.mountPath" $) .path) }}
{{- end }}
{{- range $name, $value := .Values.settings }}{{ $_ := set $own $name (include "tenure.text" (dict "name" (printf "settings.%s" $name) "value" $value)) }}{{ end }}
{{- $data := dict }}
{{- range $name, $value := $own }}{{ $_ := set $data (printf "%s_%s" $prefix $name) $value }}{{ end }}
{{- range $name, $value := .Values.env }}
{{- if or (hasKey $data $name) (has $name (list (printf "%s_INSTANCE_ID" $prefix) (printf "%s_VERSION" $prefix) (printf "%s_ADDRESS" $prefix) (printf "%s_ADDRESS_HOST" $prefix) (printf "%s_ADDRESS_PORT" $prefix) (printf "%s_ADDRESS_SCHEME" $prefix))) }}
{{- fail (printf "env.%s: the chart sets it itself" $name) }}
{{- end }}
{{- $_ := set $data $name (include "tenure.text" (dict "name" (printf "env.%s" $name) "value" $value)) }}
{{- end }}
{{- toJson $data -}}
{{- end }}

{{/* Where the Secrets of Redis are mounted: as a folder, since a single file would not be replaced. */}}
{{- define "tenure.mountPath" -}}/etc/tenure/redis{{- end }}

{{/* The Secrets that are mounted, as JSON, each with the variable that names its file. */}}
{{- define "tenure.mounted" -}}
{{- $mounted := list }}
{{- with .Values.redis }}
{{- if .passwordSecret.name }}{{ $mounted = append $mounted (dict "value" "passwordSecret" "secret" .passwordSecret "path" "password" "variable" "REDIS_PASSWORD_FILE") }}{{ end }}
{{- if .caSecret.name }}{{ $mounted = append $mounted (dict "value" "caSecret" "secret" .caSecret "path" "ca.crt" "variable" "REDIS_CA_FILE") }}{{ end }}
{{- end }}
{{- toJson $mounted -}}
{{- end }}

{{- define "tenure.volumes" -}}
{{- $sources := list }}
{{- range include "tenure.mounted" . | fromJsonArray }}
{{- $sources = append $sources (dict "secret" (dict "name" .secret.name "items" (list (dict "key" .secret.key "path" .path)))) }}
{{- end }}
{{- $volumes := .Values.extraVolumes | default list }}
{{- if $sources }}{{ $volumes = append $volumes (dict "name" "tenure-redis" "projected" (dict "sources" $sources)) }}{{ end }}
{{- toJson $volumes -}}
{{- end }}

{{- define "tenure.volumeMounts" -}}
{{- $mounts := .Values.extraVolumeMounts | default list }}
{{- if include "tenure.mounted" . | fromJsonArray }}{{ $mounts = append $mounts (dict "name" "tenure-redis" "mountPath" (include "tenure.mountPath" .) "readOnly" true) }}{{ end }}
{{- toJson $mounts -}}
{{- end }}

{{- define "tenure.grace" -}}
{{- with .Values.shutdown }}
{{- $sum := int64 .timeoutSeconds }}
{{- if include "tenure.http" $ }}{{ $sum = add $sum .preStopSeconds .requestSeconds }}{{ end }}
{{- add $sum .spareSeconds -}}
{{- end }}
{{- end }}
