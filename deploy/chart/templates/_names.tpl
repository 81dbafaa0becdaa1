{{/* Names and labels. At most 40 characters, so that what is put behind stays within 63. */}}
{{- define "matting.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) .Values.fullnameOverride -}}
{{- $full | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "matting.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of every object. */}}
{{- define "matting.labels" -}}
{{ include "matting.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: matting
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of pods: nothing that changes with the chart's version, which would restart them all. */}}
{{- define "matting.podLabels" -}}
app.kubernetes.io/part-of: matting
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "matting.controlPlaneSelector" -}}
{{ include "matting.selectorLabels" . }}
app.kubernetes.io/component: control-plane
{{- end }}

{{- define "matting.nodeSelector" -}}
{{ include "matting.selectorLabels" . }}
app.kubernetes.io/component: inference-node
{{- end }}

{{- define "matting.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "matting.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* Where the image of `image` is: by digest where there is one. Takes { root, image }. */}}
{{- define "matting.image" -}}
{{- $repository := .image.repository -}}
{{- with .root.Values.images.registry }}{{ $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}{{ end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- $tag := coalesce .image.tag .root.Values.images.tag .root.Chart.AppVersion -}}
{{- with .image.variant }}{{ $tag = printf "%s-%s" $tag . }}{{ end -}}
{{- printf "%s:%s" $repository $tag -}}
{{- end -}}
{{- end }}

{{/* What links start with, without a slash at its end. */}}
{{- define "matting.baseUrl" -}}
{{- $values := .Values -}}
{{- if $values.controlPlane.baseUrl -}}
{{- trimSuffix "/" $values.controlPlane.baseUrl -}}
{{- else if and $values.ingress.enabled $values.ingress.hosts -}}
{{- printf "%s://%s" (ternary "https" "http" (ne $values.ingress.tlsSecret "")) (first $values.ingress.hosts) -}}
{{- else if and $values.httpRoute.enabled $values.httpRoute.hosts -}}
{{- printf "https://%s" (first $values.httpRoute.hosts) -}}
{{- else -}}
{{- include "matting.serviceUrl" . -}}
{{- end -}}
{{- end }}

{{- define "matting.serviceUrl" -}}
{{- $port := int .Values.controlPlane.service.port -}}
http://{{ include "matting.fullname" . }}.{{ .Release.Namespace }}.svc{{ if ne $port 80 }}:{{ $port }}{{ end }}
{{- end }}
