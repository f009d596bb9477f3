package reservations

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// KeyMax is how long a key or a window may be once serialised, in bytes: an index entry holds no more.
const KeyMax = 1024

// SerializationError says that a key or a window can't be written as a row's.
type SerializationError struct {
	// Field is "key" or "window".
	Field string
	Err   error
}

// Error names the field.
func (e *SerializationError) Error() string {
	return fmt.Sprintf("reservation: serialise the %s: %v", e.Field, e.Err)
}

// Unwrap is the reason.
func (e *SerializationError) Unwrap() error { return e.Err }

// canonicalPair serialises a key and a window; the window of a resource that has none is "".
func canonicalPair(key, window any) (k, w string, err error) {
	if k, err = canonical("key", key); err != nil {
		return "", "", err
	}
	if _, none := window.(NoWindow); none {
		return k, "", nil
	}
	w, err = canonical("window", window)
	return k, w, err
}

// canonical serialises a value so that equal values make equal text: JSON with the members of every object sorted, times
// in UTC, and no negative zero.
func canonical(field string, v any) (string, error) {
	fail := func(err error) (string, error) { return "", &SerializationError{Field: field, Err: err} }
	raw, err := json.Marshal(inUTC(v))
	if err != nil {
		return fail(err)
	}
	if !utf8.Valid(raw) {
		return fail(errors.New("it is not UTF-8"))
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // 9007199254740993 stays what it is
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return fail(err)
	}
	sorted, err := json.Marshal(plainZero(tree))
	if err != nil {
		return fail(err)
	}
	if len(sorted) > KeyMax {
		return fail(fmt.Errorf("it takes %d bytes, at most %d", len(sorted), KeyMax))
	}
	return string(sorted), nil
}

// plainZero replaces negative zeros, which equal zero and are written another way.
func plainZero(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = plainZero(member)
		}
	case []any:
		for i, element := range v {
			v[i] = plainZero(element)
		}
	case json.Number:
		if strings.Trim(string(v), "-0.eE+") == "" {
			return json.Number("0")
		}
	}
	return v
}

var timeType = reflect.TypeFor[time.Time]()

// inUTC returns v with every time in it in UTC, so that one instant is written one way. What holds no time is returned as
// it is.
func inUTC(v any) any {
	if v == nil || !holdsTime(reflect.TypeOf(v), nil) {
		return v
	}
	return utc(reflect.ValueOf(v)).Interface()
}

// holdsTime reports whether values of a type may hold a time in a place that JSON shows.
func holdsTime(t reflect.Type, above []reflect.Type) bool {
	if slices.Contains(above, t) {
		return false
	}
	above = append(above, t)
	switch {
	case t == timeType:
		return true
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			if f.IsExported() && holdsTime(f.Type, above) {
				return true
			}
		}
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		return holdsTime(t.Elem(), above)
	}
	return false
}

// utc copies a value that holds times.
func utc(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	if v.Type() == timeType {
		out.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
		return out
	}
	switch v.Kind() { //nolint:exhaustive // the other kinds hold no time
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && holdsTime(f.Type, nil) {
				out.Field(i).Set(utc(v.Field(i)))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(utc(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		}
		for i := range v.Len() {
			out.Index(i).Set(utc(v.Index(i)))
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(utc(v.Index(i)))
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMap(v.Type()))
		}
		for entries := v.MapRange(); entries.Next(); {
			out.SetMapIndex(entries.Key(), utc(entries.Value()))
		}
	}
	return out
}
