package traffic

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/inventory"
)

// text returns the baskets in the form that readBaskets reads.
func (l basketList) text() string {
	var b strings.Builder
	for _, basket := range l.baskets {
		b.WriteString(strings.Join(basket.items, ",") + "\n")
	}
	return b.String()
}

func TestReadBaskets(t *testing.T) {
	t.Parallel()
	got, err := readBaskets(strings.NewReader("milk,cream cheese ,rolls/buns\r\n\n \t\n,milk, ,\n milk"))
	if err != nil {
		t.Fatal(err)
	}
	want := basketList{
		baskets: []basket{
			{line: 1, items: []string{"milk", "cream cheese ", "rolls/buns"}},
			{line: 4, items: []string{"milk"}},
			{line: 5, items: []string{" milk"}},
		},
		items: 5, blankItems: 3, blankLines: 2,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(basketList{}, basket{})); diff != "" {
		t.Error(diff)
	}
	demand := map[string]int64{"milk": 2, " milk": 1, "cream cheese ": 1, "rolls/buns": 1}
	if diff := cmp.Diff(demand, got.demand()); diff != "" {
		t.Errorf("demand: %s", diff)
	}
}

func TestReadBasketsRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"an id of 129 characters": "milk\n" + strings.Repeat("ä", 129),
		"a NUL":                   "milk\nm\x00lk",
		"invalid UTF-8":           "milk\nm\xfflk",
	} {
		_, err := readBaskets(strings.NewReader(text))
		if _, invalid := errors.AsType[*inventory.InvalidError](err); !invalid || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readBaskets(strings.NewReader(strings.Repeat("milk,", lineMax))); err == nil {
		t.Error("a line of 5 MiB was read")
	}
	if _, err := readBaskets(strings.NewReader(strings.Repeat("ä", 128))); err != nil {
		t.Errorf("an id of 128 characters: %v", err)
	}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	list := generate(1, 5000, 169)
	if !reflect.DeepEqual(list, generate(1, 5000, 169)) {
		t.Error("the same seed made other baskets")
	}
	if reflect.DeepEqual(list, generate(2, 5000, 169)) {
		t.Error("another seed made the same baskets")
	}
	for _, b := range list.baskets {
		if len(b.items) == 0 || len(slices.Compact(slices.Sorted(slices.Values(b.items)))) != len(b.items) {
			t.Fatalf("basket %d is empty or has an item twice: %q", b.line, b.items)
		}
	}
	demand := list.demand()
	counts := slices.Sorted(maps.Values(demand))
	if top := counts[len(counts)-1]; len(demand) < 165 || top < 1000 || top > 2000 || counts[len(counts)/2] > top/5 {
		t.Errorf("%d items in demand, the first %d times, the median %d times: not the skew of a grocery",
			len(demand), top, counts[len(counts)/2])
	}
	if mean := float64(list.items) / 5000; mean < 3.5 || mean > 5.5 {
		t.Errorf("%.1f items per basket", mean)
	}

	read, err := readBaskets(strings.NewReader(list.text()))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(list, read) {
		t.Error("the baskets read differ from those written")
	}
}

// TestReadGroceries reads a month of real baskets, where HOLDFAST_SHARED names
// the folder that has them.
func TestReadGroceries(t *testing.T) {
	t.Parallel()
	shared := os.Getenv("HOLDFAST_SHARED")
	if shared == "" {
		t.Log("HOLDFAST_SHARED names no folder: nothing to read")
		return
	}
	file, err := os.Open(filepath.Join(shared, "data", "groceries.csv"))
	if err != nil {
		t.Fatalf("HOLDFAST_SHARED names a folder without data/groceries.csv: %v", err)
	}
	defer func() { _ = file.Close() }()
	list, err := readBaskets(file)
	if err != nil {
		t.Fatal(err)
	}
	demand := list.demand()
	if len(list.baskets) != 9835 || list.items != 43_367 || len(demand) != 169 || demand["whole milk"] != 2513 || list.blankItems+list.blankLines != 0 {
		t.Errorf("%d baskets, %d items, %d distinct, %d of whole milk, %d blank; want 9835, 43367, 169, 2513, 0",
			len(list.baskets), list.items, len(demand), demand["whole milk"], list.blankItems+list.blankLines)
	}
}
