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
- name: MATTING_ADDED_MODELS_DIR
  value: /models/added
{{- with .pool.model }}
- name: MATTING_MODEL
  value: {{ . | quote }}
{{- end }}
- name: MATTING_EXECUTION_PROVIDER
  value: {{ include "matting.executionProvider" .pool }}
- name: MATTING_NODE_TOKEN_FILE
  value: /tokens/node-token
{{- if .pool.callerService }}
- name: MATTING_NODE_CALLER_TOKENS_FILE
  value: /tokens/caller-tokens
{{- end }}
{{- if $v.tls.enabled }}
{{ include "matting.tlsVariables" .root }}
{{- end }}
{{- include "matting.caVariable" .root }}
{{- end }}

{{- define "matting.executionProvider" -}}
{{- default (ternary "cuda" "cpu" (eq .kind "gpu")) .executionProvider -}}
{{- end }}

{{/* What the containers of a pool have alike: the image, the variables, the right to take what the pool has. */}}
{{- define "matting.nodeContainer" -}}
image: {{ include "matting.image" (dict "root" .root "image" .pool.image) }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
env:
{{- $own := include "matting.nodeVariables" . }}
  {{- $own | nindent 2 }}
  {{- include "matting.moreVariables" (dict "where" (printf "nodes.pools.%s.env" .name) "env" .pool.env "envFrom" .pool.envFrom "own" $own) | nindent 2 }}
resources: {{- include "matting.poolResources" .pool | nindent 2 }}
securityContext: {{- toYaml .root.Values.containerSecurityContext | nindent 2 }}
volumeMounts:
  - { name: models, mountPath: /models }
  - { name: tmp, mountPath: /tmp }
  - { name: tokens, mountPath: /tokens, readOnly: true }
  {{- if .pool.weightsClaim }}
  - { name: weights, mountPath: /weights, readOnly: true }
  {{- end }}
  {{- if .root.Values.tls.enabled }}
  - { name: tls, mountPath: /tls, readOnly: true }
  {{- end }}
  {{- include "matting.moreMounts" (dict "root" .root "pod" .pool) | nindent 2 }}
{{- end }}

{{- define "matting.poolSelector" -}}
{{ include "matting.nodeSelector" .root }}
matting/pool: {{ .name }}
{{- end }}

{{/* Its resources, a GPU among them. */}}
{{- define "matting.poolResources" -}}
{{- $resources := deepCopy .resources -}}
{{- if eq .kind "gpu" -}}
{{- $gpus := dict .gpuResource "1" -}}
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
