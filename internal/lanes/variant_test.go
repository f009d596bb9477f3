package lanes_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
)

// Lookup finds the tenant's hot variants, and reports of each whether it
// accepts new requests.
func TestLookup(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	inserter, err := queues.NewWakeInserter(db)
	if err != nil {
		t.Fatal(err)
	}
	tenant, other := uuid.New(), uuid.New()
	for _, variant := range []string{"in", "out"} {
		if err := lanes.Pin(t.Context(), db, inserter, tenant, variant); err != nil {
			t.Fatal(err)
		}
	}
	if err := lanes.Unpin(t.Context(), db, inserter, tenant, "out"); err != nil {
		t.Fatal(err)
	}
	found, err := lanes.Lookup(t.Context(), db, tenant, []string{"in", "out", "never"})
	if err != nil || len(found) != 2 || !found["in"].TakesNew() || !found["in"].Pinned || found["out"].TakesNew() || found["never"].TakesNew() {
		t.Errorf("found are %+v, %v", found, err)
	}
	if found, err := lanes.Lookup(t.Context(), db, other, []string{"in"}); err != nil || len(found) != 0 {
		t.Errorf("another tenant has %+v, %v", found, err)
	}
	if found, err := lanes.Lookup(t.Context(), db, tenant, nil); err != nil || len(found) != 0 {
		t.Errorf("without variants: %+v, %v", found, err)
	}
}
