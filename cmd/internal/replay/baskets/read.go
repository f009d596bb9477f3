package baskets

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast/holdfast/inventory"
)

// Limits of what is read. A file beyond them is refused.
const (
	LineMax  = 1 << 20    // bytes of a line
	ItemsMax = 10_000_000 // items of a file
)

// List is what a file holds.
type List struct {
	// Baskets have at least one item each.
	Baskets []Basket
	// Items is how many there are in all baskets; BlankItems and BlankLines were left out.
	Items, BlankItems, BlankLines int
}

// Basket is one line.
type Basket struct {
	Line  int // counted from 1
	Items []string
}

// Demand is how often each item stands in the list.
func (l List) Demand() map[string]int64 {
	demand := make(map[string]int64)
	for _, b := range l.Baskets {
		for _, item := range b.Items {
			demand[item]++
		}
	}
	return demand
}

// Read reads all baskets. An item is a variant's id, taken literally: a space at its end belongs to it. What is empty or
// nothing but white space is left out and counted. An item that can't be a variant's id is an error that names its line.
func Read(r io.Reader) (List, error) {
	var l List
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), LineMax)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if strings.TrimSpace(line) == "" {
			l.BlankLines++
			continue
		}
		b := Basket{Line: n}
		for item := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(item) == "" {
				l.BlankItems++
				continue
			}
			if err := inventory.ValidateID("item", item); err != nil {
				return List{}, fmt.Errorf("line %d: %w", n, err)
			}
			b.Items = append(b.Items, item)
		}
		if l.Items += len(b.Items); l.Items > ItemsMax {
			return List{}, fmt.Errorf("line %d: more than %d items in one file", n, ItemsMax)
		}
		if len(b.Items) > 0 {
			l.Baskets = append(l.Baskets, b)
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d bytes", LineMax)
		}
		return List{}, fmt.Errorf("read baskets: %w", err)
	}
	return l, nil
}
