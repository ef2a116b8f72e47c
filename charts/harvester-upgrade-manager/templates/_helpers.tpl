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

{{/* Labels of the pods of this manager and of no other. */}}
{{- define "upgrade-toolkit.managerPods" -}}
{{ include "upgrade-toolkit.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/*
Peers of a network policy that are nodes. No selector names the host network, so these are addresses: all but those of pods,
and those of the nodes in the network of pods. What a node itself sends to a pod of another node leaves through the tunnel
of flannel, whose address is the first one of the node's part of that network, which no pod has. Every node has a /24.
*/}}
{{- define "upgrade-toolkit.hosts" -}}
{{- $pods := .Values.networkPolicy.podCIDR -}}
{{- range .Values.networkPolicy.nodeCIDRs }}
- ipBlock:
    cidr: {{ . }}
    {{- if and $pods (eq . "0.0.0.0/0") }}
    except:
      - {{ $pods }}
    {{- end }}
{{- end }}
{{- if $pods }}
{{- $numbers := regexFindAll "[0-9]+" $pods -1 }}
{{- $nodes := dict "16" 256 "17" 128 "18" 64 "19" 32 "20" 16 "21" 8 "22" 4 "23" 2 "24" 1 }}
{{- range until (get $nodes (index $numbers 4) | int) }}
- ipBlock:
    cidr: {{ index $numbers 0 }}.{{ index $numbers 1 }}.{{ add (index $numbers 2) . }}.0/32
{{- end }}
{{- end }}
{{- end -}}

{{/*
What a pod needs to ask the API server. Some networks look before the address of its Service is replaced, others after it;
and its own address is that of a node, which nothing here knows.
*/}}
{{- define "upgrade-toolkit.apiServer" -}}
- ports:
    - port: 443
      protocol: TCP
    - port: 6443
      protocol: TCP
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end -}}
