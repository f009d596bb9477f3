package main

import (
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
)

const document = "../../docs/openapi.json"

// oapi-codegen accepts the whole document, not only the types that are kept.
func TestWholeDocument(t *testing.T) {
	t.Parallel()
	spec, err := openapi3.NewLoader().LoadFromFile(document)
	if err != nil {
		t.Fatal(err)
	}
	config := codegen.Configuration{PackageName: "whole", Generate: codegen.GenerateOptions{Models: true, Client: true}}
	if code, err := codegen.Generate(spec, config); err != nil || !strings.Contains(code, "func (c *Client) AddItem(") {
		t.Errorf("%.200q, %v", code, err)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	code, err := generate(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"	HoldTTLSeconds *int32 `json:\"hold_ttl_seconds\"`\n", // null is not 0
		"	Reservation *Reservation `json:\"reservation\"`\n",
		"	UnitIDs []string `json:\"unit_ids,omitempty\"`\n",
		"	Lane *string `json:\"lane,omitempty\"`\n", // of a patch: left out is no change
		"	VariantID string `json:\"variant_id\"`\n",
		"One of queued, processing, waiting, done, failed.\n",
	} {
		if !strings.Contains(code, line) {
			t.Errorf("no type has %q", line)
		}
	}
	for name, broken := range map[string]string{
		"no JSON": "{", "no schema Problem": `{"components":{"schemas":{}}}`, "two of one name": strings.ReplaceAll(string(text), `"Stock": {`, `"StockPatch": {`),
	} {
		if _, err := generate([]byte(broken)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
