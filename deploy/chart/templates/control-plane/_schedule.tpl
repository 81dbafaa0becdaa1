{{- define "matting.backupsClaim" -}}
{{- default (printf "%s-backups" (include "matting.fullname" .)) .Values.backups.existingClaim -}}
{{- end }}

{{/* One command by the clock, with all that a control plane is told. Takes { root, name, schedule }. */}}
{{- define "matting.schedule" -}}
{{- $v := .root.Values }}
{{- $plane := $v.controlPlane }}
{{- $own := include "matting.controlPlaneVariables" .root }}
{{- $kept := and (include "matting.needsVolume" .root) $v.volume.persistent }}
---
apiVersion: batch/v1
kind: CronJob
metadata:
  # Kubernetes adds 11 characters to the names of its Jobs, and takes 52.
  name: {{ printf "%s-%s" (include "matting.fullname" .root | trunc 33 | trimSuffix "-") .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "matting.labels" .root | nindent 4 }}
    app.kubernetes.io/component: schedule
spec:
  schedule: {{ .schedule | quote }}
  timeZone: {{ $v.schedules.timeZone | quote }}
  concurrencyPolicy: Forbid
  # Late rather than not at all, and never two days' at once.
  startingDeadlineSeconds: 7200
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      # What was interrupted goes on once; what is wrong with the ledger stays wrong.
      backoffLimit: 1
      activeDeadlineSeconds: {{ $v.schedules.deadlineS }}
      template:
        metadata:
          labels:
            {{- include "matting.selectorLabels" .root | nindent 12 }}
            app.kubernetes.io/component: schedule
            {{- include "matting.podLabels" .root | nindent 12 }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ include "matting.serviceAccount" .root }}
          {{- include "matting.podCommon" .root | nindent 10 }}
          {{- with $plane.nodeSelector }}
          nodeSelector: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $plane.tolerations }}
          tolerations: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if and $kept (include "matting.oneAtATime" .root) }}
          # Where the volume is mounted already, and SQLite's writers share its memory.
          affinity:
            podAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                - topologyKey: kubernetes.io/hostname
                  labelSelector:
                    matchLabels: {{- include "matting.controlPlaneSelector" .root | nindent 22 }}
          {{- end }}
          containers:
            - name: {{ .name }}
              image: {{ include "matting.image" (dict "root" .root "image" $plane.image) }}
              imagePullPolicy: {{ $v.images.pullPolicy }}
              command: [tini, --, matting-command, {{ .name }}]
              env:
                {{- $own | nindent 16 }}
                {{- include "matting.moreVariables" (dict "where" "controlPlane.env" "env" $plane.env "envFrom" $plane.envFrom "own" $own) | nindent 16 }}
                {{- if eq .name "backup" }}
                - name: BACKUP_DIR
                  value: /backups
                - name: BACKUP_DAYS
                  value: {{ $v.backups.days | quote }}
                {{- end }}
              resources: {{- toYaml $v.schedules.resources | nindent 16 }}
              securityContext: {{- toYaml $v.containerSecurityContext | nindent 16 }}
              volumeMounts:
                - { name: data, mountPath: /data }
                - { name: tmp, mountPath: /tmp }
                - { name: tokens, mountPath: /tokens, readOnly: true }
                {{- if eq .name "backup" }}
                - { name: backups, mountPath: /backups }
                {{- end }}
                {{- if $v.tls.enabled }}
                - { name: tls, mountPath: /tls, readOnly: true }
                {{- end }}
                {{- include "matting.moreMounts" (dict "root" .root "pod" $plane) | nindent 16 }}
          volumes:
            - name: data
              {{- if $kept }}
              persistentVolumeClaim: { claimName: {{ include "matting.claim" .root }} }
              {{- else }}
              emptyDir: {}
              {{- end }}
            - name: tmp
              emptyDir: {}
            - {{- include "matting.tokensVolume" (dict "root" .root) | nindent 14 }}
            {{- if eq .name "backup" }}
            - name: backups
              persistentVolumeClaim: { claimName: {{ include "matting.backupsClaim" .root }} }
            {{- end }}
            {{- if $v.tls.enabled }}
            - name: tls
              secret: { secretName: {{ $v.tls.controlPlaneSecret }}, defaultMode: 288 }
            {{- end }}
            {{- include "matting.moreVolumes" (dict "root" .root "pod" $plane) | nindent 12 }}
{{- end }}
