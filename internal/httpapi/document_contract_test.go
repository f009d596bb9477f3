package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestContract compares what callers can rely on with what they could rely on
// before, a line each in testdata/contract.txt. A change that breaks callers is
// only written there if the CHANGELOG has its line: a call, a code or a field is
// gone, or something that a call needs was added to it.
func TestContract(t *testing.T) {
	t.Parallel()
	const file = "testdata/contract.txt"
	document, err := OpenAPI("")
	if err != nil {
		t.Fatal(err)
	}
	now := contract(t, document)
	text, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSpace(string(text)), "\n")
	changelog := read(t, "../../CHANGELOG.md")
	broken := false
	for _, line := range breaks(before, now) {
		if !strings.Contains(changelog, "`"+line+"`") {
			t.Errorf("this breaks callers, and CHANGELOG.md does not name it as `%s`", line)
			broken = true
		}
	}
	if *update && !broken {
		if err := os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(before, now); diff != "" {
		t.Errorf("the contract has changed: go test ./internal/httpapi -run TestContract -update (-before +now):\n%s", diff)
	}
}

// TestClientsAreUpToDate compares the document from which the types of the clients
// were generated with docs/openapi.json.
func TestClientsAreUpToDate(t *testing.T) {
	t.Parallel()
	want := fmt.Sprintf("sha256 %x", sha256.Sum256([]byte(read(t, "../../docs/openapi.json"))))
	for file, command := range map[string]string{"clients/typescript/src/schema.ts": "make clients", "client/types.go": "make generate"} {
		first, _, _ := strings.Cut(read(t, "../../"+file), "\n")
		if !strings.Contains(first, want) {
			t.Errorf("%s is of another document, run %s:\n%s, want %s", file, command, first, want)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// needed is the end of the line of something that a call needs.
const needed = " needed"

// breaks returns the lines that are gone, and those of an earlier call that now
// needs more.
func breaks(before, now []string) (lines []string) {
	for _, line := range before {
		if !strings.HasSuffix(line, needed) && line != "" && !slices.Contains(now, line) {
			lines = append(lines, line)
		}
	}
	for _, line := range now {
		call, _, _ := strings.Cut(line, " ")
		known := slices.ContainsFunc(before, func(l string) bool { return strings.HasPrefix(l, call+" ") })
		if strings.HasSuffix(line, needed) && known && !slices.Contains(before, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestContractBreaks(t *testing.T) {
	t.Parallel()
	before := []string{"add POST /items", "add body.quantity", "add body.quantity needed", "add 202 .status", "get GET /items"}
	for name, c := range map[string]struct {
		now  []string
		want []string
	}{
		"the same":                  {before, nil},
		"a new field":               {append([]string{"add 202 .lane", "add body.color"}, before...), nil},
		"a new call":                {append([]string{"set PUT /items", "set body.n needed"}, before...), nil},
		"a field is gone":           {slices.Delete(slices.Clone(before), 3, 4), []string{"add 202 .status"}},
		"a call is gone":            {before[:4], []string{"get GET /items"}},
		"a field is needed":         {append([]string{"add body.color", "add body.color needed"}, before...), []string{"add body.color needed"}},
		"a field is not needed now": {slices.Delete(slices.Clone(before), 2, 3), nil},
	} {
		if diff := cmp.Diff(c.want, breaks(before, c.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// schemaDoc is what a schema says of fields.
type schemaDoc struct {
	Ref                 string `json:"$ref"`
	Properties          map[string]*schemaDoc
	Required            []string
	Items               *schemaDoc
	AllOf, AnyOf, OneOf []*schemaDoc
	Enum                []any
}

type contentDoc map[string]struct{ Schema *schemaDoc }

type responseDoc struct {
	Ref     string `json:"$ref"`
	Content contentDoc
}

type documentDoc struct {
	Paths map[string]map[string]struct {
		OperationID string
		Parameters  []struct {
			In, Name string
			Required bool
		}
		RequestBody *struct{ Content contentDoc }
		Responses   map[string]*responseDoc
	}
	Components struct {
		Schemas   map[string]*schemaDoc
		Responses map[string]*responseDoc
	}
}

// contract lists what the document promises, sorted.
func contract(t *testing.T, document []byte) (lines []string) {
	t.Helper()
	var doc documentDoc
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths {
		for method, op := range item {
			id := op.OperationID
			lines = append(lines, id+" "+strings.ToUpper(method)+" "+path)
			for _, p := range op.Parameters {
				lines = append(lines, id+" "+p.In+" "+p.Name)
				if p.Required {
					lines = append(lines, id+" "+p.In+" "+p.Name+needed)
				}
			}
			if op.RequestBody != nil {
				for _, media := range op.RequestBody.Content {
					lines = append(lines, doc.fields(media.Schema, id+" body", true, nil)...)
				}
			}
			for status, response := range op.Responses {
				if response.Ref != "" {
					response = doc.Components.Responses[strings.TrimPrefix(response.Ref, "#/components/responses/")]
				}
				for _, media := range response.Content {
					lines = append(lines, doc.fields(media.Schema, id+" "+status+" ", false, nil)...)
				}
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// fields lists the fields of a schema, and with a problem its codes.
func (d *documentDoc) fields(s *schemaDoc, at string, body bool, within []string) (lines []string) {
	if s == nil {
		return nil
	}
	if s.Ref != "" {
		if s.Ref == "#/components/schemas/Problem" || slices.Contains(within, s.Ref) {
			return nil
		}
		within = append(slices.Clone(within), s.Ref)
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	for _, part := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf) {
		lines = append(lines, d.fields(part, at, body, within)...)
	}
	if s.Items != nil {
		lines = append(lines, d.fields(s.Items, at+"[]", body, within)...)
	}
	for name, property := range s.Properties {
		field := at + "." + name
		if name == "code" && len(property.Enum) > 0 {
			for _, code := range property.Enum {
				lines = append(lines, field+"="+code.(string))
			}
			continue
		}
		lines = append(lines, field)
		if body && slices.Contains(s.Required, name) {
			lines = append(lines, field+needed)
		}
		lines = append(lines, d.fields(property, field, body, within)...)
	}
	return lines
}
