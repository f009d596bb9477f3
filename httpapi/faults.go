package httpapi

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// faults are the fields of a call that are not valid, each once.
type faults []fieldError

// How much of a call that is wrong all over is told.
const (
	faultsMax    = 20
	faultNameMax = 64 // bytes of a field's name
)

// with adds a fault, unless the field has one already or there are enough.
func (f faults) with(field, message string) faults {
	if len(field) > faultNameMax {
		field = strings.ToValidUTF8(field[:faultNameMax], "") + "…"
	}
	known := slices.ContainsFunc(f, func(e fieldError) bool { return e.Field == field })
	if known || len(f) == faultsMax || !utf8.ValidString(field) {
		return f
	}
	return append(f, fieldError{Field: field, Message: message})
}

// Error lists the fields.
func (f faults) Error() string {
	var b strings.Builder
	b.WriteString("invalid fields")
	for _, e := range f {
		b.WriteString("; " + e.Field + " " + e.Message)
	}
	return b.String()
}
