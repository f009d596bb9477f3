package httpapi

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// update writes golden files, and the OpenAPI document, instead of comparing
// with them.
var update = flag.Bool("update", false, "write the golden files and docs/openapi.json")

// TestDocumentIsUpToDate compares docs/openapi.json with the code.
func TestDocumentIsUpToDate(t *testing.T) {
	t.Parallel()
	const file = "../../docs/openapi.json"
	document, err := OpenAPI("")
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

// TestDocumentedLimits checks that the document of each body names the fields
// and the limits that its code enforces.
func TestDocumentedLimits(t *testing.T) {
	t.Parallel()
	schemas := built(t).schemas().Map()
	for name, body := range map[string]payload{
		"PutStockBody": &putStockBody{}, "AdjustStockBody": &adjustStockBody{}, "AddItemBody": &addItemBody{}, "SetItemBody": &setItemBody{},
		"ExtendBody": &extendBody{}, "ReleaseBody": &releaseBody{}, "ControlLaneBody": &controlLaneBody{}, "MintAdmissionBody": &mintAdmissionBody{},
		"BeginCheckoutBody": &beginCheckoutBody{}, "PaymentBody": &paymentBody{}, "PutGroupBody": &putGroupBody{}, "PartBody": &partBody{}, "ReturnBody": &returnBody{}, "TransferCartBody": &transferCartBody{},
	} {
		schema := schemas[name]
		if schema == nil {
			t.Errorf("%s is not in the document", name)
			continue
		}
		if schema.AdditionalProperties != false {
			t.Errorf("%s: the document allows fields that the code refuses", name)
		}
		if got, want := len(schema.Properties), len(allFields(body)); got != want {
			t.Errorf("%s: %d fields are documented, %d are read", name, got, want)
		}
		for _, f := range allFields(body) {
			if got := slices.Contains(schema.Required, f.name); got != f.required && len(schema.OneOf) == 0 {
				t.Errorf("%s.%s: documented as required: %t, want %t", name, f.name, got, f.required)
			}
			for value, valid := range edges(schema.Properties[f.name]) {
				if fault := f.set(json.RawMessage(value)); (fault == "") != valid {
					t.Errorf("%s.%s: %.40s: got %q, documented as valid: %t", name, f.name, value, fault, valid)
				}
			}
		}
	}
}

// edges returns JSON values at the limits of a schema and beyond them, and
// whether they are valid.
func edges(s *huma.Schema) map[string]bool {
	values := map[string]bool{"null": s.Nullable, "[]": false}
	switch {
	case s.Type == huma.TypeInteger:
		least, most := int64(*s.Minimum), int64(*s.Maximum)
		values[strconv.FormatInt(least, 10)] = true
		values[strconv.FormatInt(least-1, 10)] = false
		values[strconv.FormatInt(most, 10)] = true
		values[strconv.FormatInt(most+1, 10)] = false
	case len(s.Enum) > 0:
		for _, word := range s.Enum {
			values[strconv.Quote(fmt.Sprint(word))] = true
		}
		values[`"another"`] = false
	case s.Format == "date-time":
		values[`"1970-01-01T00:00:00Z"`], values[`"1969-12-31T23:59:59Z"`], values[`"9999-12-31T23:59:59Z"`] = true, false, true
		values[`"2026-02-30T00:00:00Z"`], values[`"2026-11-27"`] = false, false
	case s.Type == huma.TypeString:
		values[strconv.Quote(strings.Repeat("x", *s.MaxLength))] = true
		values[strconv.Quote(strings.Repeat("x", *s.MaxLength+1))] = false
	}
	return values
}

// TestDocumentedNumbers checks the numbers that descriptions name.
func TestDocumentedNumbers(t *testing.T) {
	t.Parallel()
	schemas := built(t).schemas().Map()
	for _, tc := range []struct {
		schema, property string
		text             string
	}{
		{"Stock", "available", fmt.Sprintf("the %d oldest are counted", inventory.DueMax)},
		{"Request", "position", fmt.Sprintf("%d means that many or more", requestrows.PositionMax)},
		{"Cart", "failed", fmt.Sprintf("The latest %d that failed", requestrows.FailedMax)},
		{"History", "items", fmt.Sprintf("The newest %d,", ops.HistoryMax)},
		{"UnitDetail", "history", fmt.Sprintf("the newest %d,", ops.HistoryMax)},
		{"MintAdmissionBody", "ttl_seconds", fmt.Sprintf("%d if left out", admissionTTL)},
	} {
		property := schemas[tc.schema].Properties[tc.property]
		if property == nil || !strings.Contains(property.Description, tc.text) {
			t.Errorf("%s.%s: the description lacks %q", tc.schema, tc.property, tc.text)
		}
	}
}

// TestDocumentIsWhole checks for defects that break generators: duplicate
// names, and answers without a schema.
func TestDocumentIsWhole(t *testing.T) {
	t.Parallel()
	document, err := OpenAPI("")
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
				Ref         string `json:"$ref"`
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
				if response.Description == "" && response.Ref == "" {
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
	if calls != 57 {
		t.Errorf("%d calls are documented, want 57", calls)
	}
}

// TestDocumentedExamples checks that each operation has an example of its answer,
// and that the examples have the form that is documented.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	s := built(t)
	document := s.api.OpenAPI()
	for _, item := range document.Paths {
		for _, op := range operationsOf(item) {
			shown, answers := 0, 0
			for status, response := range op.Responses {
				media := response.Content["application/json"]
				if media == nil || status[0] != '2' {
					continue
				}
				answers++
				for name, example := range media.Examples {
					shown++
					result := &huma.ValidateResult{}
					huma.Validate(s.schemas(), media.Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, example.Value, result)
					for _, err := range result.Errors {
						t.Errorf("the example %s of %s: %v", name, op.OperationID, err)
					}
				}
			}
			if answers > 0 && shown == 0 {
				t.Errorf("%s has no example", op.OperationID)
			}
		}
	}
	for id := range examples {
		found := id == "overview" // which this service lacks
		for _, item := range document.Paths {
			found = found || slices.ContainsFunc(operationsOf(item), func(op *huma.Operation) bool { return op.OperationID == id })
		}
		if !found {
			t.Errorf("examples names the operation %s, which does not exist", id)
		}
	}
	for name, schema := range s.schemas().Map() {
		if schema.AdditionalProperties != nil && schema.AdditionalProperties != false {
			t.Errorf("%s allows any field", name)
		}
	}
}

// built returns a service with every endpoint and no database.
func built(t testing.TB) *service {
	t.Helper()
	s := &service{metered: true, live: &Live{}}
	if err := s.build(); err != nil {
		t.Fatal(err)
	}
	return s
}
