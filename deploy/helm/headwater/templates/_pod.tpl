{{- /* What every pod of the chart has in common. */ -}}

{{- define "headwater.podRights" -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ .Values.graceSeconds }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "headwater.container" -}}
name: headwater
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
startupProbe:
  httpGet: {path: /healthz, port: https, scheme: HTTPS}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150 # a log that is checked after a crash takes its time
livenessProbe:
  httpGet: {path: /healthz, port: https, scheme: HTTPS}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: https, scheme: HTTPS}
  periodSeconds: 5
  timeoutSeconds: 5
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "headwater.httpArguments" -}}
- --http=0.0.0.0:{{ .Values.http.port }}
- --token-file=/etc/headwater-token/token
- --certificate-file=/etc/headwater-tls/tls.crt
- --key-file=/etc/headwater-tls/tls.key
{{- range .Values.http.hosts }}
- --http-host={{ . }}
{{- end }}
{{- end -}}

{{- define "headwater.httpMounts" -}}
- {name: tls, mountPath: /etc/headwater-tls, readOnly: true}
- {name: token, mountPath: /etc/headwater-token, readOnly: true}
{{- end -}}

{{- define "headwater.httpVolumes" -}}
{{- $name := include "headwater.name" . -}}
- name: tls
  secret:
    secretName: {{ .Values.http.tlsSecret | default (printf "%s-http" $name) }}
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
- name: token
  secret:
    secretName: {{ .Values.http.tokenSecret | default (printf "%s-http" $name) }}
    items: [{key: token, path: token}]
{{- end -}}

{{- define "headwater.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The pod that runs the pipeline: with a log of its own, or as a worker beside brokers. */ -}}
{{- define "headwater.runner" -}}
{{- $name := include "headwater.name" . -}}
metadata:
  labels: {{- include "headwater.labels" . | nindent 4 }}
  annotations:
    headwater/pipeline: {{ .Values.pipeline | sha256sum }}
spec:
  {{- include "headwater.podRights" . | nindent 2 }}
  containers:
    - {{ include "headwater.container" . | indent 6 | trim }}
      args:
        - run
        - /etc/headwater/pipeline.yaml
        - --data=/var/lib/headwater/log
        {{- include "headwater.httpArguments" . | nindent 8 }}
        {{- range list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) }}
        - --http-host={{ . }}
        {{- end }}
        - --log-every=60s
      {{- if .Values.brokers.replicas }}
      env:
        - {name: BROKERS, value: "{{ include "headwater.bootstrap" . }}"}
      {{- end }}
      {{- with .Values.envFromSecret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      ports:
        - {name: https, containerPort: {{ .Values.http.port }}}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /var/lib/headwater}
        - {name: config, mountPath: /etc/headwater, readOnly: true}
        {{- include "headwater.httpMounts" . | nindent 8 }}
        {{- if .Values.secretFiles }}
        - {name: secrets, mountPath: /etc/headwater-secrets, readOnly: true}
        {{- end }}
        {{- if .Values.brokers.replicas }}
        - {name: brokers, mountPath: /etc/headwater-brokers, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
  volumes:
    {{- if .Values.brokers.replicas }}
    - name: data
      emptyDir: {} # who it is in the group of workers; what they have done is in the brokers and targets
    - name: brokers
      secret:
        secretName: {{ include "headwater.brokers.secret" . }}
        items: [{key: ca.crt, path: ca.crt}, {key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
    {{- end }}
    - name: config
      configMap: {name: {{ $name }}}
    {{- include "headwater.httpVolumes" . | nindent 4 }}
    {{- with .Values.secretFiles }}
    - name: secrets
      secret: {secretName: {{ . }}}
    {{- end }}
    - name: tmp
      emptyDir: {}
  {{- with include "headwater.placement" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}
