package inventory

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast/holdfast/internal/lanes"
)

// readAll reads every row, and returns the errors as "line field".
func readAll(format Format, r io.Reader) (rows []row[edit], faults []RejectedLine, err error) {
	rr, err := newRowReader(&stockForm, format, r)
	if err != nil {
		return nil, nil, err
	}
	for {
		at, fault, err := rr.next()
		switch {
		case err == io.EOF:
			return rows, faults, nil
		case err != nil:
			return rows, faults, err
		case fault != nil:
			faults = append(faults, RejectedLine{at.line, fault.Field, fault.Message})
		default:
			rows = append(rows, at)
		}
	}
}

func TestReadHeader(t *testing.T) {
	t.Parallel()
	for header, ok := range map[string]bool{
		"variant_id,stock": true, "stock,variant_id\r\n": true, "\xef\xbb\xbfvariant_id,stock": true, "\n\r\nvariant_id,stock": true,
		`"variant_id","stock"`: true, "Variant_ID , STOCK": true,
		"lane,max_per_cart,hold_ttl_seconds,backorder,tracked,stock,variant_id": true,

		"": false, "\n\n": false, "\xef\xbb\xbf": false, "variant_id": false, "stock": false, "variant_id;stock": false, "variant_id,stock,": false,
		"variant_id,stock,colour": false, "variant_id,stock,stock": false, `variant_id,"stock`: false, "variant_id,stock\x00": false,
		"v,1": false, "\xff\xfev\x00": false, "variant_id,stock," + strings.Repeat("x", MaxImportLine): false,
		strings.Repeat(",", 100): false,
	} {
		_, err := newRowReader(&stockForm, CSV, strings.NewReader(header))
		invalid, is := errors.AsType[*InvalidError](err)
		if (err == nil) != ok || !ok && (!is || invalid.Field != "header" || len(invalid.Message) > 200) {
			t.Errorf("%.60q: got %v", header, err)
		}
	}
	if _, err := newRowReader(&stockForm, "xlsx", strings.NewReader("variant_id,stock")); err == nil || err.(*InvalidError).Field != "format" {
		t.Errorf("format xlsx: %v", err)
	}
}

// Valid lines have the same edits in both formats.
func TestDecodeRows(t *testing.T) {
	t.Parallel()
	const header = "variant_id,stock,tracked,backorder,hold_ttl_seconds,max_per_cart,lane\n"
	all := StockPatch{new(int64(7)), new(true), new(false), new(int32(900)), new(int32(5)), new(lanes.WishHot), nil, nil, nil}
	cleared := StockPatch{HoldTTLSeconds: new(int32), MaxPerCart: new(int32)}
	for _, c := range []struct {
		csv, ndjson string
		want        edit
	}{
		{`v,7,true,false,900,5,hot`, `{"variant_id":"v","stock":7,"tracked":true,"backorder":false,"hold_ttl_seconds":900,"max_per_cart":5,"lane":"hot"}`, edit{variantID: "v", patch: all}},
		{`v, +7 ,TRUE,0, 900,5 , hot `, ` { "lane" : "hot","max_per_cart":5,"hold_ttl_seconds":900, "backorder":false,"tracked":true,"stock":7,"variant_id":"v" } `, edit{variantID: "v", patch: all}},
		{`"a ""b"", c",,,,,,`, `{"variant_id":"a \"b\", c"}`, edit{variantID: `a "b", c`}},
		{` rolls/buns ,,,,,,`, `{"variant_id":" rolls/buns "}`, edit{variantID: " rolls/buns "}},
		{`v,, ,,0,0,`, `{"variant_id":"v","hold_ttl_seconds":null,"max_per_cart":0}`, edit{variantID: "v", patch: cleared}},
		{"🥐,,,,,,", `{"variant_id":"\ud83e\udd50"}`, edit{variantID: "🥐"}},
	} {
		for format, input := range map[Format]string{CSV: header + c.csv, NDJSON: c.ndjson} {
			rows, faults, err := readAll(format, strings.NewReader(input))
			if err != nil || len(faults) != 0 || len(rows) != 1 {
				t.Errorf("%s %s: %v, %v, %v", format, input, rows, faults, err)
				continue
			}
			if rows[0].value.variantID != c.want.variantID || !samePatch(rows[0].value.patch, c.want.patch) {
				t.Errorf("%s %s: got %+v", format, input, rows[0])
			}
		}
	}
}

func samePatch(a, b StockPatch) bool {
	return samePtr(a.Stock, b.Stock) && samePtr(a.Tracked, b.Tracked) && samePtr(a.Backorder, b.Backorder) &&
		samePtr(a.HoldTTLSeconds, b.HoldTTLSeconds) && samePtr(a.MaxPerCart, b.MaxPerCart) && samePtr(a.Lane, b.Lane) &&
		samePtr(a.Admission, b.Admission)
}

func samePtr[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// The error of an invalid line names the field. The lines around it are read.
func TestRejectLines(t *testing.T) {
	t.Parallel()
	const header = "variant_id,stock,tracked,hold_ttl_seconds,max_per_cart,lane\n"
	long := strings.Repeat("x", MaxImportLine)
	for _, c := range []struct {
		format      Format
		line, field string
	}{
		{CSV, `,1,,,,`, "variant_id"}, {CSV, "a\x00,1,,,,", "variant_id"}, {CSV, strings.Repeat("v", 129) + ",1,,,,", "variant_id"},
		{CSV, `v,-1,,,,`, "stock"}, {CSV, `v,1.5,,,,`, "stock"}, {CSV, `v,1e3,,,,`, "stock"}, {CSV, `v,0x1,,,,`, "stock"}, {CSV, `v,1_0,,,,`, "stock"},
		{CSV, `v,1000000001,,,,`, "stock"}, {CSV, `v,99999999999999999999,,,,`, "stock"}, {CSV, `v,"1,000",,,,`, "stock"},
		{CSV, `v,1,yes,,,`, "tracked"}, {CSV, `v,1,,2592001,,`, "hold_ttl_seconds"}, {CSV, `v,1,,4294967297,,`, "hold_ttl_seconds"},
		{CSV, `v,1,,,-1,`, "max_per_cart"}, {CSV, `v,1,,,,warm`, "lane"},
		{CSV, `v,1,,,`, "line"}, {CSV, `v,1,,,,,`, "line"}, {CSV, `v,1,,,,"hot`, "line"}, {CSV, `v,1,,,,"h"t`, "line"}, {CSV, `v,1,,,,h"o"t`, "line"},
		{CSV, "v\xff,1,,,,", "line"}, {CSV, long + ",1,,,,", "line"}, {CSV, long + long + long, "line"},

		{NDJSON, `{"stock":1}`, "variant_id"}, {NDJSON, `{"variant_id":""}`, "variant_id"}, {NDJSON, `{"variant_id":null}`, "variant_id"},
		{NDJSON, `{"variant_id":7}`, "variant_id"}, {NDJSON, `{"variant_id":"a\u0000"}`, "variant_id"}, {NDJSON, `{"variant_id":"v","variant_id":"w"}`, "variant_id"},
		{NDJSON, `{"variant_id":"v","stock":-1}`, "stock"}, {NDJSON, `{"variant_id":"v","stock":1.5}`, "stock"}, {NDJSON, `{"variant_id":"v","stock":"1"}`, "stock"},
		{NDJSON, `{"variant_id":"v","stock":null}`, "stock"}, {NDJSON, `{"variant_id":"v","stock":1e3}`, "stock"}, {NDJSON, `{"variant_id":"v","stock":[]}`, "stock"},
		{NDJSON, `{"variant_id":"v","tracked":1}`, "tracked"}, {NDJSON, `{"variant_id":"v","backorder":null}`, "backorder"},
		{NDJSON, `{"variant_id":"v","max_per_cart":4294967297}`, "max_per_cart"}, {NDJSON, `{"variant_id":"v","lane":true}`, "lane"},
		{NDJSON, `{"variant_id":"v","Stock":1}`, "line"}, {NDJSON, `{"variant_id":"v","colour":1}`, "line"}, {NDJSON, `{"variant_id":"v","":1}`, "line"},
		{NDJSON, `{"variant_id":"v"`, "line"}, {NDJSON, `{"variant_id":"v"}}`, "line"}, {NDJSON, `{"variant_id":"v"} {"variant_id":"v"}`, "line"},
		{NDJSON, `{"variant_id":"v",}`, "line"}, {NDJSON, `["v"]`, "line"}, {NDJSON, `null`, "line"}, {NDJSON, `v`, "line"}, {NDJSON, "\x00", "line"},
		{NDJSON, "{\"variant_id\":\"v\xff\"}", "line"}, {NDJSON, `{"variant_id":"` + long + `"}`, "line"}, {NDJSON, strings.Repeat("[", 60_000), "line"},
		{NDJSON, `{"stock":` + strings.Repeat("[", 60_000), "line"},
	} {
		good, first := "w,1,,,,", int64(3)
		input := header + good + "\n" + c.line + "\r\n\n" + good
		if c.format == NDJSON {
			good, first = `{"variant_id":"w","stock":1}`, 2
			input = good + "\n" + c.line + "\r\n\n" + good
		}
		rows, faults, err := readAll(c.format, strings.NewReader(input))
		if err != nil || len(rows) != 2 || len(faults) != 1 {
			t.Errorf("%s %.60q: %d rows, faults %v, error %v", c.format, c.line, len(rows), faults, err)
			continue
		}
		if faults[0].Field != c.field || faults[0].Line != first || rows[1].line != first+2 || len(faults[0].Message) > 200 {
			t.Errorf("%s %.60q: got %+v; the next row is on line %d", c.format, c.line, faults[0], rows[1].line)
		}
	}
}

// A line whose length is exactly the limit is read, whatever its line end.
func TestLongestLine(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("x", MaxImportLine)
	for _, end := range []string{"", "\n", "\r\n"} {
		for more, ok := range map[string]bool{"": true, "y": false} {
			l := newLineReader(strings.NewReader(line + more + end + "z"))
			if end == "" {
				l = newLineReader(strings.NewReader(line + more))
			}
			got, err := l.next()
			if ok && (err != nil || got != line) || !ok && err == nil {
				t.Errorf("end %q, more %q: %d bytes, %v", end, more, len(got), err)
			}
			if next, err := l.next(); end != "" && (next != "z" || err != nil) || end == "" && err != io.EOF {
				t.Errorf("end %q, more %q: the next line is %q, %v", end, more, next, err)
			}
		}
	}
}

func TestReaderErrorsAreReturned(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection lost")
	for _, read := range []error{broken, errors.Join(broken, io.EOF)} {
		for _, text := range []string{"variant_id,stock\nv,1\nw", "variant_id,sto", ""} {
			_, _, err := readAll(CSV, io.MultiReader(strings.NewReader(text), iotest.ErrReader(read)))
			if !errors.Is(err, broken) {
				t.Errorf("%q: got %v", text, err)
			}
		}
	}
}

// A line without an end uses bounded memory, however long it is. The test is
// not parallel, because it measures the allocations of the process.
func TestEndlessLineIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, faults, err := readAll(NDJSON, io.LimitReader(endless{}, 256<<20))
	runtime.ReadMemStats(&after)
	if err != nil || len(faults) != 1 || faults[0].Field != "line" {
		t.Errorf("faults %v, error %v", faults, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '"'
	}
	return len(p), nil
}

// Every row that a decoder accepts is in range. A reader that returns one byte
// at a time gives the same rows. The decoders neither panic nor read for ever.
func fuzzRows(f *testing.F, format Format) {
	f.Fuzz(func(t *testing.T, input []byte) {
		rows, faults, err := readAll(format, bytes.NewReader(input))
		if lines := bytes.Count(input, []byte("\n")) + 1; len(rows)+len(faults) > lines {
			t.Errorf("%d rows and %d faults from %d lines", len(rows), len(faults), lines)
		}
		if err != nil && !errors.As(err, new(*InvalidError)) {
			t.Errorf("got %v", err)
		}
		for _, r := range rows {
			if ValidateID("variant_id", r.value.variantID) != nil || r.value.patch.Validate() != nil {
				t.Errorf("line %d: %+v is out of range", r.line, r)
			}
		}
		slowRows, slowFaults, slowErr := readAll(format, iotest.OneByteReader(bytes.NewReader(input)))
		same := slices.EqualFunc(rows, slowRows, func(a, b row[edit]) bool {
			return a.line == b.line && a.value.variantID == b.value.variantID && samePatch(a.value.patch, b.value.patch)
		})
		if !same || !slices.Equal(faults, slowFaults) || (err == nil) != (slowErr == nil) {
			t.Errorf("byte by byte: %v %v %v, else %v %v %v", slowRows, slowFaults, slowErr, rows, faults, err)
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("variant_id,stock\nv,1\n"))
	f.Add([]byte("\xef\xbb\xbfstock,variant_id,tracked,backorder,hold_ttl_seconds,max_per_cart,lane\r\n1,\"a \"\"b\"\"\",true,0,,5,hot\r\n"))
	f.Add([]byte("variant_id,stock\n\"v,1\n\"w\"x,2\n,,,\n\x00\n"))
	fuzzRows(f, CSV)
}

func FuzzNDJSON(f *testing.F) {
	f.Add([]byte(`{"variant_id":"v","stock":1}` + "\n\n" + `{"variant_id":"v","hold_ttl_seconds":null}`))
	f.Add([]byte("\xef\xbb\xbf" + `{"variant_id":"\ud800","tracked":true,"backorder":false,"max_per_cart":1e9,"lane":"hot"}` + "\r\n[[[[\n"))
	fuzzRows(f, NDJSON)
}

// splitCSV splits a line as the standard library does.
func FuzzSplitCSV(f *testing.F) {
	for _, line := range []string{"", "a", "a,b", `"a","b"`, `"a""b",`, `"`, `a"b`, `"a"b`, ",,", `""`, ` "a"`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\r\n") || line == "" {
			return
		}
		got, err := splitCSV(line, len(line)+1)
		want, wantErr := csv.NewReader(strings.NewReader(line)).Read()
		if (err == nil) != (wantErr == nil) || err == nil && !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v; the standard library says %q, %v", line, got, err, want, wantErr)
		}
	})
}
