{{/* What every pod has. */}}
{{- define "matting.podCommon" -}}
automountServiceAccountToken: false
# A Service called matting would set MATTING_PORT to tcp://…, as Kubernetes does for links.
enableServiceLinks: false
{{- $security := .Values.podSecurityContext }}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- $security = omit $security "fsGroup" "fsGroupChangePolicy" }}
{{- end }}
securityContext: {{- toYaml $security | nindent 2 }}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where pods may run. Takes { root, pod, labels: of the pods that are spread }. */}}
{{- define "matting.placement" -}}
{{- with .pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
topologySpreadConstraints:
{{- if .pod.topologySpreadConstraints }}
{{- toYaml .pod.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- $.labels | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end }}

{{/* A variable from the Secret. Takes { root, variable, key, optional, name }. */}}
{{- define "matting.secretVariable" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ default .root.Values.secret.name .name }}
      key: {{ get .root.Values.secret.keys .key }}
{{- if .optional }}
      optional: true
{{- end }}
{{- end }}

{{/* Variables of the values: refused where the chart sets them itself. Takes { where, env, envFrom, own: YAML }. */}}
{{- define "matting.moreVariables" -}}
{{- $own := list -}}
{{- range fromYamlArray .own }}{{ $own = append $own .name }}{{ end -}}
{{- $names := concat (keys .env | sortAlpha) list -}}
{{- range .envFrom }}{{ $names = append $names .name }}{{ end -}}
{{- range $names }}
{{- if has . $own }}{{ fail (printf "%s: %s is set by the chart itself: use its value" $.where .) }}{{ end -}}
{{- end -}}
{{- if ne (len $names) (len (uniq $names)) }}{{ fail (printf "%s: a variable is there twice, in env and envFrom" .where) }}{{ end -}}
{{- range $name := keys .env | sortAlpha }}
- name: {{ $name }}
  value: {{ get $.env $name | quote }}
{{- end }}
{{- with .envFrom }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Tokens as files, which the programs follow. Takes { root, callers }. */}}
{{- define "matting.tokensVolume" -}}
{{- $keys := .root.Values.secret.keys -}}
name: tokens
secret:
  secretName: {{ .root.Values.secret.name }}
  defaultMode: 288
  items:
    - { key: {{ $keys.nodeToken }}, path: node-token }
    {{- if .callers }}
    - { key: {{ $keys.callerTokens }}, path: caller-tokens }
    {{- end }}
{{- end }}

{{/* Authorities, and files that the operator adds, as volumes. Takes { root, pod }. */}}
{{- define "matting.moreVolumes" -}}
{{- with .root.Values.caBundle }}
{{- if .secret }}
- name: ca
  secret: { secretName: {{ .secret }}, defaultMode: 288, items: [{ key: {{ .key }}, path: ca.crt }] }
{{- else if .configMap }}
- name: ca
  configMap: { name: {{ .configMap }}, items: [{ key: {{ .key }}, path: ca.crt }] }
{{- end }}
{{- end }}
{{- with .pod.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The same as mounts. Takes { root, pod }. */}}
{{- define "matting.moreMounts" -}}
{{- if or .root.Values.caBundle.secret .root.Values.caBundle.configMap }}
- { name: ca, mountPath: /ca, readOnly: true }
{{- end }}
{{- with .pod.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Authorities beside the public ones. */}}
{{- define "matting.caVariable" -}}
{{- if or .Values.caBundle.secret .Values.caBundle.configMap }}
- name: NODE_EXTRA_CA_CERTS
  value: /ca/ca.crt
{{- end }}
{{- end }}

{{/* Files of TLS: mounted at /tls. Takes the Secret's name and the root. */}}
{{- define "matting.tlsVariables" -}}
- name: MATTING_TLS_CERT_FILE
  value: /tls/tls.crt
- name: MATTING_TLS_KEY_FILE
  value: /tls/tls.key
- name: MATTING_TLS_CLIENT_CA_FILE
  value: /tls/ca.crt
- name: MATTING_TLS_SERVER_CA_FILE
  value: /tls/ca.crt
{{- with .Values.tls.serverName }}
- name: MATTING_TLS_SERVER_NAME
  value: {{ . }}
{{- end }}
{{- end }}
