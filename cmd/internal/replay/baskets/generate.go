package baskets

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// The distribution of the baskets of Generate, modelled on a month of a
// grocery's sales. A few items are in every fourth basket, most items in one of
// a hundred or fewer, and half of the baskets have at most three items.
const (
	sizeMean = 4.4
	sizeMax  = 32
	skew     = 1.0 // of the weights of items: 1 / (rank + shift) ^ skew
	shift    = 3.0
)

// Generate makes n baskets of items "item-000", "item-001", …, in descending
// order of demand. The same seed makes the same baskets. No item is twice in a
// basket. Generate panics unless n ≥ 0 and items ≥ 1.
func Generate(seed uint64, n, items int) List {
	random := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) //nolint:gosec // repeatable traffic, not a secret
	sums := make([]float64, items)
	sum := 0.0
	for i := range sums {
		sum += 1 / math.Pow(float64(i)+shift, skew)
		sums[i] = sum
	}
	l := List{Baskets: make([]Basket, n)}
	for i := range l.Baskets {
		size := min(1+int(random.ExpFloat64()*(sizeMean-0.5)), sizeMax, items)
		b := Basket{Line: i + 1, Items: make([]string, 0, size)}
		for len(b.Items) < size {
			rank, _ := slices.BinarySearch(sums, random.Float64()*sum)
			if item := fmt.Sprintf("item-%03d", rank); !slices.Contains(b.Items, item) {
				b.Items = append(b.Items, item)
			}
		}
		l.Items += size
		l.Baskets[i] = b
	}
	return l
}

// Write writes the baskets in the form that Read reads.
func (l List) Write(w io.Writer) error {
	for _, b := range l.Baskets {
		if _, err := io.WriteString(w, strings.Join(b.Items, ",")+"\n"); err != nil {
			return fmt.Errorf("write baskets: %w", err)
		}
	}
	return nil
}
