package hot_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
)

// TestAmong finds the tenant's own hot variants, and says of each whether it takes new requests.
func TestAmong(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	bell, err := queues.NewBell(db)
	if err != nil {
		t.Fatal(err)
	}
	tenant, other := uuid.New(), uuid.New()
	for _, variant := range []string{"in", "out"} {
		if err := hot.Pin(t.Context(), db, bell, tenant, variant); err != nil {
			t.Fatal(err)
		}
	}
	if err := hot.Unpin(t.Context(), db, bell, tenant, "out"); err != nil {
		t.Fatal(err)
	}
	among, err := hot.Among(t.Context(), db, tenant, []string{"in", "out", "never"})
	if err != nil || len(among) != 2 || !among["in"].TakesNew() || !among["in"].Pinned || among["out"].TakesNew() || among["never"].TakesNew() {
		t.Errorf("among them are %+v, %v", among, err)
	}
	if among, err := hot.Among(t.Context(), db, other, []string{"in"}); err != nil || len(among) != 0 {
		t.Errorf("another tenant has %+v, %v", among, err)
	}
	if among, err := hot.Among(t.Context(), db, tenant, nil); err != nil || len(among) != 0 {
		t.Errorf("among none are %+v, %v", among, err)
	}
}
