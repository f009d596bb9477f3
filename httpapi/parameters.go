package httpapi

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/inventory"
)

// strict lets calls through whose query can be read to its end, names each parameter once (but for lists), and whose
// correlation id is valid. Huma reads what it can of a query and takes the first of several values. Which parameters
// there are, and their values, are for huma to check.
func (s *service) strict(lists []string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := callOf(ctx.Context())
		wrong := checkQuery(c.r.URL.RawQuery, lists)
		if c.misnamed != "" {
			wrong = wrong.with(correlationHeader, c.misnamed)
		}
		if len(wrong) > 0 {
			s.refuse(c.r.Context(), wrong).write(c.w)
			return
		}
		next(ctx)
	}
}

// queryLists are the parameters of a query that may be repeated: the fields of P that are slices.
func queryLists[P any]() (names []string) {
	for field := range reflect.TypeFor[P]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("query"), ",")
		if name != "" && field.Type.Kind() == reflect.Slice {
			names = append(names, name)
		}
	}
	return names
}

// queryField names the whole query, where the name of a parameter can't be read.
const queryField = "query"

// checkQuery returns what keeps a query from being read, for each parameter by its name.
func checkQuery(raw string, lists []string) (wrong faults) {
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
			wrong = wrong.with(queryField, "has a parameter whose name can't be read")
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
			wrong = wrong.with(name, "must stand once")
		}
		seen[name] = true
	}
	return wrong
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// only is the value of a header that stands once at most, and whether it is there.
func only(h http.Header, name string) (value string, given bool, err error) {
	sent := h.Values(name)
	switch len(sent) {
	case 0:
		return "", false, nil
	case 1:
		return sent[0], true, nil
	}
	return "", true, &inventory.InvalidError{Field: name, Message: "must stand once"}
}
