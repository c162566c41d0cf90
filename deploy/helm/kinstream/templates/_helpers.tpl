{{/* A Service is a name of DNS, which begins with a letter. */}}
{{- define "kinstream.fullname" -}}
{{- $name := include "kinstream.anyName" . -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- fail (printf "release %s: names of Services begin with a letter; set fullnameOverride, or name the release otherwise" .Release.Name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "kinstream.anyName" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A name of at most 63 characters; two long names stay distinct. */}}
{{- define "kinstream.short" -}}
{{- if gt (len .) 63 -}}
{{- printf "%s-%s" (trunc 54 . | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* The name of all resources of one agent: (dict "root" $ "agent" NAME). */}}
{{- define "kinstream.agentName" -}}
{{- printf "%s-%s" (include "kinstream.fullname" .root) .agent | include "kinstream.short" -}}
{{- end -}}

{{- define "kinstream.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of pods: without the chart's version, which would restart every worker. */}}
{{- define "kinstream.podLabels" -}}
{{ include "kinstream.selector" . }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | quote }}
{{- end -}}

{{- define "kinstream.labels" -}}
{{ include "kinstream.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "kinstream.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kinstream.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kinstream.image" -}}
{{- $repository := required "image.repository: there is no public image; build one with deploy/Containerfile and name it here" .Values.image.repository -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* The URL of the checkpoint store; everything that is not shared by all pods is refused. */}}
{{- define "kinstream.checkpoints" -}}
{{- $store := .Values.checkpoints -}}
{{- $why := "every worker of an agent reads and writes the same checkpoints, and a partition that moves to another pod continues from them: with its own volume each pod would learn separately, and its state would be lost with the pod" -}}
{{- $volume := or $store.volume.existingClaim $store.volume.create -}}
{{- if and $store.url $volume -}}
{{- fail "checkpoints: give url or volume, not both" -}}
{{- else if and $store.volume.existingClaim $store.volume.create -}}
{{- fail "checkpoints.volume: give existingClaim or create, not both" -}}
{{- else if $store.url -}}
{{- $scheme := regexFind "^[a-z0-9+.-]+://" $store.url -}}
{{- if or (not $scheme) (has $scheme (list "file://" "local://" "memory://")) -}}
{{- fail (printf "checkpoints.url %s: this is a path inside a pod, and an object store is needed; %s. For a shared file system use checkpoints.volume" $store.url $why) -}}
{{- else if regexMatch "://[^/]*@" $store.url -}}
{{- fail "checkpoints.url: holds credentials, which every reader of ConfigMaps would see; use checkpoints.credentialsSecret" -}}
{{- end -}}
{{- $store.url -}}
{{- else if $volume -}}
{{- $modes := $store.volume.accessModes -}}
{{- if $store.volume.existingClaim -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" .Release.Namespace $store.volume.existingClaim -}}
{{- if $claim -}}{{- $modes = $claim.spec.accessModes -}}{{- end -}}
{{- end -}}
{{- if not (has "ReadWriteMany" $modes) -}}
{{- fail (printf "checkpoints.volume: access mode %s binds the volume to one node or pod, and ReadWriteMany is needed; %s" (join ", " $modes) $why) -}}
{{- end -}}
/var/lib/kinstream
{{- else -}}
{{- fail (printf "checkpoints: give url (an object store) or volume (ReadWriteMany); %s" $why) -}}
{{- end -}}
{{- end -}}

{{- define "kinstream.claim" -}}
{{- with .Values.checkpoints.volume -}}
{{- if .existingClaim -}}{{ .existingClaim }}{{- else if .create -}}{{ include "kinstream.fullname" $ }}-checkpoints{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kinstream.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* A value as TOML. Helm reads every number as a float: one without a fraction is written as an integer. */}}
{{- define "kinstream.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }},{{ end }} {{ include "kinstream.tomlKey" $key }} = {{ include "kinstream.tomlValue" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{- range $i, $value := . }}{{ if $i }}, {{ end }}{{ include "kinstream.tomlValue" $value }}{{ end }}]
{{- else if kindIs "invalid" . -}}
{{- fail "settings: null is not a value; remove the name" -}}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* A section of TOML: (dict "name" NAME "values" MAP). */}}
{{- define "kinstream.tomlSection" -}}
{{- if .values }}
[{{ .name }}]
{{- range $key := keys .values | sortAlpha }}
{{ include "kinstream.tomlKey" $key }} = {{ include "kinstream.tomlValue" (get $.values $key) }}
{{- end }}
{{ end -}}
{{- end -}}

{{- /* Whether the gate's key is needed: it signs the ids of drafted, randomised and recorded lists. */ -}}
{{- define "kinstream.signs" -}}
{{- $signs := or .Values.gate.spaces .Values.randomise -}}
{{- range .Values.serve.spaces -}}
{{- if .record -}}{{- $signs = true -}}{{- end -}}
{{- end -}}
{{- if $signs -}}true{{- end -}}
{{- end -}}

{{- define "kinstream.toml" -}}
# Made by the chart.
{{- if include "kinstream.signs" . }}
gate_key_file = "/etc/kinstream-gate/key"
{{- if .Values.gate.keySecret.retiringKey }}
gate_key_retiring_file = "/etc/kinstream-gate/retiring"
{{- end }}
{{- end }}
{{- range $name := keys .Values.settings | sortAlpha }}
{{- include "kinstream.tomlSection" (dict "name" $name "values" (default dict (get $.Values.settings $name))) }}
{{- end }}
{{- $store := .Values.checkpoints }}
{{- $values := dict "url" (include "kinstream.checkpoints" .) "interval_seconds" $store.interval_seconds "keep" $store.keep }}
{{- include "kinstream.tomlSection" (dict "name" "checkpoints" "values" $values) }}
{{- range $section := list "sources" "builders" "learners" "sinks" }}
{{- $entries := default dict (get $.Values $section) }}
{{- range $name := keys $entries | sortAlpha }}
{{- include "kinstream.tomlSection" (dict "name" (printf "%s.%s" $section $name) "values" (get $entries $name).settings) }}
{{- end }}
{{- end }}
{{- if .Values.serve.spaces }}
{{- include "kinstream.tomlSection" (dict "name" "serve" "values" .Values.serve.settings) }}
{{- end }}
{{- range $name := keys .Values.serve.spaces | sortAlpha }}
{{- include "kinstream.tomlSection" (dict "name" (printf "serve.spaces.%s" (include "kinstream.tomlKey" $name)) "values" (get $.Values.serve.spaces $name)) }}
{{- end }}
{{- range $name := keys .Values.vectors.spaces | sortAlpha }}
{{- include "kinstream.tomlSection" (dict "name" (printf "vectors.%s" (include "kinstream.tomlKey" $name)) "values" (get $.Values.vectors.spaces $name)) }}
{{- end }}
{{- range $name := keys .Values.gate.spaces | sortAlpha }}
[gate.{{ include "kinstream.tomlKey" $name }}]
{{- range $key, $value := get $.Values.gate.spaces $name }}
{{ $key }} = {{ include "kinstream.tomlValue" $value }}
{{- end }}
{{ end }}
{{- range $name := keys .Values.randomise | sortAlpha }}
{{- include "kinstream.tomlSection" (dict "name" (printf "randomise.%s" (include "kinstream.tomlKey" $name)) "values" (get $.Values.randomise $name)) }}
{{- end }}
{{- end -}}

{{/* Every agent, as JSON: its name, its role in streams/kafka/acls.py, its own entry over `workload`. */}}
{{- define "kinstream.agents" -}}
{{- $agents := list -}}
{{- if and .Values.learners (not .Values.builders) -}}
{{- fail "learners without builders: they would get no constraints; add a builder" -}}
{{- end -}}
{{- range $name, $entry := .Values.sources -}}
{{- $agents = append $agents (dict "name" (printf "source-%s" $name) "command" (list "worker" "source" $name) "role" "source" "agent" $name "topics" (list $entry.settings.topic) "entry" $entry) -}}
{{- end -}}
{{- range $name, $entry := .Values.builders -}}
{{- $agents = append $agents (dict "name" (printf "builder-%s" $name) "command" (list "worker" "builder" $name) "role" "builder" "agent" $name "entry" $entry) -}}
{{- end -}}
{{- range $name, $entry := .Values.learners -}}
{{- range $entry.settings.from -}}
{{- if not (hasKey $.Values.builders .) -}}
{{- fail (printf "learners.%s follows %s, which is not a builder" $name .) -}}
{{- end -}}
{{- end -}}
{{- $agents = append $agents (dict "name" (printf "learner-%s" $name) "command" (list "worker" "learner" $name) "role" "learner" "agent" $name "entry" $entry) -}}
{{- end -}}
{{- $agents = append $agents (dict "name" "metrics" "command" (list "worker" "metrics") "role" "metrics" "agent" "" "entry" .Values.metrics) -}}
{{- if .Values.gate.spaces -}}
{{- $agents = append $agents (dict "name" "gate" "command" (list "worker" "gate") "role" "gate" "agent" "" "entry" (omit .Values.gate "spaces" "keySecret")) -}}
{{- end -}}
{{- range $name, $space := .Values.vectors.spaces -}}
{{- if not (hasKey (default dict $.Values.learners) $space.learner) -}}
{{- fail (printf "vectors.spaces.%s follows %s, which is not a learner" $name $space.learner) -}}
{{- end -}}
{{- end -}}
{{- if .Values.vectors.spaces -}}
{{- $agents = append $agents (dict "name" "vectors" "command" (list "worker" "vectors") "role" "vectors" "agent" "" "entry" (omit .Values.vectors "spaces")) -}}
{{- end -}}
{{- range $name, $entry := .Values.sinks -}}
{{- if not (hasKey $.Values.vectors.spaces $entry.settings.space) -}}
{{- fail (printf "sinks.%s takes the space %s, which is not one of vectors.spaces" $name $entry.settings.space) -}}
{{- end -}}
{{- $agents = append $agents (dict "name" (printf "sink-%s" $name) "command" (list "worker" "sink" $name) "role" "sink" "agent" $name "entry" $entry) -}}
{{- end -}}
{{- $named := list -}}
{{- range $agents -}}
{{- $named = append $named .name -}}
{{- end -}}
{{- /* A service whose spaces all have a store reads models alone. */ -}}
{{- $role := "models" -}}
{{- range $name, $space := .Values.serve.spaces -}}
{{- if and $space.learner (not (hasKey (default dict $.Values.learners) $space.learner)) -}}
{{- fail (printf "serve.spaces.%s follows %s, which is not a learner" $name $space.learner) -}}
{{- end -}}
{{- if eq (default "index" $space.backend) "index" -}}{{- $role = "serve" -}}{{- end -}}
{{- end -}}
{{- range .Values.serve.spaces -}}
{{- if .record -}}{{- $role = "serve-record" -}}{{- end -}}
{{- end -}}
{{- /* It has no state, so no generations either. */ -}}
{{- if .Values.serve.spaces -}}
{{- $agents = append $agents (dict "name" "serve" "command" (list "serve") "role" $role "agent" "" "service" true "entry" (omit .Values.serve "spaces")) -}}
{{- end -}}
{{- if .Values.vectors.spaces -}}
{{- /* It keeps nothing and serves no page, and a second one would order versions twice. */ -}}
{{- $agents = append $agents (dict "name" "vectors-watch" "command" (list "vectors" "watch") "role" "vector-orders" "agent" "" "service" true "silent" true "entry" (dict "replicas" 1)) -}}
{{- end -}}
{{- range $agents -}}
{{- $_ := set . "workload" (mergeOverwrite (deepCopy $.Values.workload) (omit (deepCopy .entry) "settings")) -}}
{{- end -}}
{{- range .Values.newGeneration.agents -}}
{{- if not (has . $named) -}}
{{- fail (printf "newGeneration.agents: there is no %s; there are: %s" . (join ", " $named)) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "agents" $agents) -}}
{{- end -}}

{{- define "kinstream.bootstrap" -}}
{{- if .Values.kafka.bootstrapServers -}}
{{ .Values.kafka.bootstrapServers }}
{{- else if .Values.strimzi.enabled -}}
{{- $port := ternary 9092 9093 (has .Values.kafka.securityProtocol (list "PLAINTEXT" "SASL_PLAINTEXT")) -}}
{{ printf "%s-kafka-bootstrap:%d" (required "strimzi.cluster: the name of the Kafka resource" .Values.strimzi.cluster) $port }}
{{- else -}}
{{- fail "kafka.bootstrapServers: set the addresses of the brokers" -}}
{{- end -}}
{{- end -}}

{{/* Broker settings of a pod: (dict "root" $ "user" NAME), NAME of its KafkaUser or empty. As JSON: env, volumes, mounts. */}}
{{- define "kinstream.kafka" -}}
{{- $root := .root -}}
{{- $kafka := $root.Values.kafka -}}
{{- $own := and $root.Values.strimzi.enabled $root.Values.strimzi.users .user -}}
{{- $env := list (dict "name" "KAFKA_BOOTSTRAP_SERVERS" "value" (include "kinstream.bootstrap" $root)) -}}
{{- $env = append $env (dict "name" "KAFKA_SECURITY_PROTOCOL" "value" $kafka.securityProtocol) -}}
{{- $sources := list -}}
{{- $sasl := hasPrefix "SASL" $kafka.securityProtocol -}}
{{- $tls := hasSuffix "SSL" $kafka.securityProtocol -}}
{{- if and $sasl (eq $kafka.saslMechanism "OAUTHBEARER") -}}
{{- $oauth := $kafka.oauth -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_MECHANISM" "value" $kafka.saslMechanism) -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL" "value" (required "kafka.oauth.tokenEndpointUrl: OAUTHBEARER needs it" $oauth.tokenEndpointUrl)) -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_OAUTHBEARER_CLIENT_ID" "value" (required "kafka.oauth.clientId: OAUTHBEARER needs it" $oauth.clientId)) -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE" "value" "/etc/kafka-secrets/client-secret") -}}
{{- $name := required "kafka.oauth.clientSecret.name: OAUTHBEARER needs a Secret with the client secret" $oauth.clientSecret.name -}}
{{- $sources = append $sources (dict "secret" (dict "name" $name "items" (list (dict "key" $oauth.clientSecret.key "path" "client-secret")))) -}}
{{- if $oauth.scope -}}{{- $env = append $env (dict "name" "KAFKA_SASL_OAUTHBEARER_SCOPE" "value" $oauth.scope) -}}{{- end -}}
{{- if $oauth.extensions -}}{{- $env = append $env (dict "name" "KAFKA_SASL_OAUTHBEARER_EXTENSIONS" "value" $oauth.extensions) -}}{{- end -}}
{{- if $oauth.caSecret.name -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_OAUTHBEARER_CA_FILE" "value" "/etc/kafka-secrets/oauth-ca.crt") -}}
{{- $sources = append $sources (dict "secret" (dict "name" $oauth.caSecret.name "items" (list (dict "key" $oauth.caSecret.key "path" "oauth-ca.crt")))) -}}
{{- end -}}
{{- else if and $sasl (eq $kafka.saslMechanism "AWS_MSK_IAM") -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_MECHANISM" "value" $kafka.saslMechanism) -}}
{{- if $kafka.awsRegion -}}{{- $env = append $env (dict "name" "AWS_REGION" "value" $kafka.awsRegion) -}}{{- end -}}
{{- else if $sasl -}}
{{- $user := $kafka.saslUsername -}}
{{- $secret := $kafka.saslPasswordSecret -}}
{{- if $own -}}
{{- if ne $root.Values.strimzi.authentication "scram-sha-512" -}}{{- fail "strimzi.authentication: SASL needs scram-sha-512" -}}{{- end -}}
{{- $user = .user -}}
{{- $secret = dict "name" .user "key" "password" -}}
{{- end -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_MECHANISM" "value" $kafka.saslMechanism) -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_USERNAME" "value" (required "kafka.saslUsername: SASL needs it" $user)) -}}
{{- $env = append $env (dict "name" "KAFKA_SASL_PASSWORD_FILE" "value" "/etc/kafka-secrets/sasl-password") -}}
{{- $name := required "kafka.saslPasswordSecret.name: SASL needs a Secret with the password" $secret.name -}}
{{- $sources = append $sources (dict "secret" (dict "name" $name "items" (list (dict "key" $secret.key "path" "sasl-password")))) -}}
{{- end -}}
{{- if $tls -}}
{{- $ca := $kafka.tls.caSecret -}}
{{- if and $root.Values.strimzi.enabled (not $ca.name) -}}
{{- $ca = dict "name" (printf "%s-cluster-ca-cert" $root.Values.strimzi.cluster) "key" "ca.crt" -}}
{{- end -}}
{{- if $ca.name -}}
{{- $env = append $env (dict "name" "KAFKA_SSL_CA_FILE" "value" "/etc/kafka-secrets/ca.crt") -}}
{{- $sources = append $sources (dict "secret" (dict "name" $ca.name "items" (list (dict "key" $ca.key "path" "ca.crt")))) -}}
{{- end -}}
{{- $client := $kafka.tls.clientSecret -}}
{{- if and $own (not $sasl) -}}
{{- if ne $root.Values.strimzi.authentication "tls" -}}{{- fail "strimzi.authentication: SSL without SASL needs tls" -}}{{- end -}}
{{- $client = dict "name" .user "certificateKey" "user.crt" "keyKey" "user.key" -}}
{{- end -}}
{{- if $client.name -}}
{{- $env = append $env (dict "name" "KAFKA_SSL_CERTIFICATE_FILE" "value" "/etc/kafka-secrets/client.crt") -}}
{{- $env = append $env (dict "name" "KAFKA_SSL_KEY_FILE" "value" "/etc/kafka-secrets/client.key") -}}
{{- $items := list (dict "key" $client.certificateKey "path" "client.crt") (dict "key" $client.keyKey "path" "client.key") -}}
{{- $sources = append $sources (dict "secret" (dict "name" $client.name "items" $items)) -}}
{{- with $kafka.tls.keyPasswordSecret -}}
{{- if .name -}}
{{- $env = append $env (dict "name" "KAFKA_SSL_KEY_PASSWORD_FILE" "value" "/etc/kafka-secrets/key-password") -}}
{{- $sources = append $sources (dict "secret" (dict "name" .name "items" (list (dict "key" .key "path" "key-password")))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- if $sources -}}
{{- $volumes = list (dict "name" "kafka-secrets" "projected" (dict "defaultMode" 288 "sources" $sources)) -}}
{{- $mounts = list (dict "name" "kafka-secrets" "mountPath" "/etc/kafka-secrets" "readOnly" true) -}}
{{- end -}}
{{- toJson (dict "env" $env "volumes" $volumes "mounts" $mounts) -}}
{{- end -}}

{{/* The label `job` of all series of the release. */}}
{{- define "kinstream.job" -}}
{{- default (printf "kinstream-%s-%s" .Release.Namespace .Release.Name) .Values.serviceMonitor.job -}}
{{- end -}}

{{/* Not empty if an autoscaler sets the replicas of an agent: (dict "root" $ "agent" AGENT). With replicas 0 the agent is stopped. */}}
{{- define "kinstream.scaled" -}}
{{- if and (hasKey (default dict .root.Values.autoscaling.agents) .agent.name) (gt (.agent.workload.replicas | int) 0) -}}yes{{- end -}}
{{- end -}}

{{/* Name of the KafkaUser of an agent: (dict "root" $ "agent" NAME). */}}
{{- define "kinstream.user" -}}
{{- if and .root.Values.strimzi.enabled .root.Values.strimzi.users -}}
{{- include "kinstream.agentName" . -}}
{{- end -}}
{{- end -}}

{{- define "kinstream.noRights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/*
The pod of one command: (dict "root" $ "workload" MAP "arguments" LIST "component" NAME "serves" BOOL "probes" BOOL "user" NAME).
`serves`: it has a metrics page. `workload.secretFiles` is a name, or a list of names whose keys differ.
*/}}
{{- define "kinstream.pod" -}}
{{- $root := .root -}}
{{- $workload := .workload -}}
{{- $kafka := include "kinstream.kafka" (dict "root" $root "user" .user) | fromJson -}}
{{- $worker := $root.Values.settings.worker -}}
{{- $claim := include "kinstream.claim" $root -}}
{{- $service := eq .component "serve" -}}
{{- $port := $worker.http_port -}}
{{- if $service -}}{{- $port = $root.Values.serve.settings.http_port -}}{{- end -}}
{{- $gate := $root.Values.gate -}}
{{- /* Whether it keeps copies of models: docs/gate.md, "When the decided model is missing". */ -}}
{{- $copies := false -}}
{{- if and $claim $service -}}
{{- range $space, $_ := $root.Values.serve.spaces -}}
{{- if hasKey (default dict $gate.spaces) $space -}}{{- $copies = true -}}{{- end -}}
{{- end -}}
{{- end -}}
serviceAccountName: {{ include "kinstream.serviceAccount" $root }}
automountServiceAccountToken: false
# A Service called kafka or kinstream would otherwise become variables that look like settings.
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
# The worker ends hard after shutdown_seconds, and its supervisor kills it 5 s later: by then no process is left.
terminationGracePeriodSeconds: {{ add (ceil $worker.shutdown_seconds | int) 15 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- if $copies }}
initContainers:
  # A missing folder would be made by the kubelet, as root.
  - name: gate-models
    image: {{ include "kinstream.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [/opt/kinstream/venv/bin/python, -c, "import os; os.makedirs('/var/lib/kinstream/gate-models', exist_ok=True)"]
    resources: {{- toYaml $workload.resources | nindent 6 }}
    securityContext: {{- include "kinstream.noRights" . | nindent 6 }}
    volumeMounts:
      - name: checkpoints
        mountPath: /var/lib/kinstream
{{- end }}
containers:
  - name: kinstream
    image: {{ include "kinstream.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{- toYaml .arguments | nindent 6 }}
    env: {{- concat $kafka.env $workload.extraEnv | toYaml | nindent 6 }}
    {{- with $root.Values.checkpoints.credentialsSecret }}
    envFrom:
      - secretRef:
          name: {{ . }}
    {{- end }}
    {{- if .serves }}
    ports:
      - name: metrics
        containerPort: {{ $port | int }}
    {{- end }}
    {{- if .probes }}
    # The page starts after the brokers have answered and kernels are loaded.
    startupProbe:
      httpGet: {path: /healthz, port: metrics}
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: {{ div (add (ceil $worker.startup_seconds | int) 60) 5 }}
    livenessProbe:
      httpGet: {path: /healthz, port: metrics}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: {{ max 1 (div ($workload.livenessSeconds | int) 10) }}
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 3
    {{- end }}
    resources: {{- toYaml $workload.resources | nindent 6 }}
    securityContext: {{- include "kinstream.noRights" . | nindent 6 }}
    volumeMounts:
      - name: settings
        mountPath: /etc/kinstream
        readOnly: true
      - name: tmp
        mountPath: /tmp
      {{- if $claim }}
      - name: checkpoints
        mountPath: /var/lib/kinstream
        {{- if $service }}
        readOnly: true
        {{- end }}
      {{- end }}
      {{- if $copies }}
      - name: checkpoints
        mountPath: /var/lib/kinstream/gate-models
        subPath: gate-models
      {{- end }}
      {{- if $workload.secretFiles }}
      - name: secret-files
        mountPath: /etc/kinstream-secrets
        readOnly: true
      {{- end }}
      {{- if include "kinstream.signs" $root }}
      - name: gate-key
        mountPath: /etc/kinstream-gate
        readOnly: true
      {{- end }}
      {{- with $kafka.mounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: settings
    configMap:
      name: {{ include "kinstream.fullname" $root }}
  # Links to the image's kernels, kernels that it lacks, and what libraries leave behind.
  - name: tmp
    emptyDir:
      sizeLimit: 1Gi
  {{- if $claim }}
  - name: checkpoints
    persistentVolumeClaim:
      claimName: {{ $claim }}
  {{- end }}
  {{- with $workload.secretFiles }}
  - name: secret-files
    {{- if kindIs "slice" . }}
    projected:
      defaultMode: 288
      sources:
        {{- range . }}
        - secret:
            name: {{ . }}
        {{- end }}
    {{- else }}
    secret:
      secretName: {{ . }}
      defaultMode: 288
    {{- end }}
  {{- end }}
  {{- if include "kinstream.signs" $root }}
  - name: gate-key
    secret:
      secretName: {{ required "gate.keySecret.name: the gate, and lists that are randomised or recorded, need a Secret with their key" $gate.keySecret.name }}
      defaultMode: 288
      items:
        - key: {{ $gate.keySecret.key }}
          path: key
        {{- with $gate.keySecret.retiringKey }}
        - key: {{ . }}
          path: retiring
        {{- end }}
  {{- end }}
  {{- with $kafka.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $workload.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $workload.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $workload.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $workload.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
topologySpreadConstraints:
{{- if $workload.topologySpreadConstraints }}
{{- toYaml $workload.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "kinstream.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}
