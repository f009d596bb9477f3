package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/internal/inventory"
)

// Limits of a file. readBaskets refuses a file beyond them.
const (
	lineMax  = 1 << 20    // bytes of a line
	itemsMax = 10_000_000 // items of a file
)

// basketList is the contents of a file: text with one basket per line, its
// items separated by commas. A basket is a cart, each item one unit to add, and
// the order of the lines is the order of arrival.
type basketList struct {
	// baskets have at least one item each.
	baskets []basket
	// items counts the items in all baskets. blankItems and blankLines count
	// what was left out.
	items, blankItems, blankLines int
}

// basket is one line.
type basket struct {
	line  int // counted from 1
	items []string
}

// demand returns how often each item is in the list.
func (l basketList) demand() map[string]int64 {
	demand := make(map[string]int64)
	for _, b := range l.baskets {
		for _, item := range b.items {
			demand[item]++
		}
	}
	return demand
}

// readBaskets reads all baskets. An item is a variant's id, taken literally: a
// space at its end belongs to it. Items and lines that are empty or only white
// space are left out and counted. An item that is not a valid variant id is an
// error that names its line.
func readBaskets(r io.Reader) (basketList, error) {
	var l basketList
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), lineMax)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if strings.TrimSpace(line) == "" {
			l.blankLines++
			continue
		}
		b := basket{line: n}
		for item := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(item) == "" {
				l.blankItems++
				continue
			}
			if err := inventory.ValidateID("item", item); err != nil {
				return basketList{}, fmt.Errorf("line %d: %w", n, err)
			}
			b.items = append(b.items, item)
		}
		if l.items += len(b.items); l.items > itemsMax {
			return basketList{}, fmt.Errorf("line %d: more than %d items in one file", n, itemsMax)
		}
		if len(b.items) > 0 {
			l.baskets = append(l.baskets, b)
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d bytes", lineMax)
		}
		return basketList{}, fmt.Errorf("read baskets: %w", err)
	}
	return l, nil
}

// The distribution of the baskets of generate, modelled on a month of a
// grocery's sales. A few items are in every fourth basket, most items in one of
// a hundred or fewer, and half of the baskets have at most three items.
const (
	sizeMean = 4.4
	sizeMax  = 32
	skew     = 1.0 // of the weights of items: 1 / (rank + shift) ^ skew
	shift    = 3.0
)

// itemName is the name of a generated item.
func itemName(rank int) string { return fmt.Sprintf("item-%03d", rank) }

// generate makes n baskets of items "item-000", "item-001", …, in descending
// order of demand. The same seed makes the same baskets. No item is twice in a
// basket. It panics unless n ≥ 0 and items ≥ 1.
func generate(seed uint64, n, items int) basketList {
	random := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) //nolint:gosec // repeatable traffic, not a secret
	sums := make([]float64, items)
	sum := 0.0
	for i := range sums {
		sum += 1 / math.Pow(float64(i)+shift, skew)
		sums[i] = sum
	}
	l := basketList{baskets: make([]basket, n)}
	for i := range l.baskets {
		size := min(1+int(random.ExpFloat64()*(sizeMean-0.5)), sizeMax, items)
		b := basket{line: i + 1, items: make([]string, 0, size)}
		for len(b.items) < size {
			rank, _ := slices.BinarySearch(sums, random.Float64()*sum)
			if item := itemName(rank); !slices.Contains(b.items, item) {
				b.items = append(b.items, item)
			}
		}
		l.items += size
		l.baskets[i] = b
	}
	return l
}
