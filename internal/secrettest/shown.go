package secrettest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// Shown returns the texts that formatting, marshalling, logging and reflection
// make of a value, including its unexported fields.
func Shown(value any) string {
	var out strings.Builder
	for _, held := range []any{value, &value, []any{value}, map[string]any{"key": value}, struct{ hidden any }{value}} {
		for _, verb := range "vsqxXdtTpcoObUeEfFgGwz" {
			for _, flags := range []string{"", "+", "#", "+#", " "} {
				fmt.Fprintf(&out, "%"+flags+string(verb)+"\n", held)
			}
		}
		fmt.Fprintln(&out, fmt.Sprint(held), fmt.Errorf("%w %v", errShown, held))
		asJSON, err := json.Marshal(held)
		fmt.Fprintln(&out, string(asJSON), err)
		asXML, err := xml.Marshal(held)
		fmt.Fprintln(&out, string(asXML), err)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("shown", "value", held)
		slog.New(slog.NewTextHandler(&out, nil)).Info("shown", "value", held)
	}
	walk(&out, reflect.ValueOf(value), 0)
	return out.String()
}

var errShown = fmt.Errorf("shown")

// Diffed returns the text that go-cmp prints of a value when it may read all
// fields.
func Diffed(value any) string {
	none := reflect.Zero(reflect.TypeOf(value)).Interface()
	return cmp.Diff(none, value, cmp.Exporter(func(reflect.Type) bool { return true }))
}

// walkMax is the depth at which the walk of a value ends.
const walkMax = 12

// walk writes every text that reflection finds.
func walk(out *strings.Builder, v reflect.Value, depth int) {
	if depth > walkMax {
		return
	}
	switch v.Kind() {
	case reflect.String:
		fmt.Fprintln(out, v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(out, v.Elem(), depth+1)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			walk(out, field, depth+1)
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			walk(out, entry.Key(), depth+1)
			walk(out, entry.Value(), depth+1)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			for i := range v.Len() {
				out.WriteByte(byte(v.Index(i).Uint()))
			}
			return
		}
		for i := range v.Len() {
			walk(out, v.Index(i), depth+1)
		}
	default: // no text
	}
}
