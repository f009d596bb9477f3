package main

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	run "google.golang.org/api/run/v1"
)

// readManifests decodes cloudrun/yaml and checks each manifest alone. A file
// that cannot be decoded is a finding, and no unit is returned for it.
func readManifests(root fs.FS, r *report) ([]*unit, error) {
	files, err := fs.Glob(root, "cloudrun/yaml/*.yaml")
	if err != nil {
		return nil, err
	}
	var units []*unit
	for _, file := range files {
		u, err := readManifest(root, file, r)
		if err != nil {
			return nil, err
		}
		if u == nil {
			continue
		}
		if base := strings.TrimSuffix(path.Base(file), ".yaml"); u.name != base {
			r.add(u.place, "the name must be holdfast-%s, as in the file's name", base)
		}
		units = append(units, u)
	}
	return units, nil
}

func readManifest(root fs.FS, file string, r *report) (*unit, error) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Kind string `yaml:"kind"`
	}
	// Only the kind is needed here. Decoding into the type of the kind finds
	// other errors.
	if err := yamlnode.Unmarshal(text, &kind); err != nil && kind.Kind == "" {
		r.add(place{file, yamlLine(err)}, "it is not YAML: %v", err)
		return nil, nil
	}
	switch kind.Kind {
	case "Service":
		return readService(root, file, r)
	case "WorkerPool":
		return readPool(root, file, r)
	case "Job":
		return readJob(root, file, r)
	default:
		r.add(place{file, 1}, "the kind must be Service, WorkerPool or Job, not %q", kind.Kind)
		return nil, nil
	}
}

func readService(root fs.FS, file string, r *report) (*unit, error) {
	var s run.Service
	d, ok, err := decodeStrict(root, file, &s, r)
	if !ok || err != nil {
		return nil, err
	}
	if s.Metadata == nil || s.Spec == nil || s.Spec.Template == nil || s.Spec.Template.Metadata == nil || s.Spec.Template.Spec == nil {
		r.add(place{file, 1}, "it must have metadata, spec.template.metadata and spec.template.spec")
		return nil, nil
	}
	wantVersion(d, s.ApiVersion, "serving.knative.dev/v1", r)
	t := s.Spec.Template
	checkAnnotations(d, "metadata", "Service", s.Metadata.Annotations, r)
	checkAnnotations(d, "spec.template.metadata", "Service template", t.Metadata.Annotations, r)
	u := newUnit(s.Metadata.Name, "Service", d.at("metadata.name"))
	m := manifest{d, u}
	m.containers("spec.template.spec", t.Spec.Containers, t.Spec.Volumes, r)
	m.needSocket("spec.template.metadata", t.Metadata.Annotations, r)
	return u, nil
}

func readPool(root fs.FS, file string, r *report) (*unit, error) {
	var p run.WorkerPool
	d, ok, err := decodeStrict(root, file, &p, r)
	if !ok || err != nil {
		return nil, err
	}
	if p.Metadata == nil || p.Spec == nil || p.Spec.Template == nil || p.Spec.Template.Metadata == nil || p.Spec.Template.Spec == nil {
		r.add(place{file, 1}, "it must have metadata, spec.template.metadata and spec.template.spec")
		return nil, nil
	}
	wantVersion(d, p.ApiVersion, "run.googleapis.com/v1", r)
	t := p.Spec.Template
	checkAnnotations(d, "metadata", "WorkerPool", p.Metadata.Annotations, r)
	checkAnnotations(d, "spec.template.metadata", "WorkerPool template", t.Metadata.Annotations, r)
	u := newUnit(p.Metadata.Name, "WorkerPool", d.at("metadata.name"))
	m := manifest{d, u}
	for i, c := range t.Spec.Containers {
		if c.ReadinessProbe != nil {
			r.add(d.at(fmt.Sprintf("spec.template.spec.containers[%d].readinessProbe", i)), "a worker pool has no readiness probe")
		}
		if len(c.Ports) > 0 {
			r.add(d.at(fmt.Sprintf("spec.template.spec.containers[%d].ports", i)), "a worker pool receives no calls, so its containers have no ports")
		}
	}
	m.containers("spec.template.spec", t.Spec.Containers, t.Spec.Volumes, r)
	m.needSocket("spec.template.metadata", t.Metadata.Annotations, r)
	return u, nil
}

func readJob(root fs.FS, file string, r *report) (*unit, error) {
	var j run.Job
	d, ok, err := decodeStrict(root, file, &j, r)
	if !ok || err != nil {
		return nil, err
	}
	if j.Metadata == nil || j.Spec == nil || j.Spec.Template == nil || j.Spec.Template.Metadata == nil || j.Spec.Template.Spec == nil ||
		j.Spec.Template.Spec.Template == nil || j.Spec.Template.Spec.Template.Spec == nil {
		r.add(place{file, 1}, "it must have metadata, spec.template.metadata and spec.template.spec.template.spec")
		return nil, nil
	}
	wantVersion(d, j.ApiVersion, "run.googleapis.com/v1", r)
	t := j.Spec.Template
	checkAnnotations(d, "metadata", "Job", j.Metadata.Annotations, r)
	checkAnnotations(d, "spec.template.metadata", "Job template", t.Metadata.Annotations, r)
	u := newUnit(j.Metadata.Name, "Job", d.at("metadata.name"))
	m := manifest{d, u}
	const spec = "spec.template.spec.template.spec"
	u.setInt("timeout", t.Spec.Template.Spec.TimeoutSeconds, d.at(spec+".timeoutSeconds"))
	// The API's type does not distinguish a zero from a missing field, so the
	// document is read instead.
	if _, there := d.lines[spec+".maxRetries"]; there {
		u.set("retries", fmt.Sprint(t.Spec.Template.Spec.MaxRetries), d.at(spec+".maxRetries"))
	}
	m.containers(spec, t.Spec.Template.Spec.Containers, t.Spec.Template.Spec.Volumes, r)
	m.needSocket("spec.template.metadata", t.Metadata.Annotations, r)
	return u, nil
}

func wantVersion(d *document, given, want string, r *report) {
	if given != want {
		r.add(d.at("apiVersion"), "the apiVersion must be %s, not %q", want, given)
	}
}

// manifest collects the common fields of the kinds into a unit.
type manifest struct {
	d *document
	u *unit
}

// needSocket reports a unit without the database's socket.
func (m manifest) needSocket(under string, given map[string]string, r *report) {
	const socket = "run.googleapis.com/cloudsql-instances"
	instance := given[socket]
	if instance == "" {
		r.add(m.d.at(under), "%s has no annotation %s, and so no socket to the database", m.u.name, socket)
	}
	m.u.set("cloudsql", instance, m.d.at(join(under+".annotations", socket)))
}

func (m manifest) containers(under string, containers []*run.Container, volumes []*run.Volume, r *report) {
	mounted := map[string]bool{}
	for i, v := range volumes {
		at := m.d.at(fmt.Sprintf("%s.volumes[%d]", under, i))
		mounted[v.Name] = true
		if v.Secret != nil {
			m.u.set("volume."+v.Name+".secret", v.Secret.SecretName, at)
		}
	}
	own := false
	for i, c := range containers {
		own = own || c.Name == m.u.name
		at := fmt.Sprintf("%s.containers[%d]", under, i)
		m.container(at, c)
		for k, v := range c.VolumeMounts {
			if !mounted[v.Name] {
				r.add(m.d.at(fmt.Sprintf("%s.volumeMounts[%d]", at, k)), "the container %s mounts %s, which is not a volume", c.Name, v.Name)
			}
		}
		if c.Name != m.u.name {
			continue
		}
		for k, e := range c.Env {
			m.env(fmt.Sprintf("%s.env[%d]", at, k), e, r)
		}
	}
	if !own {
		r.add(m.d.at(under+".containers"), "no container is called %s", m.u.name)
	}
}

func (m manifest) env(under string, e *run.EnvVar, r *report) {
	at := m.d.at(under + ".name")
	if _, twice := m.u.env[e.Name]; twice {
		r.add(at, "the variable %s is given twice", e.Name)
	}
	value := e.Value
	if from := e.ValueFrom; from != nil && from.SecretKeyRef != nil {
		value = "secret " + from.SecretKeyRef.Name
		at = m.d.at(under + ".valueFrom.secretKeyRef.name")
	} else if value == "" {
		r.add(at, "the variable %s has neither a value nor a secret", e.Name)
	}
	m.u.env[e.Name] = field{value, at}
}

func (m manifest) container(under string, c *run.Container) {
	prefix := c.Name + "."
	set := func(name, value, at string) { m.u.set(prefix+name, value, m.d.at(under+"."+at)) }
	setInt := func(name string, value int64, at string) { m.u.setInt(prefix+name, value, m.d.at(under+"."+at)) }
	set("command", strings.Join(c.Command, " "), "command")
	set("args", strings.Join(c.Args, " "), "args")
	if len(c.Ports) > 0 {
		setInt("port", c.Ports[0].ContainerPort, "ports[0].containerPort")
	}
	if c.Resources != nil {
		set("memory", c.Resources.Limits["memory"], "resources.limits.memory")
	}
	for name, p := range map[string]*run.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe} {
		if p == nil || p.HttpGet == nil {
			continue
		}
		at := name + "Probe"
		set(name+".path", p.HttpGet.Path, at+".httpGet.path")
		setInt(name+".port", p.HttpGet.Port, at+".httpGet.port")
	}
}
