{{/* The chart's name, or what replaces it. */}}
{{- define "upgrade-toolkit.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* What names begin with: the release if it is named after the chart, else both. */}}
{{- define "upgrade-toolkit.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The namespace of everything that has one. */}}
{{- define "upgrade-toolkit.namespaceName" -}}
{{- .Release.Namespace -}}
{{- end -}}

{{/* A name that fits 63 characters, with its end whole. Arguments: suffix, context. */}}
{{- define "upgrade-toolkit.resourceName" -}}
{{- $full := include "upgrade-toolkit.fullname" .context -}}
{{- printf "%s-%s" (trunc (sub 62 (len .suffix) | int) $full | trimSuffix "-") .suffix -}}
{{- end -}}

{{/*
What the names of roles, webhook configurations and the webhooks' Service begin with. One for all, since the manager
is told it once; short enough that the name of the Service fits 63 characters.
*/}}
{{- define "upgrade-toolkit.prefix" -}}
{{- include "upgrade-toolkit.fullname" . | trunc 47 | trimSuffix "-" -}}-
{{- end -}}

{{/* The account of the manager; its Deployment has the same name. */}}
{{- define "upgrade-toolkit.account" -}}
{{- include "upgrade-toolkit.resourceName" (dict "suffix" "controller-manager" "context" .) -}}
{{- end -}}

{{/* Labels by which pods are found. A Deployment cannot change them: these are also those of earlier charts. */}}
{{- define "upgrade-toolkit.selector" -}}
app.kubernetes.io/name: {{ include "upgrade-toolkit.name" . }}
control-plane: controller-manager
{{- end -}}

{{/* Labels of every object. */}}
{{- define "upgrade-toolkit.labels" -}}
app.kubernetes.io/name: {{ include "upgrade-toolkit.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The image: of the manager, and of all workloads of upgrades, which take it from the manager's pod. */}}
{{- define "upgrade-toolkit.image" -}}
{{- $image := .Values.manager.image -}}
{{- $tag := default (ternary .Chart.AppVersion "" (empty $image.digest)) $image.tag -}}
{{- $image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end -}}
