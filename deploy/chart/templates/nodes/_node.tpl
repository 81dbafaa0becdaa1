{{/* What a node of a pool is told. Takes { root, pool }. */}}
{{- define "matting.nodeVariables" -}}
{{- $v := .root.Values -}}
- name: POD_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
# Its own address, whichever the family: control planes dial it.
- name: MATTING_HOST
  value: $(POD_IP)
- name: MATTING_NODE_ID
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: MATTING_NODE_PORT
  value: '50051'
- name: MATTING_NODE_HTTP_PORT
  value: '50052'
- name: MATTING_REGISTRY_ADDRESS
  value: {{ include "matting.fullname" .root }}-registry.{{ .root.Release.Namespace }}.svc:50050
- name: MATTING_MODEL_DIR
  value: /models
- name: MATTING_EXECUTION_PROVIDER
  value: {{ default (ternary "cuda" "cpu" (eq .pool.kind "gpu")) .pool.executionProvider }}
{{ include "matting.secretVariable" (dict "root" .root "variable" "MATTING_NODE_TOKEN" "key" "nodeToken") }}
{{ include "matting.secretVariable" (dict "root" .root "variable" "MATTING_NODE_TOKEN_ACCEPTED" "key" "nodeTokenAccepted" "optional" true) }}
{{- if .pool.callerService }}
{{ include "matting.secretVariable" (dict "root" .root "variable" "MATTING_NODE_CALLER_TOKENS" "key" "callerTokens" "optional" true) }}
{{- end }}
{{- with $v.storage.directEndpoints }}
- name: MATTING_DIRECT_STORAGE_ENDPOINTS
  value: {{ join "," . | quote }}
{{- end }}
{{- if $v.tls.enabled }}
{{ include "matting.tlsVariables" .root }}
{{- end }}
{{- end }}

{{- define "matting.poolSelector" -}}
{{ include "matting.nodeSelector" .root }}
matting/pool: {{ .name }}
{{- end }}

{{/* Its resources, GPUs among them. */}}
{{- define "matting.poolResources" -}}
{{- $resources := deepCopy .resources -}}
{{- if eq .kind "gpu" -}}
{{- $gpus := dict .gpuResource (toString .gpus) -}}
{{- $_ := set $resources "limits" (merge (default dict $resources.limits) $gpus) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* Whether its models lie on a volume that one machine at a time can mount. Takes { pool, scaled }. */}}
{{- define "matting.ownsItsClaim" -}}
{{- $cache := .pool.modelCache -}}
{{- $several := or .scaled (gt (int .pool.replicas) 1) -}}
{{- if and (eq $cache.kind "claim") (not $several) (not (has "ReadWriteMany" $cache.accessModes)) -}}true{{- end -}}
{{- end }}

{{- define "matting.modelClaim" -}}
{{- default (printf "%s-models-%s" (include "matting.fullname" .root) .name) .pool.modelCache.existingClaim -}}
{{- end }}
