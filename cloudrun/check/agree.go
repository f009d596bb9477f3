package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// formOnly are fields that the manifests and Terraform express differently. The
// manifests name the database in an annotation, and mount the collector's
// configuration by a volume that the schema of Terraform lists elsewhere.
var formOnly = []string{"cloudsql", "volume.", ".mount."}

// checkAgreement compares each manifest with the same unit of Terraform. The
// units are those of the home with a pool, and those that only the home with
// jobs has. It reports a difference at the line of Terraform.
func checkAgreement(manifests []*unit, homes []*home, r *report) {
	seen := map[string]bool{}
	for _, home := range homes {
		for _, u := range home.units {
			if seen[u.name] {
				continue
			}
			seen[u.name] = true
			i := slices.IndexFunc(manifests, func(m *unit) bool { return m.name == u.name })
			if i < 0 {
				r.add(u.place, "%s has no manifest in cloudrun/yaml", u.name)
				continue
			}
			compareUnits(u, manifests[i], r)
		}
	}
	if len(homes) == 0 {
		return
	}
	for _, m := range manifests {
		if !seen[m.name] {
			r.add(m.place, "%s is not in cloudrun/terraform", m.name)
		}
	}
}

func compareUnits(u, manifest *unit, r *report) {
	if u.kind != manifest.kind {
		r.add(u.place, "%s is a %s here and a %s in %s", u.name, u.kind, manifest.kind, manifest.place)
		return
	}
	compareFields(u, "", u.fields, manifest.place, manifest.fields, r)
	compareFields(u, "the variable ", u.env, manifest.place, manifest.env, r)
}

func compareFields(u *unit, prefix string, here map[string]field, elsewhere place, there map[string]field, r *report) {
	all := maps.Clone(here)
	maps.Copy(all, there)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.ContainsFunc(formOnly, func(part string) bool { return strings.Contains(name, part) }) {
			continue
		}
		a, inTerraform := here[name]
		b, inManifest := there[name]
		switch {
		case !inTerraform:
			r.add(u.place, "%s%s of %s is not set here, but %s in %s", prefix, name, u.name, b.value, b.place)
		case !inManifest:
			r.add(a.place, "%s%s of %s is %s here, but not set in %s", prefix, name, u.name, a.value, elsewhere)
		case a.known && b.known && a.value != b.value:
			r.add(a.place, "%s%s of %s is %s here, but %s in %s", prefix, name, u.name, a.value, b.value, b.place)
		}
	}
}

// checkSecrets reports secrets that a manifest names but Terraform, and
// therefore README.md, does not create.
func checkSecrets(manifests []*unit, homes []*home, r *report) {
	if len(homes) == 0 {
		return
	}
	made := map[string]bool{}
	for address, v := range homes[0].values {
		if !strings.HasPrefix(address, "google_secret_manager_secret.") {
			continue
		}
		if id, known := text(v, "secret_id"); known {
			made[id] = true
		}
	}
	for _, u := range manifests {
		for _, all := range []map[string]field{u.env, u.fields} {
			for name, f := range all {
				secret, isSecret := strings.CutPrefix(f.value, "secret ")
				if strings.HasPrefix(name, "volume.") {
					secret, isSecret = f.value, true
				}
				if isSecret && !made[secret] {
					r.add(f.place, "the secret %s is not created; there are %s", secret, strings.Join(slices.Sorted(maps.Keys(made)), ", "))
				}
			}
		}
	}
}

// checkConnections compares the numbers in the precondition with the
// connections that the programs open.
func checkConnections(home *home, code *code, r *report) {
	connections, ok := home.locals["connections"]
	if !ok || !connections.IsKnown() {
		r.add(place{terraformFolder + "/locals.tf", 1}, "there is no local.connections, which the precondition needs")
		return
	}
	variable := func(name string) int {
		n, err := strconv.Atoi(code.variables[name])
		if err != nil {
			return 0
		}
		return n
	}
	c := code.constants
	hot := variable("HOT_CONCURRENCY")
	drains := hot + (hot+1)/2 + 1 + variable("NORMAL_CONCURRENCY") + 2
	for name, want := range map[string]int{
		"api":     c["callConns"] + c["lanes"] + c["intakeConns"] + c["signalConns"] + c["verbConns"] + c["keyConns"] + c["liveConns"] + 2,
		"worker":  drains + c["workerConns"] + 2,
		"drain":   drains,
		"sweep":   c["maintenanceConns"],
		"purge":   c["maintenanceConns"],
		"recover": c["pool recover"],
		"verify":  c["pool tool"],
		"migrate": c["pool migrate"] + 2, // plus the connection with the migration lock and the one that migrates
	} {
		if got, known := text(connections, name); known && got != strconv.Itoa(want) {
			r.add(home.localAt["connections"], "local.connections counts %s connections of %s, which opens up to %d", got, name, want)
		}
	}
	most, known := text(home.locals["connections_most"])
	total, knownToo := text(cty.ObjectVal(home.variables), "max_connections")
	if !known || !knownToo {
		r.add(home.localAt["connections"], "the precondition cannot be evaluated: local.connections_most is %q, var.max_connections %q", most, total)
	}
}
