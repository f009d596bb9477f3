package tenants

import (
	"context"
	"errors"
	"fmt"
)

// Finder finds the database that has a key, of several that are cells. It keeps
// no directory: the database in which the key's tenant is active is asked, which
// is the one that had the key before. Only a key that was not seen yet, or whose
// tenant has moved, is looked up in all of them. It is safe for concurrent use.
type Finder struct {
	cells []*Authenticator
	had   *recent[int]
}

// NewFinder returns a Finder over the cells, whose answers each of them caches.
func NewFinder(cells []*Authenticator) *Finder {
	return &Finder{cells, newRecent[int](defaultCacheSize)}
}

// UnavailableError means that a cell does not respond, which has the key or may
// have it.
type UnavailableError struct {
	Cell int
	Err  error
}

func (e *UnavailableError) Error() string { return fmt.Sprintf("cell %d: %s", e.Cell, e.Err) }

// Unwrap returns the error of the database.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Find returns the index of the cell in which the tenant of the key is active,
// or moving.
//
// Errors: [ErrUnknownKey], [ErrElsewhere] if the tenant is active in none of the
// cells, *UnavailableError.
func (f *Finder) Find(ctx context.Context, plaintext string) (int, error) {
	if !WellFormed(plaintext) {
		return 0, ErrUnknownKey
	}
	hash := hashOf(plaintext)
	cell, seen := f.had.get(hash)
	if seen {
		if _, ok := f.cells[cell].Cached(plaintext); ok {
			return cell, nil
		}
		_, err := f.cells[cell].Authenticate(ctx, plaintext)
		switch {
		case err == nil:
			return cell, nil
		case !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrElsewhere):
			return cell, &UnavailableError{cell, err}
		}
	}
	cell, err := f.search(ctx, plaintext)
	if err == nil {
		f.had.put(hash, cell)
	}
	return cell, err
}

// search asks all cells at once.
func (f *Finder) search(ctx context.Context, plaintext string) (found int, err error) {
	type result struct {
		cell int
		err  error
	}
	results := make(chan result, len(f.cells))
	for cell, keys := range f.cells {
		go func() {
			_, err := keys.Authenticate(ctx, plaintext)
			results <- result{cell, err}
		}()
	}
	found, err = 0, ErrUnknownKey
	for range f.cells {
		r := <-results
		switch {
		case r.err == nil:
			return r.cell, nil
		case errors.Is(r.err, ErrUnknownKey):
		case errors.Is(r.err, ErrElsewhere):
			if errors.Is(err, ErrUnknownKey) {
				found, err = r.cell, r.err
			}
		default:
			found, err = r.cell, &UnavailableError{r.cell, r.err}
		}
	}
	return found, err
}
