package queues

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// A variant whose stock is found locked is left out for longer and longer.
// After some tries one drain waits for it.
func TestDeferrals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deferrals{}
		v := inventory.Ref{TenantID: uuid.New(), VariantID: "shoe"}
		locked := map[requestrows.Skip]struct{}{{Ref: v}: {}}
		began := time.Now()
		for range deferTries {
			d.record(0, locked, nil)
			if skip, only := d.next(0); !slices.Equal(skip, []requestrows.Skip{{Ref: v}}) || only != nil {
				t.Fatalf("left out %v, waited for %v; want it left out", skip, only)
			}
			<-time.After(deferMax + time.Millisecond)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it was left out for %s", took)
		}
		if _, only := d.next(0); only == nil || *only != v {
			t.Fatal("no drain waits for it")
		}
		if skip, only := d.next(0); len(skip) != 1 || only != nil {
			t.Error("another drain does not leave it out")
		}
		d.waited(0, &v, 1, errors.New("the wait timed out"))
		if skip, only := d.next(0); len(skip) != 1 || only != nil {
			t.Error("the variant is not deferred after a wait that timed out")
		}
		<-time.After(deferWait + time.Millisecond)
		if _, only := d.next(0); only == nil {
			t.Error("no drain waits for it again")
		}
		d.waited(0, &v, 1, nil)
		if skip, only := d.next(0); len(skip) != 0 || only != nil {
			t.Error("it is left out although its lock was granted")
		}
		d.record(0, locked, nil)
		if skip, _ := d.next(1); len(skip) != 0 {
			t.Error("another slot leaves it out")
		}
		d.record(0, nil, []requests.Request{{TenantID: v.TenantID, VariantID: v.VariantID, CartID: "a"}})
		if skip, only := d.next(0); len(skip) != 0 || only != nil {
			t.Error("it is left out although it was found free")
		}
	})
}

// The requests of a cart whose hold is locked are left out, and only those. They
// are claimed again after each pause, and no drain waits for the hold.
func TestDeferralsOfCarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deferrals{}
		shoe := inventory.Ref{TenantID: uuid.New(), VariantID: "shoe"}
		a := requestrows.Skip{Ref: shoe, CartID: "a"}
		of := func(cart string) []requests.Request {
			return []requests.Request{{TenantID: shoe.TenantID, VariantID: shoe.VariantID, CartID: cart}}
		}
		for range 2 * deferTries {
			d.record(0, map[requestrows.Skip]struct{}{a: {}}, of("b"))
			if skip, only := d.next(0); !slices.Equal(skip, []requestrows.Skip{a}) || only != nil {
				t.Fatalf("left out %v, waited for %v; want the cart left out", skip, only)
			}
			<-time.After(deferMax + time.Millisecond)
			if skip, only := d.next(0); len(skip) != 0 || only != nil {
				t.Fatalf("left out %v, waited for %v after the pause", skip, only)
			}
		}
		d.record(0, map[requestrows.Skip]struct{}{a: {}}, nil)
		d.record(0, nil, of("b"))
		if skip, _ := d.next(0); len(skip) != 1 {
			t.Error("it is not left out because of another cart")
		}
		d.record(0, nil, of("a"))
		if skip, _ := d.next(0); len(skip) != 0 {
			t.Error("it is left out although its request was decided")
		}
	})
}

// variantSet returns n variants of one tenant, whose names have the prefix.
func variantSet(tenant uuid.UUID, prefix string, n int) map[requestrows.Skip]struct{} {
	m := make(map[requestrows.Skip]struct{}, n)
	for i := range n {
		m[requestrows.Skip{Ref: inventory.Ref{TenantID: tenant, VariantID: fmt.Sprint(prefix, i)}}] = struct{}{}
	}
	return m
}

// At most deferredMax variants are left out. The next drain claims any other
// variant again. It is left out once older ones, which no drain has found
// locked since, are dropped.
func TestDeferralsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deferrals{}
		tenant := uuid.New()
		d.record(0, variantSet(tenant, "old-", deferredMax), nil)
		beyond := variantSet(tenant, "beyond-", 3)
		for range 3 {
			d.record(0, beyond, nil)
			skip, only := d.next(0)
			if len(skip) != deferredMax || only != nil {
				t.Fatalf("%d are left out, want %d", len(skip), deferredMax)
			}
			for _, v := range skip {
				if _, ok := beyond[v]; ok {
					t.Errorf("%s is left out, beyond the bound", v.VariantID)
				}
			}
		}
		<-time.After(deferMax + staleAfter)
		d.record(0, beyond, nil)
		if skip, only := d.next(0); len(skip) != len(beyond) || only != nil {
			t.Errorf("%d are left out, want the %d that were found locked since", len(skip), len(beyond))
		}
		if len(d.skips) != len(beyond) {
			t.Errorf("%d are kept, want %d", len(d.skips), len(beyond))
		}
	})
}

// A variant that no drain has found locked for a while starts with the shortest
// pause, like a new one.
func TestDeferralsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deferrals{}
		v := variantSet(uuid.New(), "shoe", 1)
		for range deferTries - 1 {
			d.record(0, v, nil)
			<-time.After(deferMax + time.Millisecond)
		}
		<-time.After(staleAfter)
		for range deferTries - 1 { // the same number of tries again, until a drain waits for its lock
			d.record(0, v, nil)
			if skip, only := d.next(0); len(skip) != 1 || only != nil {
				t.Fatalf("%d are left out, waited for %v, want it left out", len(skip), only)
			}
			<-time.After(deferMax + time.Millisecond)
			if skip, only := d.next(0); len(skip) != 0 || only != nil {
				t.Fatalf("%d are left out, waited for %v, want it claimed", len(skip), only)
			}
		}
		d.record(0, v, nil)
		<-time.After(deferFirst + time.Millisecond)
		<-time.After(deferMax + staleAfter)
		d.record(0, v, nil)
		<-time.After(deferFirst + time.Millisecond)
		if skip, only := d.next(0); len(skip) != 0 || only != nil {
			t.Errorf("%d are left out after the shortest pause, waited for %v, want it claimed", len(skip), only)
		}
	})
}
