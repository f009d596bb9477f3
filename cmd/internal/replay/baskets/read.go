package baskets

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast/holdfast/internal/inventory"
)

// Limits of a file. Read refuses a file beyond them.
const (
	LineMax  = 1 << 20    // bytes of a line
	ItemsMax = 10_000_000 // items of a file
)

// List is the contents of a file.
type List struct {
	// Baskets have at least one item each.
	Baskets []Basket
	// Items counts the items in all baskets. BlankItems and BlankLines count
	// what was left out.
	Items, BlankItems, BlankLines int
}

// Basket is one line.
type Basket struct {
	Line  int // counted from 1
	Items []string
}

// Demand returns how often each item is in the list.
func (l List) Demand() map[string]int64 {
	demand := make(map[string]int64)
	for _, b := range l.Baskets {
		for _, item := range b.Items {
			demand[item]++
		}
	}
	return demand
}

// Read reads all baskets. An item is a variant's id, taken literally: a space
// at its end belongs to it. Items and lines that are empty or only white space
// are left out and counted. An item that is not a valid variant id is an error
// that names its line.
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
