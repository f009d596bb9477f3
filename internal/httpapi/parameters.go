package httpapi

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	validate "github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/inventory"
)

// checkParameters rejects requests whose query can't be decoded or names a
// parameter twice (other than one of the lists), and requests with an invalid
// correlation id. Huma ignores what it can't decode and takes the first of
// several values. It checks the names and the values of parameters afterwards.
func (s *service) checkParameters(lists []string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		req := requestOf(ctx.Context())
		wrong := checkQuery(req.http.URL.RawQuery, lists)
		if req.correlationError != "" {
			wrong = wrong.with(correlationHeader, req.correlationError)
		}
		if len(wrong) > 0 {
			s.errorResponse(req.http.Context(), wrong).write(req.w)
			return
		}
		next(ctx)
	}
}

// queryLists returns the query parameters that may be repeated: the fields of P
// that are slices.
func queryLists[P any]() (names []string) {
	for field := range reflect.TypeFor[P]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("query"), ",")
		if name != "" && field.Type.Kind() == reflect.Slice {
			names = append(names, name)
		}
	}
	return names
}

// queryField is the name of the field in the error about a parameter whose name
// can't be decoded.
const queryField = "query"

// checkQuery returns an error for each parameter of the query that can't be
// decoded or is repeated.
func checkQuery(raw string, lists []string) (wrong fieldErrors) {
	if raw == "" {
		return nil
	}
	seen := map[string]bool{}
	for parameter := range strings.SplitSeq(raw, "&") {
		if parameter == "" {
			continue
		}
		rawName, value, _ := strings.Cut(parameter, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil || strings.Contains(rawName, ";") || !isText(name) {
			wrong = wrong.with(queryField, "has a parameter whose name can't be decoded")
			continue
		}
		switch value, err := url.QueryUnescape(value); {
		case err != nil:
			wrong = wrong.with(name, "must be percent-encoded")
		case strings.Contains(parameter, ";"):
			wrong = wrong.with(name, "must have its semicolons percent-encoded")
		case !isText(value):
			wrong = wrong.with(name, "must be UTF-8 without NUL")
		}
		if slices.Contains(lists, name) {
			continue
		}
		if seen[name] {
			wrong = wrong.with(name, sentTwice)
		}
		seen[name] = true
	}
	return wrong
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// sentTwice is the message about a header field or a parameter that a request
// has more than once.
const sentTwice = "must be sent once"

// singleHeader returns the value of a header field, and whether the request has
// it. A field that is sent more than once is an *inventory.InvalidError.
func singleHeader(h http.Header, name string) (value string, given bool, err error) {
	sent := h.Values(name)
	switch len(sent) {
	case 0:
		return "", false, nil
	case 1:
		return sent[0], true, nil
	}
	return "", true, &inventory.InvalidError{Field: name, Message: sentTwice}
}

// waitMax is how long a caller may wait for a request to finish.
const waitMax = 30 * time.Second

// preferredWait returns how long the caller prefers to wait (RFC 7240), at most
// waitMax. It ignores what it can't read, as the RFC requires.
func preferredWait(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";") // parameters
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0
			}
			return min(time.Duration(n)*time.Second, waitMax)
		}
	}
	return 0
}

// seconds formats a duration in whole seconds, rounded down.
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// variantID, cartID and customerID are ids that callers choose. Parameters and
// fields of these types are validated.
type (
	variantID  string
	cartID     string
	customerID string
	blockID    string
	kitID      string
	allotment  string
	groupID    string
	unitID     string
)

// Schema describes the id, for huma.
func (variantID) Schema(huma.Registry) *huma.Schema { return idSchema("The variant's id.") }

// Schema describes the id, for huma.
func (cartID) Schema(huma.Registry) *huma.Schema { return idSchema("The cart's id.") }

// Schema describes the id, for huma.
func (customerID) Schema(huma.Registry) *huma.Schema { return idSchema("The customer's id.") }

// Schema describes the id, for huma.
func (blockID) Schema(huma.Registry) *huma.Schema { return idSchema("The block's id.") }

// Schema describes the id, for huma.
func (kitID) Schema(huma.Registry) *huma.Schema { return idSchema("The kit's id.") }

// Schema describes the id, for huma.
func (allotment) Schema(huma.Registry) *huma.Schema {
	return idSchema("The allotment's id, unique within its variant.")
}

// Schema describes the id, for huma.
func (groupID) Schema(huma.Registry) *huma.Schema { return idSchema("The group's id.") }

// Schema describes the id, for huma.
func (unitID) Schema(huma.Registry) *huma.Schema {
	return idSchema("The unit's id, unique within its block.")
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *blockID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkBlockID(string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *kitID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkKitID(string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *allotment) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkAllotment(string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *groupID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkGroupID(string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *unitID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(inventory.ValidateID("unit_id", string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *variantID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkVariantID(string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *cartID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkCartID(string(*id)), prefix)
}

func checkVariantID(id string) error { return inventory.ValidateID("variant_id", id) }

func checkCartID(id string) error { return inventory.ValidateID("cart_id", id) }

func checkBlockID(id string) error { return inventory.ValidateID("block", id) }

func checkKitID(id string) error { return inventory.ValidateID("kit_id", id) }

func checkAllotment(id string) error { return inventory.ValidateID("allotment_id", id) }

func checkGroupID(id string) error { return inventory.ValidateID("group", id) }

// newGroup reads the group of a stock, which an empty one clears.
func newGroup() reader[string] {
	r := text[string](func(id string) error {
		if id == "" {
			return nil
		}
		return checkGroupID(id)
	})
	most := inventory.MaxIDLength
	r.describe = func(s *huma.Schema) { s.MaxLength = &most }
	return r
}

func checkSubject(id string) error { return checkCustomerID("subject", id) }

// checkCustomerID checks a customer's id. Unlike the ids of paths it may be
// only dots or only slashes.
func checkCustomerID(field, id string) error { return validate.Check(field, id, inventory.MaxIDLength) }

func idSchema(description string) *huma.Schema {
	least, most := 1, inventory.MaxIDLength
	return &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Description: description}
}

// resolved returns the error of a check in the form in which huma collects
// errors.
func resolved(err error, prefix *huma.PathBuffer) []error {
	if err == nil {
		return nil
	}
	message := err.Error()
	if wrong, ok := err.(*inventory.InvalidError); ok { //nolint:errorlint // the checks wrap nothing
		message = wrong.Message
	}
	return []error{&huma.ErrorDetail{Location: prefix.String(), Message: message}}
}

// numberSchema describes a whole number from 1 that is a parameter.
func numberSchema(most int64, description string) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeInteger, Format: "int64", Description: description}
	limitNumber(s, 1, most)
	return s
}
