package hot

// frequent counts the most frequent of many keys in bounded memory, as Misra and Gries describe it ("Finding repeated
// elements", 1982): a key that finds no place takes one from everybody's count. A count is never too high, and too low by
// at most what was counted over the number of places, so with 1,024 places every key with a thousandth of all is seen.
// Counting takes constant time on average: everybody's count can go down only as often as each went up.
type frequent[K comparable] struct {
	places int
	counts map[K]*int64
	total  int64 // all that was counted, exactly
}

func newFrequent[K comparable](places int) frequent[K] {
	return frequent[K]{places: places, counts: make(map[K]*int64, places)}
}

// add counts the key n times.
func (f *frequent[K]) add(key K, n int64) {
	f.total += n
	if count := f.counts[key]; count != nil {
		*count += n
		return
	}
	if len(f.counts) >= f.places {
		if n = f.makeRoom(n); n == 0 {
			return
		}
	}
	f.counts[key] = &n
}

// makeRoom takes the same from everybody and from the n of a newcomer, until one place is free or nothing of n is left,
// which it returns.
func (f *frequent[K]) makeRoom(n int64) int64 {
	least := n
	for _, count := range f.counts {
		least = min(least, *count)
	}
	for key, count := range f.counts {
		if *count -= least; *count == 0 {
			delete(f.counts, key)
		}
	}
	return n - least
}

// reset forgets everything and keeps the memory.
func (f *frequent[K]) reset() {
	clear(f.counts)
	f.total = 0
}
