package inventory_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/inventory"
)

func TestGetCountsWhatIsDueAsAvailable(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 10, Reserved: 9, Tracked: true, HoldTTLSeconds: new(int32(60)), MaxPerCart: new(int32(3)), Lane: "hot"})
	b.hold(t, "v", 4, -time.Second)
	b.hold(t, "v", 3, -time.Hour)
	b.hold(t, "v", 2, time.Hour)
	b.hold(t, "other", 50, -time.Hour)
	b.exec(t, `UPDATE reservations SET status = 'released', release_reason = 'operator', ended_at = clock_timestamp() WHERE quantity = 3`)

	got, err := inventory.Get(t.Context(), b.pool, b.tenant, "v")
	if err != nil {
		t.Fatal(err)
	}
	want := inventory.Stock{
		TenantID: b.tenant, VariantID: "v", Stock: 10, Reserved: 9, Available: 5, Tracked: true,
		HoldTTLSeconds: new(int32(60)), MaxPerCart: new(int32(3)), Lane: "hot", Admission: "open", CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt,
	}
	if diff := cmp.Diff(want, got); diff != "" || got.CreatedAt.IsZero() || got.UpdatedAt.IsZero() {
		t.Error(diff, got.CreatedAt, got.UpdatedAt)
	}
	// Set and Adjust return the same value.
	set, err := inventory.Set(t.Context(), b.pool, b.tenant, "v", patch{Stock: new(int64(12))}, clerk)
	if err != nil || set.Available != 7 {
		t.Errorf("after Set: available %d, error %v", set.Available, err)
	}
	adjusted, err := inventory.Adjust(t.Context(), b.pool, b.tenant, "v", 1, clerk)
	if err != nil || adjusted.Available != 8 {
		t.Errorf("after Adjust: available %d, error %v", adjusted.Available, err)
	}
}

func TestGetUnknownVariants(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 10, Tracked: true})
	if _, err := inventory.Get(t.Context(), b.pool, b.tenant, "w"); !errors.Is(err, inventory.ErrUnknownVariant) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := inventory.Get(t.Context(), b.pool, b.other, "v"); !errors.Is(err, inventory.ErrUnknownVariant) {
		t.Errorf("another tenant's: %v", err)
	}
	if _, err := inventory.Get(t.Context(), b.pool, b.tenant, "a\x00"); invalidField(err) != "variant_id" {
		t.Errorf("no id: %v", err)
	}
}

// Every variant is on exactly one page, in order, for every page size.
func TestListPages(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	var want []string
	for i := range 25 {
		id := fmt.Sprintf("v%02d", i)
		b.put(t, id, stockRow{Stock: int64(i), Tracked: true})
		want = append(want, id)
	}
	b.hold(t, "v07", 2, -time.Second)
	for _, limit := range []int{1, 4, 5, 24, 25, 26, 500, 0} {
		var got []string
		cursor, pages := "", 0
		for {
			page, err := inventory.List(t.Context(), b.pool, b.tenant, limit, cursor)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Items {
				single, err := inventory.Get(t.Context(), b.pool, b.tenant, s.VariantID)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(single, s); diff != "" {
					t.Error(diff)
				}
				got = append(got, s.VariantID)
			}
			pages++
			cursor = page.NextCursor
			if cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
		if size := max(limit, 1); limit != 0 && pages != (25+size-1)/size {
			t.Errorf("limit %d: %d pages", limit, pages)
		}
	}
}

func TestListOrdersAnyIDs(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	ids := []string{"rolls/buns", "Zebra", "äpfel", "apple", " ", "a,b\"c", "🥐", strings.Repeat("ü", 128), "%", "1", ".", "..", "/"}
	for _, id := range ids {
		b.put(t, id, stockRow{Tracked: true})
	}
	var got []string
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := inventory.List(t.Context(), b.pool, b.tenant, 3, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Items {
			got = append(got, s.VariantID)
		}
		cursor = page.NextCursor
	}
	slices.Sort(got)
	slices.Sort(ids)
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Error(diff)
	}
}

func TestListKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 10, Tracked: true})
	page, err := inventory.List(t.Context(), b.pool, b.other, 0, "")
	if err != nil || len(page.Items) != 0 || page.NextCursor != "" {
		t.Errorf("got %+v, %v", page, err)
	}
}

func TestListRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	encode := base64.RawURLEncoding.EncodeToString
	for _, c := range []struct {
		limit  int
		cursor string
		field  string
	}{
		{-1, "", "limit"}, {501, "", "limit"},
		{1, "not base64!", "cursor"}, {1, encode([]byte("2v")), "cursor"}, {1, encode([]byte("1")), "cursor"},
		{1, encode([]byte("1a\x00")), "cursor"}, {1, encode([]byte("1\xff")), "cursor"}, {1, strings.Repeat("A", 10_000), "cursor"},
	} {
		if _, err := inventory.List(t.Context(), b.pool, b.tenant, c.limit, c.cursor); invalidField(err) != c.field {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}
