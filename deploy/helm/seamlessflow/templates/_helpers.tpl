{{- define "sf.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "sf.labels" -}}
app.kubernetes.io/name: seamlessflow
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "sf.selector" -}}
app.kubernetes.io/name: seamlessflow
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sf.image" -}}
{{- printf "%s/%s:%s" .root.Values.image.registry .name (.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}

{{- define "sf.planesSecret" -}}
{{- .Values.secrets.planes.existing | default (printf "%s-planes" (include "sf.name" .)) -}}
{{- end -}}

{{/* The key of the planes' Secret with the address by which the gateway works. */}}
{{- define "sf.gatewayDatabaseKey" -}}
{{- if .Values.secrets.planes.existing -}}{{ .Values.gateway.databaseUrlKey }}{{- else -}}GATEWAY_DATABASE_URL{{- end -}}
{{- end -}}

{{- define "sf.workersSecret" -}}
{{- .Values.secrets.workers.existing | default (printf "%s-workers" (include "sf.name" .)) -}}
{{- end -}}

{{- define "sf.artifactsClaim" -}}
{{- .Values.artifacts.existingClaim | default (printf "%s-artifacts" (include "sf.name" .)) -}}
{{- end -}}

{{- define "sf.gatewayUrl" -}}
{{- .Values.gatewayUrl | default (printf "http://%s-gateway:8100" (include "sf.name" .)) -}}
{{- end -}}

{{/* Pods run as the images' user, who owns the shared volume through its group. */}}
{{- define "sf.podAccount" -}}
automountServiceAccountToken: false
serviceAccountName: {{ include "sf.name" .root }}{{ .suffix }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "sf.podSecurity" -}}
{{ include "sf.podAccount" (dict "root" . "suffix" "") }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The supervisor of agents is root with just the capabilities to run each session as a user of its own, so that no
agent can read the machine's secrets. */}}
{{- define "sf.agentPodSecurity" -}}
{{ include "sf.podAccount" (dict "root" . "suffix" "-agents") }}
securityContext:
  runAsNonRoot: false
  runAsUser: 0
  runAsGroup: 0
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sf.agentContainerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL], add: [SETUID, SETGID, KILL, CHOWN, DAC_OVERRIDE]}
{{- end -}}

{{- define "sf.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "sf.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Replicas of one component on different nodes, where there are enough. */}}
{{- define "sf.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "sf.selector" . | nindent 8 }}
{{- end -}}

{{- define "sf.planesEnv" -}}
- {name: SEAMLESSFLOW_MODE, value: production}
- {name: SEAMLESSFLOW_WEB_URL, value: {{ .Values.webUrl | quote }}}
- {name: SEAMLESSFLOW_GATEWAY_URL, value: {{ include "sf.gatewayUrl" . | quote }}}
- name: SEAMLESSFLOW_ALLOWED_HOSTS
  value: {{ prepend .Values.allowedHosts (printf "%s-web" (include "sf.name" .)) | join "," | quote }}
{{- with .Values.trustedOrigins }}
- {name: SEAMLESSFLOW_TRUSTED_ORIGINS, value: {{ join "," . | quote }}}
{{- end }}
{{- if .Values.artifacts.s3.root }}
{{ include "sf.storeEnv" . }}
{{- else }}
- {name: ARTIFACT_ROOT, value: /artifacts}
{{- end }}
- {name: MODEL_ROOTS, value: /models}
{{- range $variable := list "SEAMLESSFLOW_SECRET_KEY" "DATABASE_URL" "BACKGROUND_BROKER_URL" "EVENTS_URL" }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ include "sf.planesSecret" $ }}, key: {{ $variable }}}}
{{- end }}
{{- range $variable := list "SEAMLESSFLOW_JOIN_TOKEN" "BROKER_URL" }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ include "sf.workersSecret" $ }}, key: {{ $variable }}}}
{{- end }}
{{- end -}}

{{/* What opens a store of objects, for every pod that reads or writes artifacts; nothing if they are in a volume. */}}
{{- define "sf.storeEnv" -}}
{{- with .Values.artifacts.s3 }}
{{- if .root -}}
- {name: ARTIFACT_ROOT, value: {{ .root | quote }}}
- {name: SEAMLESSFLOW_CACHE_DIR, value: /cache}
- {name: SEAMLESSFLOW_CACHE_BYTES, value: "{{ mul .cacheGigabytes 1000000000 }}"}
{{- with .endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- with .region }}
- {name: AWS_DEFAULT_REGION, value: {{ . | quote }}}
{{- end }}
{{- if or .existing .accessKeyId }}
{{- range $variable := list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ include "sf.storeSecret" $ }}, key: {{ $variable }}}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sf.storeSecret" -}}
{{- .Values.artifacts.s3.existing | default (printf "%s-store" (include "sf.name" .)) -}}
{{- end -}}

{{- define "sf.fileMounts" -}}
{{- if .Values.artifacts.s3.root }}
- {name: cache, mountPath: /cache}
{{- else }}
- {name: artifacts, mountPath: /artifacts}
{{- end }}
- {name: models, mountPath: /models, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "sf.fileVolumes" -}}
{{- if .Values.artifacts.s3.hostPath }}
- name: cache
  hostPath: {path: {{ .Values.artifacts.s3.hostPath | quote }}, type: DirectoryOrCreate}
{{- else if .Values.artifacts.s3.root }}
- name: cache
  emptyDir: {} # the cache bounds itself
{{- else }}
- name: artifacts
  persistentVolumeClaim: {claimName: {{ include "sf.artifactsClaim" . }}}
{{- end }}
- name: models
  {{- if .Values.models.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.models.existingClaim }}, readOnly: true}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- end -}}

{{/* A Deployment's pod annotations: a changed Secret of this chart starts new pods. */}}
{{- define "sf.podAnnotations" -}}
checksum/secrets: {{ toJson .root.Values.secrets | sha256sum }}
{{- with .root.Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- if and .port .root.Values.metrics.scrapeAnnotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end -}}
