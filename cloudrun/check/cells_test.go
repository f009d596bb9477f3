package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

// With a second database, every program reads CELLS, may read its secret, and can
// connect to both instances.
func TestCells(t *testing.T) {
	t.Parallel()
	root := os.DirFS(repository)
	changed := read(t, root, variablesTF)
	for variable, value := range map[string]string{"cells_secret": `"holdfast-cells"`, "cells_instances": `["PROJECT_ID:us-central1:us"]`} {
		before, declared, _ := strings.Cut(changed, `variable "`+variable+`" {`)
		kind, after, ok := strings.Cut(declared, "default     = ")
		if !ok {
			t.Fatalf("%s has no variable %s with a default", variablesTF, variable)
		}
		_, after, _ = strings.Cut(after, "\n")
		changed = before + `variable "` + variable + `" {` + kind + "default     = " + value + "\n" + after
	}
	r := &report{}
	homes, err := readTerraform(spoiled{root, map[string][]byte{variablesTF: []byte(changed)}}, r)
	if err != nil || len(homes) != 2 || len(r.findings) > 0 {
		t.Fatalf("%d homes, %v\n%s", len(homes), err, lines(r.findings))
	}
	for _, home := range homes {
		programs := home.locals["secrets"].AsValueMap()
		for program, secrets := range programs {
			if all := secrets.AsValueMap(); all["CELLS"] == cty.NilVal || all["DATABASE_URL"] != cty.NilVal {
				t.Errorf("%s: the secrets of %s are %v, want CELLS and not DATABASE_URL", home.name, program, all)
			}
		}
		if n := home.values["google_secret_manager_secret_iam_member.cells"].LengthInt(); n != len(programs) || n == 0 {
			t.Errorf("%s: %d of %d programs may read the secret", home.name, n, len(programs))
		}
		want := []string{"google_cloud_run_v2_job.migrate", "google_cloud_run_v2_job.pass", "google_cloud_run_v2_service.api"}
		if home.name == "pool" {
			want = append(want, "google_cloud_run_v2_worker_pool.worker")
		}
		if got := connected(t, home, 2); !slices.Equal(got, want) {
			t.Errorf("%s: connected to both databases are %q, want %q", home.name, got, want)
		}
		expression := home.values["google_project_iam_member.database"].AsValueMap()["api"].GetAttr("condition").Index(cty.Zero).GetAttr("expression")
		if got := expression.AsString(); !strings.Contains(got, "/instances/us'") || !strings.Contains(got, "/instances/holdfast'") {
			t.Errorf("%s: the programs may connect where %s, want both instances", home.name, got)
		}
	}
}

// connected returns the resources of which every instance is connected to that
// many databases, in the order of their addresses.
func connected(t *testing.T, home *home, databases int) (addresses []string) {
	t.Helper()
	for address, value := range home.values {
		sockets, enough := 0, true
		err := cty.Walk(value, func(at cty.Path, v cty.Value) (bool, error) {
			if len(at) == 0 || !v.CanIterateElements() {
				return true, nil
			}
			if attribute, ok := at[len(at)-1].(cty.GetAttrStep); ok && attribute.Name == "instances" {
				sockets++
				enough = enough && len(v.AsValueSlice()) == databases
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if sockets > 0 && enough {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return addresses
}
