package reservations

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

type inner struct{ At time.Time }

type slot struct {
	inner
	Room string    `json:"room"`
	From time.Time `json:"from"`
}

type nested struct {
	Any   any
	Times map[time.Time]*time.Time
	List  []time.Time
	Two   [2]time.Time
}

// Equal windows have equal rows.
func TestCanonicalEqual(t *testing.T) {
	t.Parallel()
	utc := time.Date(2026, 3, 1, 10, 0, 0, 5000, time.UTC)
	there := utc.In(time.FixedZone("there", 5*3600+1800))
	for name, same := range map[string][]any{
		"map order":    {map[string]int{"a": 1, "b": 2}, json.RawMessage(`{"b": 2, "a": 1}`)},
		"struct, map":  {struct{ B, A int }{2, 1}, map[string]any{"A": 1, "B": 2}, &struct{ A, B int64 }{1, 2}},
		"zones":        {utc, there, &there, there.Local()},
		"in a struct":  {slot{inner{utc}, "x", utc}, slot{inner{there}, "x", there}, &slot{inner{there}, "x", there}},
		"everywhere":   {nested{utc, map[time.Time]*time.Time{utc: &utc}, []time.Time{utc}, [2]time.Time{utc, utc}}, nested{there, map[time.Time]*time.Time{there: &there}, []time.Time{there}, [2]time.Time{there, there}}},
		"in a map":     {map[string]any{"at": []any{utc}}, map[string]any{"at": []any{there}}},
		"zero":         {0, 0.0, math.Copysign(0, -1), json.Number("-0.0"), json.Number("0e7")},
		"whole floats": {3, 3.0, int64(3), uint8(3)},
	} {
		want, err := canonical("key", same[0])
		if err != nil {
			t.Fatal(name, err)
		}
		for _, v := range same[1:] {
			if got, err := canonical("key", v); err != nil || got != want {
				t.Errorf("%s: %#v is %s (%v), want %s", name, v, got, err, want)
			}
		}
	}
	if there.Location().String() != "there" {
		t.Error("the caller's value was changed")
	}
}

// Different windows have different rows.
func TestCanonicalDifferent(t *testing.T) {
	t.Parallel()
	seen := make(map[string]any)
	for _, v := range []any{
		int64(9007199254740993), int64(9007199254740992), uint64(math.MaxUint64), "1", 1, 1.5, nil, "", "null", []int{}, map[string]int{},
		[]int{1, 2}, []int{2, 1}, [][]int{{1}, {2}}, [][]int{{1, 2}}, "é", "e\u0301", "\ufffd", `\ufffd`, `\u0000`, "a ", "a", true, "true", uuid.Nil,
		time.Unix(0, 1), time.Unix(0, 2), time.Unix(0, 1).UTC().Format(time.RFC3339Nano) + " ",
	} {
		text, err := canonical("key", v)
		if err != nil {
			t.Fatalf("%#v: %v", v, err)
		}
		if other, taken := seen[text]; taken {
			t.Errorf("%#v and %#v are both %s", v, other, text)
		}
		seen[text] = v
	}
}

type ring struct {
	At   time.Time
	Next *ring
}

// The error for a value that can't be serialised names its field.
func TestCanonicalErrors(t *testing.T) {
	t.Parallel()
	round := &ring{}
	round.Next = round
	for name, v := range map[string]any{
		"NaN": math.NaN(), "infinity": math.Inf(1), "channel": make(chan int), "func": func() {}, "too long": strings.Repeat("x", keyMax),
		"not UTF-8": "a\xff", "not UTF-8 in a name": map[string]int{"\xff": 1}, "after backslashes": "\\\\\xff", "NUL": "\x00",
		"year": time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), "a ring": round,
	} {
		for _, field := range []string{"key", "window"} {
			key, window := any("k"), v
			if field == "key" {
				key, window = v, NoWindow{}
			}
			_, _, err := canonicalPair(key, window)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "serialise the "+field) {
				t.Errorf("%s as a %s: %v", name, field, err)
			}
		}
	}
	if _, err := canonical("key", strings.Repeat("x", keyMax-2)); err != nil {
		t.Errorf("%d bytes: %v", keyMax, err)
	}
}

// NewKernel rejects a type with fields that JSON leaves out.
func TestShown(t *testing.T) {
	t.Parallel()
	type hidden struct{ id int }
	for _, v := range []any{hidden{1}, []hidden{}, map[string]*hidden{}, struct{ In hidden }{}} {
		if err := checkShown("key", reflect.TypeOf(v)); err == nil {
			t.Errorf("%T passes", v)
		}
	}
	for _, v := range []any{"", 1, slot{}, nested{}, ring{}, uuid.Nil, time.Time{}, NoWindow{}, &time.Time{}} {
		if err := checkShown("key", reflect.TypeOf(v)); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
}

// anyJSON draws any JSON value.
func anyJSON() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(),
		rapid.StringN(0, 4, -1).Filter(func(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }).AsAny(),
	)
	return rapid.OneOf(leaf, rapid.SliceOfN(leaf, 0, 3).AsAny(),
		rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), leaf, 0, 3).AsAny())
}

// Two values have equal rows if and only if they are equal. A row can be read
// back as its value.
func TestCanonicalProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyJSON().Draw(t, "a"), anyJSON().Draw(t, "b")
		textA, errA := canonical("key", a)
		textB, errB := canonical("key", b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if reflect.DeepEqual(a, b) != (textA == textB) {
			t.Fatalf("%#v is %s, %#v is %s", a, textA, b, textB)
		}
		if again, err := canonical("key", json.RawMessage(textA)); err != nil || again != textA {
			t.Fatalf("%s serialised again is %s (%v)", textA, again, err)
		}
	})
}

// A text is either rejected, or has a distinct row that can be read back as the
// text. The same applies to an object with two texts.
func FuzzCanonical(f *testing.F) {
	f.Add("hamlet", "")
	f.Add("\\ufffd", "\ufffd")
	f.Add("\\\\u0000", "<&>\u2028")
	f.Add("\xff", "\x00")
	f.Fuzz(func(t *testing.T, a, b string) {
		text, err := canonical("key", map[string]string{"a": a, "b": b})
		bad := !utf8.ValidString(a+b) || !utf8.ValidString(a) || strings.ContainsRune(a+b, 0)
		if err != nil {
			if !bad && len(a)+len(b) < keyMax/8 {
				t.Fatalf("%q, %q: %v", a, b, err)
			}
			return
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(text), &back); err != nil || back["a"] != a || back["b"] != b || bad {
			t.Fatalf("%q, %q became %s, which reads %q (%v)", a, b, text, back, err)
		}
	})
}
