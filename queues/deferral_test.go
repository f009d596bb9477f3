package queues

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/inventory"
)

// A variant whose stock is found locked is left for longer and longer; after some tries one drain waits for it.
func TestDeferrals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deferrals{}
		v := inventory.Ref{TenantID: uuid.New(), VariantID: "shoe"}
		set := func(vs ...inventory.Ref) map[inventory.Ref]struct{} {
			m := make(map[inventory.Ref]struct{})
			for _, v := range vs {
				m[v] = struct{}{}
			}
			return m
		}
		began := time.Now()
		for range deferTries {
			d.note(0, set(v), nil)
			if skip, only := d.next(0); !slices.Equal(skip, []inventory.Ref{v}) || only != nil {
				t.Fatalf("leave %v, wait for %v; want it left", skip, only)
			}
			<-time.After(deferMax + time.Millisecond)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it was left for %s", took)
		}
		if _, only := d.next(0); only == nil || *only != v {
			t.Fatal("no drain waits for it")
		}
		if skip, only := d.next(0); len(skip) != 1 || only != nil {
			t.Error("another drain does not leave it")
		}
		d.waited(0, &v, 1, errors.New("not in time"))
		if skip, only := d.next(0); len(skip) != 1 || only != nil {
			t.Error("it is not left after a wait in vain")
		}
		<-time.After(deferWait + time.Millisecond)
		if _, only := d.next(0); only == nil {
			t.Error("no drain waits for it again")
		}
		d.waited(0, &v, 1, nil)
		if skip, only := d.next(0); len(skip) != 0 || only != nil {
			t.Error("it is left although its lock was granted")
		}
		d.note(0, set(v), nil)
		if skip, _ := d.next(1); len(skip) != 0 {
			t.Error("another slot leaves it")
		}
		d.note(0, nil, set(v))
		if skip, only := d.next(0); len(skip) != 0 || only != nil {
			t.Error("it is left although it was found free")
		}
	})
}
