package httpapi

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update writes golden files, and the OpenAPI document, instead of comparing with them.
var update = flag.Bool("update", false, "write the golden files and docs/openapi.json")

// TestDocumentIsUpToDate compares docs/openapi.json with what the code says.
func TestDocumentIsUpToDate(t *testing.T) {
	t.Parallel()
	const file = "../docs/openapi.json"
	document, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, document, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(kept), string(document)); diff != "" {
		t.Errorf("docs/openapi.json is out of date, run make generate (-kept +code):\n%s", diff)
	}
}

// TestDocumentNamesWhatIsRead compares the fields that a body's code reads with those of its schema.
func TestDocumentNamesWhatIsRead(t *testing.T) {
	t.Parallel()
	s := built(t)
	for name, body := range map[string]payload{
		"PutStockBody": &putStockBody{}, "AdjustStockBody": &adjustStockBody{}, "AddItemBody": &addItemBody{}, "SetItemBody": &setItemBody{},
		"ExtendBody": &extendBody{}, "ReleaseBody": &releaseBody{}, "ControlLaneBody": &controlLaneBody{}, "MintAdmissionBody": &mintAdmissionBody{},
	} {
		schema := s.schemas().Map()[name]
		if schema == nil {
			t.Errorf("%s is not in the document", name)
			continue
		}
		required := map[string]bool{}
		for _, field := range schema.Required {
			required[field] = true
		}
		documented, read := map[string]bool{}, map[string]bool{}
		for field := range schema.Properties {
			documented[field] = required[field]
		}
		for _, f := range body.fields() {
			read[f.name] = f.required
		}
		if diff := cmp.Diff(documented, read); diff != "" {
			t.Errorf("%s: fields and whether they are required (-document +code):\n%s", name, diff)
		}
		if schema.AdditionalProperties != false {
			t.Errorf("%s: the document allows fields that the code refuses", name)
		}
	}
}

// TestDocumentIsWhole looks for what generators stumble over: names that stand twice, and answers without a schema.
func TestDocumentIsWhole(t *testing.T) {
	t.Parallel()
	document, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Tags        []string
			Responses   map[string]struct {
				Description string
				Content     map[string]struct{ Schema map[string]any }
			}
		}
	}
	if err := json.Unmarshal(document, &parsed); err != nil {
		t.Fatal(err)
	}
	if parsed.OpenAPI != "3.1.0" {
		t.Errorf("the document is OpenAPI %s", parsed.OpenAPI)
	}
	seen, calls := map[string]bool{}, 0
	for path, item := range parsed.Paths {
		for method, op := range item {
			calls++
			if op.OperationID == "" || seen[op.OperationID] || op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s %s: id %q, summary %q, tags %v", method, path, op.OperationID, op.Summary, op.Tags)
			}
			seen[op.OperationID] = true
			for status, response := range op.Responses {
				if response.Description == "" {
					t.Errorf("%s %s %s has no description", method, path, status)
				}
				for contentType, content := range response.Content {
					if len(content.Schema) == 0 {
						t.Errorf("%s %s %s %s has no schema", method, path, status, contentType)
					}
				}
			}
		}
	}
	if calls != 25 {
		t.Errorf("%d calls are documented, want 25", calls)
	}
}

// built is a service with every endpoint and no database.
func built(t testing.TB) *service {
	t.Helper()
	s := &service{metering: &Metering{}}
	if err := s.build(); err != nil {
		t.Fatal(err)
	}
	return s
}
