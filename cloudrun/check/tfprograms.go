package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// checkVariables reports variables that Terraform adds to those of the
// manifests, and that no program reads.
func checkVariables(home *home, code *code, r *report) {
	for _, local := range []string{"env", "secrets"} {
		all, ok := home.locals[local]
		if !ok || !all.IsKnown() || !all.CanIterateElements() {
			r.add(place{terraformFolder + "/locals.tf", 1}, "there is no local.%s with the variables of each program", local)
			continue
		}
		for program, variables := range all.AsValueMap() {
			if !variables.IsKnown() { // the evaluation has found why
				continue
			}
			for name := range variables.AsValueMap() {
				if !code.reads(name) {
					r.add(home.localAt[local], "no program reads the variable %s of %s", name, program)
				}
			}
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
		"sweep":   c["pool sweep"],
		"purge":   c["pool purge"],
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
