{{/* What a schema cannot say: values that do not fit together are refused by name. */}}
{{- define "matting.check" -}}
{{- $v := .Values -}}
{{- if not $v.images.registry }}{{ fail "images.registry: name the registry of your images; without one a machine would fetch them from docker.io/library" }}{{ end -}}
{{- if not $v.secret.name }}{{ fail "secret.name: name the Secret with the node token (docs/kubernetes.md)" }}{{ end -}}
{{- if and $v.caBundle.secret $v.caBundle.configMap }}{{ fail "caBundle: a Secret or a ConfigMap, not both" }}{{ end -}}
{{- if eq $v.database.kind "sqlite" -}}
{{- if gt (int $v.controlPlane.replicas) 1 }}{{ fail "controlPlane.replicas: SQLite is one control plane's; set database.kind to mysql for several" }}{{ end -}}
{{- end -}}
{{- if and $v.migrations.databaseUrlKey (not (and $v.migrations.hook (eq $v.database.kind "mysql"))) }}{{ fail "migrations.databaseUrlKey: only with migrations.hook and database.kind mysql" }}{{ end -}}
{{- if and (eq $v.storage.kind "s3") (not (hasPrefix "s3://" $v.storage.url)) }}{{ fail "storage.url: s3://bucket/prefix, with storage.kind s3" }}{{ end -}}
{{- if and (ne $v.storage.kind "s3") $v.storage.url }}{{ fail "storage.url: only with storage.kind s3" }}{{ end -}}
{{- if and (eq $v.storage.kind "volume") (gt (int $v.controlPlane.replicas) 1) -}}
{{- if not $v.volume.persistent }}{{ fail "volume.persistent: several control planes share it, or use storage.kind s3" }}{{ end -}}
{{- if and (not $v.volume.existingClaim) (not (has "ReadWriteMany" $v.volume.accessModes)) }}{{ fail "volume.accessModes: ReadWriteMany for several control planes, or use storage.kind s3" }}{{ end -}}
{{- end -}}
{{- if and (include "matting.needsVolume" .) (not $v.volume.persistent) -}}
{{- range list "backup" "restoreCheck" }}{{ if get $v.schedules . }}{{ fail (printf "schedules.%s: needs volume.persistent" .) }}{{ end }}{{ end -}}
{{- end -}}
{{- if $v.tls.enabled -}}
{{- range list "controlPlaneSecret" "nodeSecret" "serverName" }}{{ if not (get $v.tls .) }}{{ fail (printf "tls.%s: needed with tls.enabled" .) }}{{ end }}{{ end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) }}{{ fail "ingress.hosts: name one at least" }}{{ end -}}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) }}{{ fail "httpRoute.parentRefs: name the gateway" }}{{ end -}}
{{- range $name := keys $v.nodes.pools | sortAlpha }}
{{- $pool := include "matting.pool" (dict "root" $ "name" $name) | fromYaml }}
{{- $several := or (gt (int $pool.replicas) 1) (and $v.keda.enabled (eq $name $v.keda.pool)) }}
{{- if and $pool.enabled $several (eq $pool.modelCache.kind "claim") (not $pool.modelCache.existingClaim) (not (has "ReadWriteMany" $pool.modelCache.accessModes)) }}
{{- fail (printf "nodes.pools.%s.modelCache.accessModes: ReadWriteMany for several nodes, or modelCache.kind emptyDir" $name) }}
{{- end }}
{{- $own := default dict (get $v.nodes.pools $name).image }}
{{- $other := ne (omit $pool.image "digest" | toJson) (omit $v.nodes.defaults.image "digest" | toJson) }}
{{- /* A digest is one image's: the defaults' would give this pool another than it names. */}}
{{- if and $pool.enabled $other $pool.image.digest (not $own.digest) }}{{ fail (printf "nodes.pools.%s.image.digest: that of its own variant, repository and tag" $name) }}{{ end }}
{{- end }}
{{- include "matting.checkModels" . -}}
{{- include "matting.checkKeda" . -}}
{{- end }}

{{- define "matting.checkModels" -}}
{{- $served := list -}}
{{- range $name := keys .Values.nodes.pools }}
{{- $pool := include "matting.pool" (dict "root" $ "name" $name) | fromYaml }}
{{- if $pool.enabled }}{{ $served = append $served (include "matting.served" $pool) }}{{ end }}
{{- end -}}
{{- range splitList "," (default "" .Values.controlPlane.env.MATTING_MODELS_OFFERED) }}
{{- $name := trim . }}
{{- if and $name (not (has $name $served)) }}{{ fail (printf "controlPlane.env.MATTING_MODELS_OFFERED: no pool serves %s; nodes.pools.<name>.model gives it one" $name) }}{{ end }}
{{- end -}}
{{- end }}

{{- define "matting.checkKeda" -}}
{{- $v := .Values -}}
{{- if $v.keda.enabled -}}
{{- if not $v.keda.prometheus.serverAddress }}{{ fail "keda.prometheus.serverAddress: needed with keda.enabled" }}{{ end -}}
{{- if not (hasKey $v.nodes.pools $v.keda.pool) }}{{ fail (printf "keda.pool: nodes.pools has no %s" $v.keda.pool) }}{{ end -}}
{{- if not (include "matting.pool" (dict "root" . "name" $v.keda.pool) | fromYaml).enabled }}{{ fail (printf "keda.pool: %s is not enabled" $v.keda.pool) }}{{ end -}}
{{- if gt (int $v.keda.nodesMin) (int $v.keda.nodesMax) }}{{ fail "keda.nodesMin: at most keda.nodesMax" }}{{ end -}}
{{- if ge (int (include "matting.fixedNodes" .)) (int $v.keda.nodesMax) }}{{ fail "keda.nodesMax: more than the replicas of the other pools" }}{{ end -}}
{{- end -}}
{{- end }}

{{/* A pool with the defaults it does not change, as YAML. Takes { root, name }. */}}
{{- define "matting.pool" -}}
{{- $own := get .root.Values.nodes.pools .name -}}
{{- $pool := mustMergeOverwrite (deepCopy .root.Values.nodes.defaults) (deepCopy $own) -}}
{{- /* Whole: a budget has one of its two fields. */ -}}
{{- if hasKey $own "podDisruptionBudget" }}{{ $_ := set $pool "podDisruptionBudget" $own.podDisruptionBudget }}{{ end -}}
{{- $pool | toYaml -}}
{{- end }}

{{/* The plan or model of a pool's nodes. Takes the pool. */}}
{{- define "matting.served" -}}
{{- coalesce .model .env.MATTING_MODEL .env.MATTING_QUALITY "standard" -}}
{{- end }}

{{/* Nodes of the pools that KEDA does not scale and that serve the same as its pool. */}}
{{- define "matting.fixedNodes" -}}
{{- $sum := 0 -}}
{{- $served := include "matting.pool" (dict "root" . "name" .Values.keda.pool) | fromYaml | include "matting.served" -}}
{{- range $name := keys .Values.nodes.pools }}
{{- $pool := include "matting.pool" (dict "root" $ "name" $name) | fromYaml }}
{{- if and $pool.enabled (ne $name $.Values.keda.pool) (eq $served (include "matting.served" $pool)) }}{{ $sum = add $sum (int $pool.replicas) }}{{ end }}
{{- end -}}
{{- $sum -}}
{{- end }}
