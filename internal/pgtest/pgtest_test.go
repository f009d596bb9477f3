package pgtest

import (
	"testing"
	"time"
)

func TestNew(t *testing.T) {
	t.Parallel()
	b := time.Now()
	db := New(t)
	t.Log("new", time.Since(b))
	var n int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM lane_slots").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != 3 {
		t.Fatalf("%d lane slots, want the 3 of the migrations", n)
	}
}
