{{/* What the program is told. The Job of the migrations needs less: migrations.yaml. */}}
{{- define "matting.controlPlaneVariables" -}}
{{- $v := .Values -}}
- name: MATTING_HOST
  value: {{ $v.controlPlane.listen | quote }}
- name: MATTING_PORT
  value: '8080'
- name: MATTING_REGISTRY_HOST
  value: {{ $v.controlPlane.listen | quote }}
- name: MATTING_REGISTRY_PORT
  value: '50050'
- name: MATTING_METRICS_HOST
  value: {{ $v.controlPlane.listen | quote }}
- name: MATTING_METRICS_PORT
  value: '9464'
- name: MATTING_BASE_URL
  value: {{ include "matting.baseUrl" . | quote }}
- name: MATTING_DATA_DIR
  value: /data
- name: MATTING_NODE_TOKEN_FILE
  value: /tokens/node-token
{{ include "matting.databaseVariable" . }}
{{- if eq $v.database.kind "mysql" }}
{{ include "matting.secretVariable" (dict "root" . "variable" "MATTING_SECRETS_KEY" "key" "secretsKey") }}
{{- else }}
{{ include "matting.secretVariable" (dict "root" . "variable" "MATTING_SECRETS_KEY" "key" "secretsKey" "optional" true) }}
{{- end }}
{{- $optional := dict "MATTING_SECRETS_KEY_PREVIOUS" "secretsKeyPrevious" "MATTING_OPERATOR_KEY" "operatorKey" "MATTING_PAYMENT_SECRET" "paymentSecret" "MATTING_OIDC_CLIENT_SECRET" "oidcClientSecret" "MATTING_SMTP_URL" "smtpUrl" -}}
{{- range $variable := keys $optional | sortAlpha }}
{{ include "matting.secretVariable" (dict "root" $ "variable" $variable "key" (get $optional $variable) "optional" true) }}
{{- end }}
{{- if eq $v.storage.kind "s3" }}
- name: MATTING_STORAGE_URL
  value: {{ $v.storage.url | quote }}
{{ include "matting.secretVariable" (dict "root" . "variable" "AWS_ACCESS_KEY_ID" "key" "awsAccessKeyId" "optional" true) }}
{{ include "matting.secretVariable" (dict "root" . "variable" "AWS_SECRET_ACCESS_KEY" "key" "awsSecretAccessKey" "optional" true) }}
{{- end }}
{{- with $v.storage.fallbackUrl }}
- name: MATTING_STORAGE_FALLBACK_URL
  value: {{ . | quote }}
{{- end }}
{{- if $v.keda.enabled }}
- name: MATTING_NODES_ON_DEMAND
  value: 'true'
{{- end }}
{{- if $v.tls.enabled }}
{{ include "matting.tlsVariables" . }}
{{- end }}
{{- include "matting.caVariable" . }}
{{- end }}

{{- define "matting.databaseVariable" -}}
{{- if eq .Values.database.kind "mysql" }}
{{- include "matting.secretVariable" (dict "root" . "variable" "MATTING_DATABASE_URL" "key" "databaseUrl" "name" .Values.secret.databaseUrlSecretName) }}
{{- else -}}
- name: MATTING_DATABASE_URL
  value: sqlite:/data/matting.sqlite
{{- end }}
{{- end }}

{{/* Whether anything is kept in /data. */}}
{{- define "matting.needsVolume" -}}
{{- if or (eq .Values.database.kind "sqlite") (eq .Values.storage.kind "volume") -}}true{{- end -}}
{{- end }}

{{/* Its resources; with a bucket room for what is on its way there. */}}
{{- define "matting.controlPlaneResources" -}}
{{- $resources := deepCopy .Values.controlPlane.resources -}}
{{- if eq .Values.storage.kind "s3" -}}
{{- $room := dict "ephemeral-storage" .Values.controlPlane.tmpSize -}}
{{- $_ := set $resources "requests" (merge (default dict $resources.requests) $room) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* Whether the control plane of before ends before the new one begins. */}}
{{- define "matting.oneAtATime" -}}
{{- $v := .Values -}}
{{- $shared := or (not $v.volume.persistent) (has "ReadWriteMany" $v.volume.accessModes) (gt (int $v.controlPlane.replicas) 1) -}}
{{- if or (eq $v.database.kind "sqlite") (and (include "matting.needsVolume" .) (not $shared)) -}}true{{- end -}}
{{- end }}

{{- define "matting.claim" -}}
{{- default (printf "%s-data" (include "matting.fullname" .)) .Values.volume.existingClaim -}}
{{- end }}
