{{- define "coserve.fullname" -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "coserve.labels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Call with (dict "root" $ "part" "gateway"). */}}
{{- define "coserve.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "coserve.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "coserve.secretName" -}}
{{- default (include "coserve.fullname" .) .Values.existingSecret -}}
{{- end -}}

{{- define "coserve.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "coserve.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end -}}
{{- end -}}

{{/* One address per engine replica: each is a lease and a queue of its own, never a balanced name. */}}
{{- define "coserve.engineUrls" -}}
{{- $urls := .Values.engineUrls -}}
{{- range $engine := ternary (list) .Values.engines .Values.engineRegistration.enabled -}}
{{- $name := printf "%s-%s" (include "coserve.fullname" $) $engine.name -}}
{{- range $index := until (int (default 1 $engine.replicas)) -}}
{{- $urls = append $urls (printf "http://%s-%d.%s.%s.svc:30000" $name $index $name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}

{{- define "coserve.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "coserve.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The container of a service part. Call with (dict "root" $ "name" … "command" … "extraEnv" …). */}}
{{- define "coserve.container" -}}
image: {{ include "coserve.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: [{{ .command }}]
securityContext: {{- include "coserve.containerSecurity" .root | nindent 2 }}
envFrom:
  - configMapRef: {name: {{ include "coserve.fullname" .root }}}
  {{- with .root.Values.files.envFromSecret }}
  - secretRef: {name: {{ . }}}
  {{- end }}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/coserve, readOnly: true}
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  {{- if .root.Values.files.persistence.enabled }}
  - {name: files, mountPath: /data/files}
  {{- end }}
{{- end -}}

{{- define "coserve.volumes" -}}
- name: secrets
  secret: {secretName: {{ include "coserve.secretName" . }}, defaultMode: 0440}
- name: data
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- if .Values.files.persistence.enabled }}
- name: files
  persistentVolumeClaim: {claimName: {{ default (printf "%s-files" (include "coserve.fullname" .)) .Values.files.persistence.existingClaim }}}
{{- end }}
{{- end -}}

{{/* What every pod has. Call with (dict "root" $ "part" …). */}}
{{- define "coserve.podBasics" -}}
serviceAccountName: {{ include "coserve.serviceAccount" .root }}
automountServiceAccountToken: {{ and (eq .part "gateway") (ne .root.Values.engineDiscovery.selector "") }}
enableServiceLinks: false
securityContext: {{- include "coserve.podSecurity" .root | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "coserve.selector" . | nindent 8 }}
{{- end -}}

{{- define "coserve.podMeta" -}}
labels:
  {{- include "coserve.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .part }}
  {{- with .root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/settings: {{ include (print .root.Template.BasePath "/configmap.yaml") .root | sha256sum }}
  {{- if not .root.Values.existingSecret }}
  checksum/secret: {{ toJson .root.Values.secret | sha256sum }}
  {{- end }}
  {{- with .root.Values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end -}}
