package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// repository is the path from here to the repository's root.
const repository = "../.."

func TestRepository(t *testing.T) {
	t.Parallel()
	findings, err := check(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

// spoiled is the repository with some files replaced. nil removes a file.
type spoiled struct {
	fs.FS
	files map[string][]byte
}

func (s spoiled) Open(name string) (fs.File, error) {
	text, ok := s.files[name]
	switch {
	case !ok:
		return s.FS.Open(name)
	case text == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fstest.MapFS{name: {Data: text}}.Open(name)
}

// ReadDir leaves out the removed files.
func (s spoiled) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(s.FS, name)
	var left []fs.DirEntry
	for _, e := range all {
		if text, ok := s.files[name+"/"+e.Name()]; !ok || text != nil {
			left = append(left, e)
		}
	}
	return left, err
}

const (
	apiYAML     = "cloudrun/yaml/api.yaml"
	workerYAML  = "cloudrun/yaml/worker.yaml"
	drainYAML   = "cloudrun/yaml/drain.yaml"
	apiTF       = "cloudrun/terraform/api.tf"
	localsTF    = "cloudrun/terraform/locals.tf"
	databaseTF  = "cloudrun/terraform/database.tf"
	variablesTF = "cloudrun/terraform/variables.tf"
)

// Each case spoils one line. The check must report that line, with that
// sentence.
var spoils = []struct {
	name, file string
	// The first occurrence of old is replaced by new. The reported line
	// contains at, or new if at is empty.
	old, new, at string
	want         string
}{
	// Manifests.
	{"a misspelt field", apiYAML, "containerConcurrency:", "containerConcurency:", "", "spec.template.spec.containerConcurency is not a field of RevisionSpec"},
	{"a field of another kind", drainYAML, "maxRetries: 0", "containerConcurrency: 1", "", "containerConcurrency is not a field of TaskSpec"},
	{"a field in the wrong place", workerYAML, "    spec:\n", "    scaling: {}\n    spec:\n", "    scaling: {}", "spec.template.scaling is not a field of RevisionTemplate"},
	{"a duplicate key", apiYAML, "timeoutSeconds: 300", "timeoutSeconds: 300\n      timeoutSeconds: 60", "timeoutSeconds: 60", "timeoutSeconds occurs twice"},
	{"a job's timeout without quotes", drainYAML, `"120"`, "120", "", `timeoutSeconds must be a number in quotes: "120"`},
	{"a port in quotes", apiYAML, "containerPort: 8080", `containerPort: "8080"`, "", "containerPort must be a whole number"},
	{"an annotation that is a number", apiYAML, `minScale: "1"`, "minScale: 1", "", "must be a text, in quotes"},
	{"an annotation of another kind", workerYAML, "    metadata:\n      annotations:\n", "    metadata:\n      annotations:\n        autoscaling.knative.dev/minScale: \"1\"\n", "minScale: \"1\"", "a WorkerPool template has no annotation autoscaling.knative.dev/minScale, which a Service template has"},
	{"a misspelt annotation", apiYAML, "run.googleapis.com/cpu-throttling", "run.googleapis.com/cpu-throtling", "", "a Service template has no annotation"},
	{"an annotation's value", apiYAML, `cpu-throttling: "false"`, `cpu-throttling: "no"`, "", "must match ^(true|false)$"},
	{"no socket", drainYAML, "run.googleapis.com/cloudsql-instances: PROJECT_ID:REGION:holdfast", "run.googleapis.com/vpc-access-egress: all-traffic", "    metadata:\n      annotations", "no socket to the database"},
	{"the wrong apiVersion", workerYAML, "run.googleapis.com/v1", "serving.knative.dev/v1", "", "the apiVersion must be run.googleapis.com/v1"},
	{"a variable that no program reads", apiYAML, "name: METRICS_ADDRESS", "name: METRIC_ADDRESS", "", "no program reads the variable METRIC_ADDRESS"},
	{"a variable without a value", apiYAML, "value: cloud", `value: ""`, "LOG_FORMAT", "the variable LOG_FORMAT has neither a value nor a secret"},
	{"a secret that is not created", apiYAML, "name: holdfast-database-url", "name: holdfast-database", "", "the secret holdfast-database is not created"},
	{"no secret", drainYAML, "name: DATABASE_URL\n                  valueFrom", "name: OTEL_X\n                  valueFrom", "name: holdfast-drain", "drain is not given DATABASE_URL"},
	{"a volume's secret that is not created", workerYAML, "secretName: holdfast-collector", "secretName: collector", "- name: collector\n          secret", "the secret collector is not created"},
	{"a volume that does not exist", apiYAML, "volumeMounts:\n            - name: collector", "volumeMounts:\n            - name: collectors", "- name: collectors", "which is not a volume"},
	{"the wrong program", drainYAML, "command: [/worker]", "command: [/drain]", "", "the image has no program /drain"},
	{"a pass that does not exist", "cloudrun/yaml/sweep.yaml", "args: [sweep]", "args: [sweeps]", "", "oneshot has no pass sweeps"},
	{"the wrong probe path", apiYAML, "path: /readyz", "path: /ready", "", "api does not serve /ready"},
	{"the wrong probe port", workerYAML, "port: 8080", "port: 8081", "", "the startup probe of worker asks port 8081, but it listens on 8080"},
	{"a TCP probe", workerYAML, "            httpGet:\n              path: /readyz\n", "            tcpSocket:\n", "name: holdfast-worker", "worker has no HTTP startup probe"},
	{"metrics on the public port", apiYAML, "127.0.0.1:9090", ":8080", "METRICS_ADDRESS", "METRICS_ADDRESS of api is its public port"},
	{"ports of a worker pool", workerYAML, "command: [/worker]", "command: [/worker]\n          ports: [{containerPort: 8080}]", "ports:", "a worker pool receives no calls"},
	{"a soft limit at the hard one", apiYAML, "value: 800MiB", "value: 1000MiB", "GOMEMLIMIT", "leaves less than 15 % of its memory limit 1Gi"},
	{"a task timeout below its pass", drainYAML, `timeoutSeconds: "120"`, `timeoutSeconds: "85"`, "", "must be above ONESHOT_TIME_MAX + DATABASE_WAIT_MAX + 20 s = 1m25s"},
	{"the default of retries", drainYAML, "          maxRetries: 0\n", "", "name: holdfast-drain", "must have 0 or 1 retries"},
	{"another name than the file's", drainYAML, "name: holdfast-drain", "name: holdfast-drains", "", "the name must be holdfast-drain"},
	{"not YAML", drainYAML, "kind: Job", "kind: [Job", "apiVersion:", "it is not YAML"},

	// Terraform.
	{"an unknown argument", apiTF, "cpu_idle          = tobool", "cpu_idles         = tobool", "", "An argument named \"cpu_idles\" is not expected here"},
	{"an unknown block", apiTF, "    scaling {", "    scalings {", "", "Blocks of type \"scalings\" are not expected here"},
	{"a missing argument", databaseTF, "  database_version    = \"POSTGRES_17\"\n", "", "resource \"google_sql_database_instance\"", "The argument \"database_version\" is required"},
	{"an argument that the provider sets", apiTF, "  invoker_iam_disabled = true\n", "  invoker_iam_disabled = true\n  uri = \"https://x\"\n", "  uri = ", "An argument named \"uri\" is not expected here"},
	{"a value of another type", apiTF, "container_port = ports.value.containerPort", "container_port = \"http\"", "", "a number is required"},
	{"a value that is not listed", apiTF, "INGRESS_TRAFFIC_ALL", "INGRESS_ALL", "", "ingress must be one of"},
	{"a block too many", "cloudrun/terraform/schedules.tf", "  retry_config {\n", "  retry_config {\n  }\n\n  retry_config {\n", "  retry_config {\n    retry_count", "Too many retry_config blocks"},
	{"an unknown resource", databaseTF, "google_sql_database\" \"holdfast", "google_sql_databases\" \"holdfast", "", "google_sql_databases is not in google.json"},
	{"a variable that is not declared", apiTF, "var.api_instances_max", "var.api_instances", "", "var.api_instances is not declared"},
	{"a variable that is not used", variablesTF, "variable \"worker\" {", "variable \"workers\" {\n  default = \"\"\n}\n\nvariable \"worker\" {", "variable \"workers\"", "the variable workers is not used"},
	{"a local that is not declared", apiTF, "local.env", "local.envs", "", "local.envs is not declared"},
	{"a resource that is not declared", localsTF, "google_secret_manager_secret.database_url.secret_id", "google_secret_manager_secret.database.secret_id", "", "google_secret_manager_secret.database is not declared"},
	{"an attribute that does not exist", databaseTF, "google_sql_database_instance.holdfast.connection_name}", "google_sql_database_instance.holdfast.connection}", "", "has no attribute connection"},
	{"a key that for_each does not make", apiTF, "google_service_account.program[\"api\"]", "google_service_account.program[\"apis\"]", "", "Invalid index"},
	{"an unknown function", databaseTF, "tostring(var", "tostrings(var", "", "There is no function named \"tostrings\""},
	{"a file that is not formatted", variablesTF, "  type        = string", "  type = string", "", "it is not formatted"},
	{"a file that cannot be parsed", variablesTF, "default     = 3", "default     = = 3", "", "Invalid expression"},
	{"a schema of other resources", "cloudrun/check/schema/main.go", "\"google_sql_user\"", "\"google_sql_users\"", "cloudrun/check/google.json {", "it was made from another cloudrun/check/schema"},
	{"another provider", "cloudrun/terraform/versions.tf", "~> 8.0", "~> 7.0", "google = {", "the provider's version must be \"~> 8.0\""},
	{"too many connections", variablesTF, "default     = 400", "default     = 200", "cloudrun/terraform/database.tf local.connections_most <= var", "The programs can need 255 connections and the database has 200: 6 api × 23"},
	{"connections that the programs do not open", localsTF, "worker  = 20", "worker  = 9", "connections = {", "local.connections counts 9 connections of worker, which opens up to 20"},
	{"too few instances", variablesTF, "default     = 1\n", "default     = 0\n", "api_instances_min >= 1", "must be at least 1"},
	{"a variable of Terraform that no program reads", localsTF, "{ HOT_DETECT = ", "{ HOT_DETECTS = ", "env = {", "no program reads the variable HOT_DETECTS of api"},
	{"a part that a manifest does not have", apiTF, "].containerConcurrency", "].concurrency", "", "This object does not have an attribute named \"concurrency\""},
	{"a new constant in the code", "cmd/internal/boot/worker.go", "const workerConns = 7", "const workerConns = 9", "cloudrun/terraform/locals.tf connections = {", "which opens up to 22"},
	{"a renamed variable in the code", "cmd/internal/config/lanes.go", "env:\"ONESHOT_TIME_MAX,", "env:\"ONESHOT_MAX,", "cloudrun/yaml/drain.yaml name: ONESHOT_TIME_MAX", "no program reads the variable ONESHOT_TIME_MAX"},

	// Alerts, metrics, dashboards.
	{"a query of an unknown metric", "cloudrun/alerts.yaml", "max by (lane) (holdfast_lane_depth)", "max by (lane) (holdfast_lanes_depth)", "", "the query names holdfast_lanes_depth, which is not in cloudrun/metrics.yaml"},
	{"a query of an unknown label", "cloudrun/alerts.yaml", "{whose=\"all\"", "{who=\"all\"", "", "by the label who, which it does not have"},
	{"a grouping by an unknown label", "cloudrun/alerts.yaml", "sum by (reason)", "sum by (cause)", "", "groups holdfast_admission_refusals_total by the label cause"},
	{"a rate of a gauge", "cloudrun/alerts.yaml", "max by (lane) (holdfast_lane_depth)", "max by (lane) (rate(holdfast_lane_depth[5m]))", "", "which is a gauge"},
	{"a counter without a rate", "cloudrun/alerts.yaml", "sum by (lane) (increase(holdfast_lane_sequence_behind_total[1h]))", "sum by (lane) (holdfast_lane_sequence_behind_total)", "", "use its rate or increase"},
	{"a query that cannot be parsed", "cloudrun/alerts.yaml", "max(holdfast_sweep_lag_seconds) > 300", "max(holdfast_sweep_lag_seconds > 300", "", "the query cannot be parsed"},
	{"a window shorter than the schedule", "cloudrun/alerts.yaml", "window: 17m", "window: 4m", "", "must be 3 × 5m0s + 2m0s = 17m0s, not 4m"},
	{"a schedule longer than the window", "cloudrun/alerts.yaml", "'*/5 * * * *'", "'*/30 * * * *'", "window: 17m", "must be 3 × 30m0s + 2m0s"},
	{"a query with a range other than the window", "cloudrun/alerts.yaml", "[17m]", "[7m]", "", "does not have the range of its window"},
	{"a schedule that cannot be parsed", "cloudrun/alerts.yaml", "'*/5 * * * *'", "'*/5 * * *'", "", "expected exactly 5 fields"},
	{"a job that does not exist", "cloudrun/alerts.yaml", "job: purge", "job: purges", "", "the home job has no job purges"},
	{"an unknown severity", "cloudrun/alerts.yaml", "severity: ERROR", "severity: ERRORS", "", "must be CRITICAL, ERROR or WARNING"},
	{"an unknown field of an alert", "cloudrun/alerts.yaml", "slack: 2m", "slak: 2m", "", "slak is not a field of alert"},
	{"a missing playbook", "cloudrun/alerts.yaml", "playbook: tail.md", "playbook: tails.md", "", "there is no playbook cloudrun/playbooks/tails.md"},
	{"a playbook of another alert", "cloudrun/alerts.yaml", "playbook: tail.md", "playbook: queue.md", "", "does not mention `tail-late`"},
	{"a threshold of another database", "cloudrun/alerts.yaml", "> 320", "> 160", "", "80 % of max_connections"},
	{"an instrument that no code makes", "cloudrun/metrics.yaml", "holdfast_lane_moves_total\n    instrument: holdfast.lane.moves", "holdfast_lane_motions_total\n    instrument: holdfast.lane.motions", "holdfast_lane_motions_total", "no code makes the instrument holdfast.lane.motions"},
	{"an instrument of another kind", "cloudrun/metrics.yaml", "name: holdfast_lane_moves_total\n    instrument: holdfast.lane.moves\n    type: counter", "name: holdfast_lane_moves\n    instrument: holdfast.lane.moves\n    type: gauge", "name: holdfast_lane_moves", "is a counter in the code, not a gauge"},
	{"an instrument of another unit", "internal/telemetry/state.go", `"holdfast.sweep.lag", "s"`, `"holdfast.sweep.lag", "ms"`, "cloudrun/metrics.yaml name: holdfast_sweep_lag_seconds", "the unit of the instrument holdfast.sweep.lag is \"ms\" in the code, not \"s\""},
	{"an instrument made by a renamed helper", "internal/telemetry/instruments.go", `counter("holdfast.job.successes"`, `counter("holdfast.job.passes"`, "cloudrun/metrics.yaml # Every metric", "the instrument holdfast.job.passes of the code is not in the table"},
	{"a label that every series has", "cloudrun/metrics.yaml", "labels: [pass]", "labels: [job]", "", "has a label job, which every series has with another meaning"},
	{"a metric's wrong name", "cloudrun/metrics.yaml", "name: holdfast_lane_moves_total", "name: holdfast_lane_moves", "", "is exported as holdfast_lane_moves_total"},
	{"a misspelt field of a dashboard", cloudBoard, "\"plotType\"", "\"plotTypes\"", "", "it is not a dashboard of Cloud Monitoring"},
	{"a misspelt field of a panel", grafanaBoard, "\"gridPos\"", "\"gridPosition\"", "", "it is not a dashboard of Grafana"},
	{"dashboards that differ", cloudBoard, "max by (lane) (holdfast_lane_depth)", "min by (lane) (holdfast_lane_depth)", "Requests waiting", "has another query"},
	{"a dashboard's unknown metric", grafanaBoard, "sum by (by) (rate(holdfast_reservations_expired_total[5m]))", "sum by (by) (rate(holdfast_swept_total[5m]))", "", "names holdfast_swept_total"},

	// The image, Compose, the collector.
	{"an image with a shell", dockerfile, "FROM scratch", "FROM alpine", "", "the image's base must be scratch"},
	{"an image as root", dockerfile, "USER 65532:65532", "USER root", "", "must run as USER 65532:65532"},
	{"programs with a C library", dockerfile, "RUN CGO_ENABLED=0 go", "RUN go", "RUN go build", "built without CGO_ENABLED=0"},
	{"a program that is left out", dockerfile, " ./cmd/worker", "", "RUN CGO_ENABLED", "the program worker is not built"},
	{"a misspelt instruction", dockerfile, "USER 65532", "USERS 65532", "", "unknown instruction: USERS"},
	{"an image with a default program", dockerfile, "# No ENTRYPOINT", "CMD [\"/api\"]\n# No ENTRYPOINT", "CMD", "the image must have no default program"},
	{"a folder that is excluded from the build", ignoreFile, "!sweeper\n", "", "# What the build", "it excludes sweeper from the build"},
	{"an embedded folder that is excluded from the build", "internal/httpapi/document_examples.go", "go:embed golden/", "go:embed testdata/", "package httpapi", "it embeds a folder testdata"},
	{"Compose: a misspelt field", "compose.yaml", "read_only: true", "readonly: true", "", "readonly is not a field of composeService"},
	{"Compose: a variable that no program reads", "compose.yaml", "HOLDFAST_URL:", "HOLDFAST_URI:", "", "no program reads the variable HOLDFAST_URI"},
	{"Compose: a port on which no program listens", "compose.yaml", "\"8080:8080\"", "\"8080:80\"", "", "api listens on 8080"},
	{"Compose: a service that does not exist", "compose.yaml", "      postgres:\n        condition", "      database:\n        condition", "      database:", "depends on database, which is not a service"},
	{"the collector: a batch of metrics", collectorFile, "processors: [memory_limiter, resourcedetection]", "processors: [memory_limiter, batch/traces]", "", "metrics must not be batched"},
	{"the collector: an exporter that does not exist", collectorFile, "exporters: [googlecloud]", "exporters: [googletrace]", "", "googletrace is not declared under exporters"},
}

func TestSpoiled(t *testing.T) {
	t.Parallel()
	root := os.DirFS(repository)
	code, err := readCode(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range spoils {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := read(t, root, c.file)
			if !strings.Contains(text, c.old) {
				t.Fatalf("%s has no %q to spoil", c.file, c.old)
			}
			changed := strings.Replace(text, c.old, c.new, 1)
			offset := strings.Index(text, c.old)
			tree := spoiled{root, map[string][]byte{c.file: []byte(changed)}}
			file, in := c.file, changed
			switch {
			case strings.HasPrefix(c.at, "cloudrun/"):
				file, c.at, _ = strings.Cut(c.at, " ")
				in = read(t, root, file)
				offset = strings.Index(in, c.at)
			case c.at != "":
				offset = nearest(in, c.at, offset)
			}
			if offset < 0 {
				t.Fatalf("%s has no %q", file, c.at)
			}
			want := fmt.Sprintf("%s:%d: ", file, 1+strings.Count(in[:offset], "\n"))
			findings, err := checkAgainst(tree, code)
			if strings.HasSuffix(c.file, ".go") {
				findings, err = check(tree)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if strings.HasPrefix(f.String(), want) && strings.Contains(f.text, c.want) {
					return
				}
			}
			t.Errorf("no finding %s…%s in %d:\n%s", want, c.want, len(findings), lines(findings))
		})
	}
}

// nearest returns the index of a text: the last one before offset, or else the
// first one from offset on.
func nearest(in, text string, offset int) int {
	end := min(len(in), offset+len(text))
	if before := strings.LastIndex(in[:end], text); before >= 0 {
		return before
	}
	if after := strings.Index(in[offset:], text); after >= 0 {
		return offset + after
	}
	return -1
}

// A missing file or folder is found too.
func TestAbsent(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"cloudrun/playbooks/tail.md":      "cloudrun/alerts.yaml:",
		"cloudrun/yaml/drain.yaml":        "the home job has no job drain in cloudrun/yaml",
		"cloudrun/terraform/schedules.tf": "",
	} {
		findings, err := check(spoiled{os.DirFS(repository), map[string][]byte{name: nil}})
		if err != nil {
			t.Errorf("without %s: %v", name, err)
			continue
		}
		if want != "" && !strings.Contains(lines(findings), want) {
			t.Errorf("without %s: no finding %q in\n%s", name, want, lines(findings))
		}
	}
	for _, name := range []string{"Dockerfile", "compose.yaml", collectorFile, alertsFile, metricsFile, grafanaBoard, schemaFile, operatingPage} {
		if _, err := check(spoiled{os.DirFS(repository), map[string][]byte{name: nil}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v, want an error that names it", name, err)
		}
	}
}

// docs/operating.md has each table between two marks, equal to the table of the
// file.
func TestTables(t *testing.T) {
	t.Parallel()
	root := os.DirFS(repository)
	var alerts alertTable
	var metrics metricTable
	for _, c := range []struct {
		file  string
		table interface{ markdown() string }
		cell  string
	}{{alertsFile, &alerts, "| 17m |"}, {metricsFile, &metrics, "| gauge |"}} {
		if _, ok, err := decodeStrict(root, c.file, c.table, &report{}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		begin, end := beginMarker(c.file), endMarker(c.file)
		page, err := withTable("# Operating\n\n"+begin+end+"\nMore.\n", c.file, c.table.markdown())
		if err != nil || !strings.HasSuffix(page, end+"\nMore.\n") || !strings.Contains(page, c.cell) {
			t.Fatalf("%v in\n%s", err, page)
		}
		if _, err := withTable("# Operating\n", c.file, c.table.markdown()); err == nil {
			t.Errorf("%s: a page without its marks is not an error", c.file)
		}
		for text, line := range map[string]int{
			page:            0,
			"# Operating\n": 1,
			strings.Replace(page, c.cell, "| other |", 1): 3,
			strings.Replace(page, end, "", 1):             3,
		} {
			r := &report{}
			if err := checkTable(spoiled{root, map[string][]byte{operatingPage: []byte(text)}}, c.file, c.table.markdown(), r); err != nil {
				t.Fatal(err)
			}
			if line == 0 && len(r.findings) != 0 || line > 0 && (len(r.findings) != 1 || r.findings[0].place != place{operatingPage, line}) {
				t.Errorf("want a finding at line %d (0: none), got %d:\n%s%s", line, len(r.findings), lines(r.findings), text)
			}
		}
	}
}

func read(t *testing.T, root fs.FS, file string) string {
	t.Helper()
	text, err := fs.ReadFile(root, file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func lines(findings []finding) string {
	var all strings.Builder
	for _, f := range findings {
		fmt.Fprintln(&all, f)
	}
	return all.String()
}
