package main

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// image is the result of the Dockerfile.
type image struct {
	// programs are the programs by their path in the image: "/api" is cmd/api.
	programs map[string]string
	// build is the command line that builds them, for a shell in the
	// repository's root with the variable VERSION.
	build string
}

const dockerfile = "Dockerfile"

// checkDockerfile parses the Dockerfile and checks the properties on which the
// manifests rely.
func checkDockerfile(root fs.FS, code *code, r *report) (*image, error) {
	made := &image{programs: map[string]string{}}
	text, err := fs.ReadFile(root, dockerfile)
	if err != nil {
		return nil, err
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		r.add(place{dockerfile, 1}, "it cannot be parsed: %v", err)
		return made, nil
	}
	stages, _, err := instructions.Parse(tree.AST, nil)
	if err != nil {
		r.add(place{dockerfile, dockerLine(err)}, "it cannot be parsed: %v", err)
		return made, nil
	}
	if len(stages) < 2 {
		r.add(place{dockerfile, 1}, "it must have a stage that builds the programs and one that is the image")
		return made, nil
	}
	for _, stage := range stages[:len(stages)-1] {
		checkBuild(root, stage, made, r)
	}
	checkLast(stages[len(stages)-1], r)
	return made, checkIgnored(root, code, r)
}

const ignoreFile = ".dockerignore"

// checkIgnored reports folders that the programs import or embed but
// .dockerignore excludes.
func checkIgnored(root fs.FS, code *code, r *report) error {
	text, err := fs.ReadFile(root, ignoreFile)
	if err != nil {
		return err
	}
	sent := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			sent[name] = true
		}
	}
	needed := map[string]bool{"go.mod": true, "go.sum": true, "cmd": true}
	for name := range sent {
		for folder := range code.imports[name] {
			needed[folder] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if !sent[name] {
			r.add(place{ignoreFile, 1}, "it excludes %s from the build, which needs it: add !%s", name, name)
		}
	}
	for _, file := range code.embedsTests {
		r.add(place{file, 1}, "it embeds a folder testdata, which %s excludes from the build", ignoreFile)
	}
	return nil
}

func dockerLine(err error) int {
	located, ok := errors.AsType[*parser.LocationError](err)
	if ok && len(located.Locations) > 0 && len(located.Locations[0]) > 0 {
		return located.Locations[0][0].Start.Line
	}
	return 1
}

func commandPlace(c instructions.Command) place {
	if l := c.Location(); len(l) > 0 {
		return place{dockerfile, l[0].Start.Line}
	}
	return place{dockerfile, 1}
}

// checkBuild finds the line that builds the programs, and the programs that it
// names.
func checkBuild(root fs.FS, stage instructions.Stage, made *image, r *report) {
	for _, command := range stage.Commands {
		run, ok := command.(*instructions.RunCommand)
		if !ok {
			continue
		}
		line := strings.Join(run.CmdLine, " ")
		if !strings.Contains(line, "go build") {
			continue
		}
		made.build = line
		at := commandPlace(command)
		for _, want := range []string{"CGO_ENABLED=0", "-trimpath"} {
			if !strings.Contains(line, want) {
				r.add(at, "the programs are built without %s", want)
			}
		}
		for word := range strings.FieldsSeq(line) {
			if name, ok := strings.CutPrefix(word, "./cmd/"); ok {
				if _, err := fs.Stat(root, "cmd/"+name+"/main.go"); err != nil {
					r.add(at, "there is no program cmd/%s", name)
				}
				made.programs["/"+path.Base(name)] = name
			}
		}
		for _, name := range []string{"api", "worker", "oneshot", "holdfast"} {
			if made.programs["/"+name] == "" {
				r.add(at, "the program %s is not built", name)
			}
		}
	}
	if len(made.programs) == 0 {
		r.add(place{dockerfile, stage.Location[0].Start.Line}, "the stage %s builds no program", stage.Name)
	}
}

// checkLast checks the rules of the stage that is the image: an empty base, a
// numeric user, no default program.
func checkLast(stage instructions.Stage, r *report) {
	at := place{dockerfile, stage.Location[0].Start.Line}
	if stage.BaseName != "scratch" {
		r.add(at, "the image's base must be scratch, not %s", stage.BaseName)
	}
	user, copied := "", false
	for _, command := range stage.Commands {
		switch c := command.(type) {
		case *instructions.UserCommand:
			user = c.User
			at = commandPlace(command)
		case *instructions.CopyCommand:
			copied = copied || slices.Contains(c.SourcePaths, "/out/") && c.DestPath == "/"
		case *instructions.EntrypointCommand, *instructions.CmdCommand:
			r.add(commandPlace(command), "the image must have no default program: the manifests name one")
		}
	}
	if user != "65532:65532" {
		r.add(at, "the image must run as USER 65532:65532, not %q", user)
	}
	if !copied {
		r.add(at, "the image must have the programs of /out/ at its root")
	}
}
