{{- define "walstream.name" -}}
{{- if contains "walstream" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-walstream" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "walstream.selector" -}}
app.kubernetes.io/name: walstream
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The file of settings. */ -}}
{{- define "walstream.config" -}}
{{- if hasKey .Values.config "shutdown-grace" }}{{ fail "config.shutdown-grace: set shutdownGraceSeconds, from which the pod's grace is made too" }}{{ end }}
{{- set (deepCopy .Values.config) "shutdown-grace" (printf "%ds" (int .Values.shutdownGraceSeconds)) | toYaml }}
{{- end }}

{{- define "walstream.port" -}}
{{- index .Values.config "http-listen" | default "" | splitList ":" | last | int }}
{{- end }}

{{- define "walstream.scheme" -}}
{{- if index .Values.config "http-tls-cert" }}https{{ else }}http{{ end }}
{{- end }}
