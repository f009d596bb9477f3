package inventory

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/unitrows"
)

// unitRows are rows from texts: "a" has no position, "a@3" has one. The lines
// are numbered from 1.
func unitRows(t *testing.T, texts ...string) (rows []row[NewUnit]) {
	t.Helper()
	for i, text := range texts {
		id, at, given := strings.Cut(text, "@")
		u := NewUnit{UnitID: id}
		if given {
			if _, err := fmt.Sscan(at, &u.Position); err != nil {
				t.Fatal(err)
			}
		}
		rows = append(rows, row[NewUnit]{line: int64(i + 1), value: u})
	}
	return rows
}

func TestPlace(t *testing.T) {
	t.Parallel()
	seat := func(id string, position int64) unitrows.Unit { return unitrows.Unit{UnitID: id, Position: position} }
	for name, c := range map[string]struct {
		rows      []string
		present   []unitrows.Unit
		last      int64
		added     string
		unchanged int64
		refused   string
		newLast   int64
	}{
		"empty block":         {rows: []string{"a", "b"}, added: "a@1 b@2", newLast: 2},
		"after the last":      {rows: []string{"a", "b"}, last: 7, added: "a@8 b@9", newLast: 9},
		"a gap":               {rows: []string{"a", "b@5", "c", "d@3"}, added: "a@1 b@5 c@6 d@3", newLast: 6},
		"twice":               {rows: []string{"a", "a", "a"}, added: "a@1", unchanged: 2, newLast: 1},
		"twice, one position": {rows: []string{"a@4", "a@4", "a"}, added: "a@4", unchanged: 2, newLast: 4},
		"moved":               {rows: []string{"a@4", "a@5"}, added: "a@4", refused: "2", newLast: 4},
		"one position":        {rows: []string{"a", "b@1"}, added: "a@1 b@1", newLast: 1},
		"there already": {
			rows:    []string{"a", "b@2", "c@2", "d"},
			present: []unitrows.Unit{seat("a", 1), seat("b", 2)}, last: 2,
			added: "c@2 d@3", unchanged: 2, newLast: 3,
		},
		"nothing new": {rows: []string{"a@9", "a"}, present: []unitrows.Unit{seat("a", 1)}, last: 1, unchanged: 1, refused: "1", newLast: 1},
	} {
		got := place(unitRows(t, c.rows...), c.present, c.last)
		var added, refused []string
		for _, u := range got.added {
			added = append(added, fmt.Sprintf("%s@%d", u.UnitID, u.Position))
		}
		for _, r := range got.refused {
			refused = append(refused, fmt.Sprint(r.line))
			if r.fault.Field != "position" {
				t.Errorf("%s: line %d is refused for its %s", name, r.line, r.fault.Field)
			}
		}
		want := []any{c.added, c.unchanged, c.refused, c.newLast}
		if diff := cmp.Diff(want, []any{strings.Join(added, " "), got.unchanged, strings.Join(refused, " "), got.last}); diff != "" {
			t.Errorf("%s: added, unchanged, refused, last (-want +got):\n%s", name, diff)
		}
	}
}

// Lines that are no units: the error names the field, and the lines around them
// are read. Valid lines are the same in both formats.
func TestReadUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ csv, ndjson, field string }{
		{`a,7`, `{"unit_id":"a","position":7}`, ""}, {`a,`, `{"unit_id":"a"}`, ""}, {` A 1 , +7 `, `{"position":7,"unit_id":" A 1 "}`, ""},
		{`"a ""b"", c",1`, `{"unit_id":"a \"b\", c","position":1}`, ""}, {`a,1099511627776`, `{"unit_id":"a","position":1099511627776}`, ""},
		{`,1`, `{"unit_id":""}`, "unit_id"}, {"a\x00,1", `{"unit_id":"a\u0000"}`, "unit_id"}, {"..,1", `{"unit_id":".."}`, "unit_id"},
		{strings.Repeat("u", 129) + ",1", `{"unit_id":null}`, "unit_id"}, {"///,1", `{"position":1}`, "unit_id"}, {"\u0085,1", `{"unit_id":7}`, "unit_id"},
		{`a,0`, `{"unit_id":"a","position":0}`, "position"}, {`a,-1`, `{"unit_id":"a","position":-1}`, "position"},
		{`a,1.5`, `{"unit_id":"a","position":1.5}`, "position"}, {`a,x`, `{"unit_id":"a","position":"1"}`, "position"},
		{`a,1099511627777`, `{"unit_id":"a","position":1099511627777}`, "position"}, {`a,99999999999999999999`, `{"unit_id":"a","position":null}`, "position"},
		{`a,1e3`, `{"unit_id":"a","position":1,"position":2}`, "position"},
		{`a,1,1`, `{"unit_id":"a","seat":1}`, "line"}, {`a`, `{"unit_id":"a"`, "line"}, {`"a,1`, `["a"]`, "line"}, {"a\xff,1", "{\"unit_id\":\"\xff\"}", "line"},
	} {
		for format, line := range map[Format]string{CSV: c.csv, NDJSON: c.ndjson} {
			input, good := "unit_id,position\n", "w,1"
			if format == NDJSON {
				input, good = "", `{"unit_id":"w","position":1}`
			}
			rr, err := newRowReader(&unitForm, format, strings.NewReader(input+good+"\n"+line+"\n"+good))
			if err != nil {
				t.Fatal(err)
			}
			var units, faults []string
			for {
				at, fault, err := rr.next()
				if err == io.EOF {
					break
				}
				if fault != nil {
					faults = append(faults, fault.Field)
				} else {
					units = append(units, at.value.UnitID)
				}
			}
			if got := strings.Join(faults, " "); got != c.field || len(units)+len(faults) != 3 {
				t.Errorf("%s %.40q: faults %q, want %q; units %q", format, line, got, c.field, units)
			}
		}
	}
	for _, header := range []string{"", "unit", "position", "unit_id,unit_id", "unit_id,stock", "variant_id,stock"} {
		if _, err := newRowReader(&unitForm, CSV, strings.NewReader(header)); err == nil || err.(*InvalidError).Field != "header" {
			t.Errorf("header %q: %v", header, err)
		}
	}
}
