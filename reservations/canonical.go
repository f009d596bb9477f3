package reservations

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// keyMax is how long a key or a window may be once serialised, in bytes: an
// index entry holds no more.
const keyMax = 1024

// unserialisable reports that a key or a window, named by field, can't be
// stored in a row.
func unserialisable(field string, err error) error {
	return fmt.Errorf("%w: serialise the %s: %w", ErrInvalid, field, err)
}

// canonicalPair serialises a key and a window. NoWindow is serialised as "".
func canonicalPair(key, window any) (k, w string, err error) {
	k, err = canonical("key", key)
	if err != nil {
		return "", "", err
	}
	if _, none := window.(NoWindow); none {
		return k, "", nil
	}
	w, err = canonical("window", window)
	return k, w, err
}

// Decode returns the key and the window of a reservation or an Event of this
// kernel's kind (ResourceKey, ResourceWindow), or of an *InsufficientError. The
// window is the zero value for a resource without windows.
//
// Errors: ErrInvalid, with the field that is not of the kernel's type.
func (k *Kernel[K, W]) Decode(serializedKey, serializedWindow string) (key K, window W, err error) {
	if err := json.Unmarshal([]byte(serializedKey), &key); err != nil {
		return key, window, unserialisable("key", err)
	}
	if _, none := any(window).(NoWindow); none && serializedWindow == "" {
		return key, window, nil
	}
	if err := json.Unmarshal([]byte(serializedWindow), &window); err != nil {
		return key, window, unserialisable("window", err)
	}
	return key, window, nil
}

// canonical serialises a value so that equal values make equal text: JSON with
// the members of every object sorted, times in UTC, and no negative zero.
// Values that Postgres can't store as JSON, or JSON can't distinguish, are an
// error: NUL, and text that is not UTF-8.
func canonical(field string, v any) (string, error) {
	fail := func(err error) (string, error) { return "", unserialisable(field, err) }
	if _, err := json.Marshal(v); err != nil { // first unchanged, because this detects a value that contains itself
		return fail(err)
	}
	raw, err := json.Marshal(inUTC(v))
	if err != nil {
		return fail(err)
	}
	if unescaped(raw, `ufffd`) { // encoding/json writes this escape only for invalid UTF-8
		return fail(errors.New("its text is not UTF-8"))
	}
	if unescaped(raw, `u0000`) {
		return fail(errors.New("its text holds a NUL"))
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // keeps 9007199254740993 exact
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return fail(err)
	}
	sorted, err := json.Marshal(plainZero(tree))
	if err != nil {
		return fail(err)
	}
	if len(sorted) > keyMax {
		return fail(fmt.Errorf("it takes %d bytes, at most %d", len(sorted), keyMax))
	}
	return string(sorted), nil
}

// unescaped reports whether JSON text holds the escape sequence: its letters
// behind an odd number of backslashes.
func unescaped(raw []byte, letters string) bool {
	for at := 0; ; at++ {
		found := bytes.Index(raw[at:], []byte(letters))
		if found < 0 {
			return false
		}
		at += found
		before := raw[:at]
		if (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 1 {
			return true
		}
	}
}

// plainZero replaces negative zeros, which equal zero and are written
// differently.
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
		if digits, _, _ := strings.Cut(strings.ToLower(string(v)), "e"); strings.Trim(digits, "-0.") == "" {
			return json.Number("0")
		}
	}
	return v
}

var timeType = reflect.TypeFor[time.Time]()

// inUTC returns v with every time in it in UTC, so that one instant has one
// text. v must not contain itself.
func inUTC(v any) any {
	if v == nil {
		return nil
	}
	return utc(reflect.ValueOf(v)).Interface()
}

// utc copies a value deeply, with its times in UTC.
func utc(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	toUTC(out)
	return out
}

// toUTC sets the times of a settable value to UTC. It copies shared parts
// first.
func toUTC(v reflect.Value) {
	if !v.CanSet() && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() { //nolint:exhaustive // the other kinds hold no time
	case reflect.Struct:
		if v.Type() == timeType {
			if v.CanSet() {
				v.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
			}
			return
		}
		for _, field := range v.Fields() { // through embedded structs too: JSON shows their exported fields
			toUTC(field)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fresh := reflect.New(v.Type().Elem())
			fresh.Elem().Set(utc(v.Elem()))
			v.Set(fresh)
		}
	case reflect.Interface:
		if !v.IsNil() {
			v.Set(utc(v.Elem()))
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		fresh := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(fresh, v)
		for i := range fresh.Len() {
			toUTC(fresh.Index(i))
		}
		v.Set(fresh)
	case reflect.Array:
		for i := range v.Len() {
			toUTC(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		fresh := reflect.MakeMapWithSize(v.Type(), v.Len())
		for entries := v.MapRange(); entries.Next(); {
			fresh.SetMapIndex(utc(entries.Key()), utc(entries.Value()))
		}
		v.Set(fresh)
	}
}

// checkShown returns an error for a type of keys or windows with a field that
// JSON does not show, because two values that differ only in that field would
// make equal rows. Types with their own marshaller are accepted.
func checkShown(field string, t reflect.Type, above ...reflect.Type) error {
	if slices.Contains(above, t) || serialises(t) || serialises(reflect.PointerTo(t)) {
		return nil
	}
	above = append(above, t)
	switch t.Kind() { //nolint:exhaustive // the other kinds have no fields
	case reflect.Struct:
		for f := range t.Fields() {
			if !f.IsExported() && !f.Anonymous {
				return unserialisable(field, fmt.Errorf("JSON does not show the field %s of %s", f.Name, t))
			}
			if err := checkShown(field, f.Type, above...); err != nil {
				return err
			}
		}
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return checkShown(field, t.Elem(), above...)
	}
	return nil
}

func serialises(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
