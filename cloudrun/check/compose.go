package main

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// composeFile has the fields of the Compose specification that compose.yaml
// uses. Any other field is a finding.
type composeFile struct {
	Name     string                     `json:"name"`
	Holdfast *composeService            `json:"x-holdfast"`
	Services map[string]*composeService `json:"services"`
	Volumes  map[string]any             `json:"volumes"`
}

type composeService struct {
	Image       string            `json:"image"`
	Build       string            `json:"build"`
	ReadOnly    bool              `json:"read_only"`
	CapDrop     []string          `json:"cap_drop"`
	SecurityOpt []string          `json:"security_opt"`
	Command     []string          `json:"command"`
	Entrypoint  []string          `json:"entrypoint"`
	Environment map[string]string `json:"environment"`
	Ports       []string          `json:"ports"`
	Profiles    []string          `json:"profiles"`
	Volumes     []string          `json:"volumes"`
	StopGrace   string            `json:"stop_grace_period"`
	Healthcheck *struct {
		Test     []string `json:"test"`
		Interval string   `json:"interval"`
		Timeout  string   `json:"timeout"`
		Retries  int64    `json:"retries"`
	} `json:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `json:"condition"`
	} `json:"depends_on"`
}

// checkCompose compares compose.yaml with the image and the programs'
// variables.
func checkCompose(root fs.FS, code *code, image *image, r *report) error {
	var c composeFile
	d, ok, err := decodeStrict(root, "compose.yaml", &c, r)
	if !ok || err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		s, path := c.Services[name], "services."+name
		for other := range s.DependsOn {
			if c.Services[other] == nil {
				r.add(d.at(path+".depends_on."+other), "%s depends on %s, which is not a service", name, other)
			}
		}
		if s.Image != "holdfast" {
			continue
		}
		command := append(slices.Clone(s.Entrypoint), s.Command...)
		switch {
		case len(command) == 0:
			r.add(d.at(path), "%s names no program, and the image has no default", name)
			continue
		case image.programs[command[0]] == "":
			r.add(d.at(path+".command"), "the image has no program %s", command[0])
			continue
		case image.programs[command[0]] == "oneshot" && (len(command) != 2 || !slices.Contains(code.passes, command[1])):
			r.add(d.at(path+".command"), "oneshot has no pass %s; it has %s", strings.Join(command[1:], " "), strings.Join(code.passes, ", "))
		}
		for variable := range s.Environment {
			if !code.reads(variable) {
				r.add(d.at(path+".environment."+variable), "no program reads the variable %s", variable)
			}
		}
		if s.Environment["DATABASE_URL"] == "" {
			r.add(d.at(path), "%s is not given DATABASE_URL", name)
		}
		if len(s.Ports) > 0 && !strings.HasSuffix(s.Ports[0], ":"+code.variables["PORT"]) {
			r.add(d.at(path+".ports"), "%s listens on %s, not on %s", name, code.variables["PORT"], s.Ports[0])
		}
	}
	return nil
}
