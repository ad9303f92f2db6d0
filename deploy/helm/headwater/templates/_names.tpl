{{- define "headwater.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "headwater.labels" -}}
app.kubernetes.io/name: headwater
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headwater.brokers.name" -}}
{{ .Release.Name | trunc 44 | trimSuffix "-" }}-brokers
{{- end -}}

{{- define "headwater.brokers.labels" -}}
app.kubernetes.io/name: headwater-broker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headwater.brokers.secret" -}}
{{ .Values.brokers.secret | default (include "headwater.brokers.name" .) }}
{{- end -}}

{{- /* The domain of the brokers' headless service, in which each pod has a name. */ -}}
{{- define "headwater.brokers.domain" -}}
{{ include "headwater.brokers.name" . }}.{{ .Release.Namespace }}.svc.cluster.local
{{- end -}}

{{- define "headwater.bootstrap" -}}
{{- $name := include "headwater.brokers.name" . -}}
{{- $domain := include "headwater.brokers.domain" . -}}
{{- $addresses := list -}}
{{- range until (int .Values.brokers.replicas) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s:9092" $name . $domain) -}}
{{- end -}}
{{ join "," $addresses }}
{{- end -}}
