package tenants_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast/holdfast/internal/tenants"
)

// newFinder returns two cells, whose look-ups of keys are counted.
func newFinder(t *testing.T, config tenants.Config) (cells []*fixture, queries []*queryCount, finder *tenants.Finder) {
	t.Helper()
	keys := make([]*tenants.Authenticator, 2)
	for i := range keys {
		b := newFixture(t)
		pool, count := countingPool(t, b)
		keys[i] = tenants.NewAuthenticator(pool, config)
		cells, queries = append(cells, b), append(queries, count)
	}
	return cells, queries, tenants.NewFinder(keys)
}

// A flood of calls with one unknown key costs each cell one query, and a key that
// was found costs the other cells none.
func TestFinderAsksOnce(t *testing.T) {
	t.Parallel()
	cells, queries, finder := newFinder(t, caching)
	known, _ := cells[1].createKey(t, tenants.ScopeCart)
	unknown, unknownKey := cells[0].createKey(t, tenants.ScopeCart)
	cells[0].Exec(`DELETE FROM api_keys WHERE key_id = $1`, unknownKey.KeyID)
	var callers sync.WaitGroup
	for range 200 {
		callers.Go(func() {
			if _, err := finder.Find(t.Context(), unknown); !errors.Is(err, tenants.ErrUnknownKey) {
				t.Errorf("an unknown key: %v", err)
			}
			if cell, err := finder.Find(t.Context(), known); cell != 1 || err != nil {
				t.Errorf("a key of the second cell: in cell %d, %v", cell, err)
			}
		})
	}
	callers.Wait()
	for i, count := range queries {
		if n := count.Load(); n > 2 { // one of each key
			t.Errorf("%d queries in cell %d, want one of each key", n, i)
		}
	}
}

// From the announcement of a move on, no key of the tenant is remembered: what begins
// after the tenant has left does not read what it left behind.
func TestLeavingIsNotCached(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	keys := tenants.NewAuthenticator(b.DB, caching)
	plaintext, _ := b.createKey(t, tenants.ScopeCart)
	b.Exec(`UPDATE tenant_state SET moves_to = 'us'`)
	if _, err := keys.Authenticate(t.Context(), plaintext); err != nil {
		t.Fatal(err)
	}
	if _, ok := keys.Cached(plaintext); ok {
		t.Error("the key of a tenant that moves is remembered")
	}
	b.Exec(`UPDATE tenant_state SET state = 'gone'`)
	if _, err := keys.Authenticate(t.Context(), plaintext); !errors.Is(err, tenants.ErrElsewhere) {
		t.Errorf("the key of a tenant that has left: %v", err)
	}
}

// A key is found where its tenant is active, during a move and after it, and a
// cell that does not respond is named only to the callers of its own keys.
func TestFinderFollows(t *testing.T) {
	t.Parallel()
	cells, _, finder := newFinder(t, uncached)
	plaintext, _ := cells[0].createKey(t, tenants.ScopeCart)
	find := func(cell int, target error) {
		t.Helper()
		found, err := finder.Find(t.Context(), plaintext)
		if !errors.Is(err, target) || found != cell {
			t.Errorf("in cell %d, %v, want %d, %v", found, err, cell, target)
		}
	}
	find(0, nil)
	cells[0].Exec(`UPDATE tenant_state SET state = 'moving'`)
	find(0, nil)
	cells[0].Exec(`UPDATE tenant_state SET state = 'gone'`)
	find(0, tenants.ErrElsewhere)
	cells[1].Exec(`UPDATE tenant_state SET state = 'active'`)
	var digest []byte
	if err := cells[0].DB.QueryRow(t.Context(), `SELECT hash FROM api_keys`).Scan(&digest); err != nil {
		t.Fatal(err)
	}
	cells[1].Exec(`INSERT INTO api_keys (tenant_id, key_id, name, prefix, hash, scopes) SELECT tenant_id, gen_random_uuid(), 'till', 'hf_', $1, '{cart}' FROM tenants LIMIT 1`, digest)
	find(1, nil)

	dead, die := context.WithCancel(t.Context())
	die()
	_, err := finder.Find(dead, plaintext)
	if _, is := errors.AsType[*tenants.UnavailableError](err); !is {
		t.Errorf("%v, want the cell unavailable", err)
	}
}
