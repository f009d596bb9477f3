// Command check compares the files that run Holdfast on Cloud Run with the
// types, schemas and programs that they refer to. It needs no cloud account and
// no Terraform, gcloud or container engine:
//
//   - cloudrun/yaml, decoded strictly into the types of the Cloud Run API, its
//     annotations against a list per kind;
//   - cloudrun/terraform, which reads the manifests: its format, its values
//     against the schema of Google's provider (google.json), its references
//     and preconditions;
//   - cloudrun/alerts.yaml, metrics.yaml and dashboards: the syntax, metrics
//     and labels of their PromQL;
//   - Dockerfile, compose.yaml and cloudrun/collector.yaml;
//   - all of them against each other and against the programs: variables,
//     ports, paths, connections.
//
// It prints each finding as "file:line: sentence" and exits with 1 if there is
// one. Its tests also build and run the programs, with the environment of the
// manifests.
//
// It is a separate module, so that its imports are not dependencies of the
// programs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the repository's root")
	stale := flag.Bool("stale", false, "exit with 1 if google.json must be generated again, and check nothing else")
	tables := flag.Bool("table", false, "write the tables of metrics and alerts in docs/operating.md, and check nothing else")
	flag.Parse()
	var err error
	switch {
	case *stale:
		err = requireFresh(*root)
	case *tables:
		err = writeTables(*root)
	default:
		err = printFindings(*root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check-cloudrun:", err)
		os.Exit(1)
	}
}

func printFindings(root string) error {
	findings, err := check(os.DirFS(root))
	for _, f := range findings {
		fmt.Println(f)
	}
	if err == nil && len(findings) > 0 {
		err = fmt.Errorf("%d findings in the files that run Holdfast on Cloud Run", len(findings))
	}
	return err
}

func requireFresh(root string) error {
	schema, err := readSchema(os.DirFS(root))
	if err != nil {
		return err
	}
	stale, err := schema.stale(os.DirFS(root))
	if err == nil && stale {
		err = fmt.Errorf("%s was made from another cloudrun/check/schema", schemaFile)
	}
	return err
}

func writeTables(root string) error {
	text, err := os.ReadFile(filepath.Join(root, operatingPage))
	if err != nil {
		return err
	}
	var alerts alertTable
	var metrics metricTable
	page, r := string(text), &report{}
	for _, shown := range []struct {
		file  string
		table interface{ markdown() string }
	}{{metricsFile, &metrics}, {alertsFile, &alerts}} {
		if _, ok, err := decodeStrict(os.DirFS(root), shown.file, shown.table, r); !ok || err != nil {
			return errors.Join(err, fmt.Errorf("%s: %v", shown.file, r.findings))
		}
		if page, err = withTable(page, shown.file, shown.table.markdown()); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(root, operatingPage), []byte(page), 0o644)
}

// check reads a repository and returns the errors in the files that run it on
// Cloud Run, in the order of file and line. The error is for a check that
// cannot be made, such as of a file that cannot be read.
func check(root fs.FS) ([]finding, error) {
	code, err := readCode(root)
	if err != nil {
		return nil, err
	}
	return checkAgainst(root, code)
}

// checkAgainst is check with source that is already read.
func checkAgainst(root fs.FS, code *code) ([]finding, error) {
	r := &report{}
	image, err := checkDockerfile(root, code, r)
	if err != nil {
		return nil, err
	}
	manifests, err := readManifests(root, r)
	if err != nil {
		return nil, err
	}
	homes, err := readTerraform(root, r)
	if err != nil {
		return nil, err
	}
	for _, u := range manifests {
		checkUnit(u, code, image, r)
	}
	for _, home := range homes {
		checkVariables(home, code, r)
		checkConnections(home, code, r)
	}
	checkSecrets(manifests, homes, r)
	if err := checkMonitoring(root, code, manifests, homes, r); err != nil {
		return nil, err
	}
	if err := checkCompose(root, code, image, r); err != nil {
		return nil, err
	}
	if err := checkCollector(root, r); err != nil {
		return nil, err
	}
	return r.sorted(), nil
}
