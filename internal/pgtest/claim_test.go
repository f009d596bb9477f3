package pgtest

import (
	"runtime"
	"testing"
)

// The mark that keeps other processes from dropping our databases lasts as long as its connection, and a connection
// that nothing refers to any more is closed by the garbage collector.
func TestClaimOutlivesCollection(t *testing.T) {
	t.Parallel()
	db := New(t)
	s, err := theServer()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
	}
	const claimedSQL = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND objid = $2 AND granted`
	var claims int
	if err := db.QueryRow(t.Context(), claimedSQL, uint32(ownerLocks), s.owner).Scan(&claims); err != nil {
		t.Fatal(err)
	}
	if claims != 1 {
		t.Errorf("the process is marked alive %d times, want once", claims)
	}
}
