{{/* The pod of an engine, or of one of its nodes. Call with (dict "root" $ "engine" … "name" … "spread" over nodes). */}}
{{- define "coserve.enginePod" -}}
metadata:
  labels:
    {{- include "coserve.labels" .root | nindent 4 }}
    app.kubernetes.io/component: engine-{{ .engine.name }}
    coserve/role: engine
spec:
  serviceAccountName: {{ include "coserve.serviceAccount" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {{- include "coserve.podSecurity" .root | nindent 4 }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .engine.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .engine.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ default 120 .engine.terminationGracePeriodSeconds }}
  containers:
    - name: engine
      image: {{ .root.Values.engineImage.repository }}:{{ default .root.Chart.AppVersion .root.Values.engineImage.tag }}
      imagePullPolicy: {{ .root.Values.engineImage.pullPolicy }}
      securityContext: {{- include "coserve.containerSecurity" .root | nindent 8 }}
      env:
        - {name: COSERVE_MODEL, value: {{ printf "/models/%s" (default "" .engine.model.path) | trimSuffix "/" | quote }}}
        - {name: COSERVE_MODEL_NAME, value: {{ .engine.modelName | quote }}}
        - {name: COSERVE_ENGINE_PORT, value: "30000"}
        - {name: COSERVE_ENGINE_GPUS, value: {{ default 1 .engine.gpus | quote }}}
        - {name: COSERVE_PROFILE_DIR, value: /profiles}
        - {name: HOME, value: /tmp}
        # Beside the profile, on its volume: a restarted pod compiles no kernel again.
        - {name: XDG_CACHE_HOME, value: /profiles/compiled}
        {{- if .root.Values.engineRegistration.enabled }}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - {name: COSERVE_REGISTER_URLS, value: {{ printf "http://%s-gateway.%s.svc:%v" (include "coserve.fullname" .root) .root.Release.Namespace .root.Values.gateway.service.port | quote }}}
        - {name: COSERVE_ENGINE_URL, value: {{ printf "http://$(POD_NAME).%s.%s.svc:30000" .name .root.Release.Namespace | quote }}}
        - {name: COSERVE_ENGINE_TOKEN_FILE, value: /run/secrets/coserve/engine-token}
        # What runs may finish; the rest of the grace is for the engine's own end.
        - {name: COSERVE_ENGINE_DRAIN_S, value: {{ sub (default 120 .engine.terminationGracePeriodSeconds) 30 | quote }}}
        {{- end }}
        {{- with .engine.args }}
        - {name: COSERVE_ENGINE_ARGS, value: {{ join " " . | quote }}}
        {{- end }}
        {{- range $setting, $value := .engine.settings }}
        - {name: {{ $setting }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: http, containerPort: 30000}
      startupProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 10
        failureThreshold: 120
      livenessProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 15
        timeoutSeconds: 10
        failureThreshold: 8
      readinessProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 5
        timeoutSeconds: 5
      resources:
        requests:
          {{- with (.engine.resources).requests }}{{ toYaml . | nindent 10 }}{{ end }}
          nvidia.com/gpu: {{ default 1 .engine.gpus }}
        limits:
          {{- with (.engine.resources).limits }}{{ toYaml . | nindent 10 }}{{ end }}
          nvidia.com/gpu: {{ default 1 .engine.gpus }}
      volumeMounts:
        - {name: models, mountPath: /models, readOnly: true}
        - {name: profiles, mountPath: /profiles}
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /tmp}
        {{- if .root.Values.engineRegistration.enabled }}
        - {name: token, mountPath: /run/secrets/coserve, readOnly: true}
        {{- end }}
  volumes:
    {{- if .root.Values.engineRegistration.enabled }}
    - name: token
      secret:
        secretName: {{ include "coserve.secretName" .root }}
        defaultMode: 0440
        items: [{key: engine-token, path: engine-token}]
    {{- end }}
    - name: models
      persistentVolumeClaim: {claimName: {{ .engine.model.existingClaim }}, readOnly: true}
    {{- if .spread }}
    - name: profiles
      {{- with (.engine.profile).existingClaim }}
      persistentVolumeClaim: {claimName: {{ . }}}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- end }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ default "16Gi" .engine.sharedMemory }}}
    - name: tmp
      emptyDir: {}
{{- end -}}
