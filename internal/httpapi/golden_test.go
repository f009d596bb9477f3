package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"
)

// goldenHeaders are the headers whose values a golden file contains.
var goldenHeaders = []string{
	"Allow", "Cache-Control", "Content-Type", "Etag", "Idempotency-Replayed", "Location", "Preference-Applied", limitHeader, policyHeader, "Retry-After",
	"Www-Authenticate", correlationHeader,
}

// golden compares a response with golden/<name>.json. Values that
// differ between runs are numbered in the order of their appearance.
func golden(t *testing.T, name string, r reply) {
	t.Helper()
	file := filepath.Join("golden", name+".json")
	kept := struct {
		Status int               `json:"status"`
		Header map[string]string `json:"header"`
		Body   json.RawMessage   `json:"body,omitempty"`
	}{Status: r.status, Header: map[string]string{}, Body: r.body}
	for _, h := range goldenHeaders {
		if value := r.header.Get(h); value != "" {
			kept.Header[h] = value
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(kept); err != nil {
		t.Fatal(err)
	}
	got := numbered(b.String())
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-golden +got):\n%s", file, diff)
	}
}

var varying = []struct {
	name string
	form *regexp.Regexp
}{
	{"uuid", regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)},
	{"time", regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)},
	{"key", regexp.MustCompile(`hf_[0-9A-Za-z]{6}`)},
	{"tag", regexp.MustCompile(`\b[0-9a-f]{32}\b`)},
	{"audit", regexp.MustCompile(`("audit_id": )\d+`)},
}

func numbered(text string) string {
	for _, v := range varying {
		var seen []string
		text = v.form.ReplaceAllStringFunc(text, func(found string) string {
			i := slices.Index(seen, found)
			if i < 0 {
				i = len(seen)
				seen = append(seen, found)
			}
			if v.name == "time" { // times are equal by chance
				return "<time>"
			}
			if label, _, ok := strings.Cut(found, ": "); ok && v.name == "audit" {
				return fmt.Sprintf("%s: %d", label, i+1)
			}
			return fmt.Sprintf("<%s %d>", v.name, i+1)
		})
	}
	return text
}

// precompute lets huma.Validate see the properties of all schemas of responses. It
// does not see those of schemas that were made by hand.
func (s *shop) precompute() {
	document := s.service.api.OpenAPI()
	responses := slices.Collect(maps.Values(document.Components.Responses))
	for _, item := range document.Paths {
		for _, op := range operationsOf(item) {
			responses = slices.AppendSeq(responses, maps.Values(op.Responses))
		}
	}
	for _, r := range responses {
		for _, media := range r.Content {
			if media.Schema != nil {
				media.Schema.PrecomputeMessages()
			}
		}
	}
	for _, schema := range s.service.schemas().Map() {
		schema.PrecomputeMessages()
	}
}

// checked serves with the handler and compares each response with the document.
func (s *shop) checked(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		s.answering.Add(1)
		handler.ServeHTTP(recorded, r)
		s.answering.Add(-1)
		s.conforms(r, recorded)
		maps.Copy(w.Header(), recorded.Header())
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(recorded.Body.Bytes())
	})
}

func (s *shop) conforms(r *http.Request, answered *httptest.ResponseRecorder) {
	if answered.Header().Get(correlationHeader) == "" {
		s.t.Errorf("%s: the answer has no correlation id", r.URL)
	}
	if answered.Code >= 300 && answered.Code < 400 && answered.Code != http.StatusNotModified {
		s.t.Errorf("%s: the answer is a redirect to %s", r.URL, answered.Header().Get("Location"))
	}
	method, path, _ := strings.Cut(r.Pattern, " ")
	item := s.service.api.OpenAPI().Paths[path]
	if item == nil {
		return
	}
	op := map[string]*huma.Operation{"GET": item.Get, "PUT": item.Put, "POST": item.Post, "PATCH": item.Patch, "DELETE": item.Delete}[method]
	documented := op.Responses[strconv.Itoa(answered.Code)]
	if documented != nil && documented.Ref != "" {
		_, name, _ := strings.Cut(documented.Ref, "#/components/responses/")
		documented = s.service.api.OpenAPI().Components.Responses[name]
	}
	if documented == nil {
		s.t.Errorf("%s answers %d, which is not documented", r.Pattern, answered.Code)
		return
	}
	for name := range documented.Headers {
		if name == "Location" && answered.Header().Get(name) == "" {
			s.t.Errorf("%s %d lacks the header %s", r.Pattern, answered.Code, name)
		}
	}
	for _, name := range []string{"Retry-After", "Www-Authenticate", replayedHeader, limitHeader, policyHeader, correlationHeader} {
		if answered.Header().Get(name) != "" && documented.Headers[name] == nil && documented.Headers[strings.ToUpper(name[:3])+name[3:]] == nil {
			s.t.Errorf("%s %d has the header %s, which is not documented", r.Pattern, answered.Code, name)
		}
	}
	for contentType, media := range documented.Content {
		if contentType == "text/plain" || contentType == eventStreamType {
			continue
		}
		if got := answered.Header().Get("Content-Type"); got != contentType {
			s.t.Errorf("%s %d has content type %q, documented is %q", r.Pattern, answered.Code, got, contentType)
		}
		var value any
		if err := json.Unmarshal(answered.Body.Bytes(), &value); err != nil {
			s.t.Errorf("%s %d: %v in %q", r.Pattern, answered.Code, err, answered.Body)
			return
		}
		result := &huma.ValidateResult{}
		huma.Validate(s.service.schemas(), media.Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, value, result)
		for _, err := range result.Errors {
			s.t.Errorf("%s %d is not what is documented: %v", r.Pattern, answered.Code, err)
		}
		for _, unknown := range s.undocumented(media.Schema, value) {
			s.t.Errorf("%s %d has %s, which is not documented", r.Pattern, answered.Code, unknown)
		}
	}
}

// undocumented returns the fields of a value that its schema lacks, and the
// nulls that it does not allow. huma.Validate accepts any null of a field that is
// not required.
func (s *shop) undocumented(schema *huma.Schema, value any) (unknown []string) {
	for schema.Ref != "" {
		schema = s.service.schemas().SchemaFromRef(schema.Ref)
	}
	if len(schema.AllOf) > 0 { // a problem, and its codes
		return s.undocumented(schema.AllOf[0], value)
	}
	if len(schema.AnyOf) > 0 && value != nil {
		for i, alternative := range schema.AnyOf {
			fields := s.undocumented(alternative, value)
			if alternative.Type != "null" && (i == 0 || len(fields) < len(unknown)) {
				unknown = fields
			}
		}
		return unknown
	}
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			unknown = append(unknown, s.undocumented(schema.Items, item)...)
		}
	case map[string]any:
		for name, field := range value {
			if known := schema.Properties[name]; known != nil {
				unknown = append(unknown, s.undocumented(known, field)...)
				if field == nil && !nullable(known) {
					unknown = append(unknown, name+" null")
				}
			} else if schema.Properties != nil {
				unknown = append(unknown, name)
			}
		}
	}
	return unknown
}

// nullable reports whether the schema accepts null.
func nullable(s *huma.Schema) bool {
	isNull := func(s *huma.Schema) bool { return s.Type == "null" }
	return s.Nullable || slices.ContainsFunc(s.AnyOf, isNull) || slices.ContainsFunc(s.OneOf, isNull)
}
