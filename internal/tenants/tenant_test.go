package tenants_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/tenants"
)

func TestEnsureFindsWhatItMade(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	again := b.ensure(t, b.tenant.Name)
	if again != b.tenant || again.TenantID == b.other.TenantID {
		t.Errorf("got %+v, then %+v", b.tenant, again)
	}
	if n := b.Int(`SELECT count(*) FROM tenants`); n != 2 {
		t.Errorf("%d tenants, want 2", n)
	}
}

func TestEnsureByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var g errgroup.Group
	ids := make([]uuid.UUID, 20)
	for i := range ids {
		g.Go(func() error {
			tenant, err := tenants.Ensure(t.Context(), b.DB, "everybody's")
			ids[i] = tenant.TenantID
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("ids %s and %s for one name", ids[0], id)
		}
	}
	if n := b.Int(`SELECT count(*) FROM tenants WHERE name = 'everybody''s'`); n != 1 {
		t.Errorf("%d rows for one name", n)
	}
}

func TestFindMakesNone(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	found, err := tenants.Find(t.Context(), b.DB, b.tenant.Name)
	if err != nil || found != b.tenant {
		t.Errorf("got %+v, %v; want %+v", found, err, b.tenant)
	}
	for _, name := range []string{"rolls and bun", "", strings.Repeat("ü", 129)} {
		if _, err := tenants.Find(t.Context(), b.DB, name); !errors.Is(err, tenants.ErrUnknownTenant) {
			t.Errorf("%q: %v, want ErrUnknownTenant", name, err)
		}
	}
	if n := b.Int(`SELECT count(*) FROM tenants`); n != 2 {
		t.Errorf("%d tenants, want 2", n)
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	third := b.ensure(t, "milk, skimmed")
	want := [][]tenants.Tenant{{third, b.tenant}, {b.other}}
	after := ""
	for _, page := range want {
		got, err := tenants.List(t.Context(), b.DB, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(page, got); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", after, diff)
		}
		after = page[len(page)-1].Name
	}
}

// badText are texts that are neither a valid name nor a valid key.
var badText = map[string]string{
	"empty":       "",
	"too long":    strings.Repeat("ü", 129),
	"a NUL":       "a\x00b",
	"a line feed": "a\nb",
	"not UTF-8":   "a\xff",
}

func TestEnsureRefusesBadNames(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for why, name := range badText {
		_, err := tenants.Ensure(t.Context(), b.DB, name)
		wantInvalid(t, why, err, "name")
	}
	b.ensure(t, strings.Repeat("ü", 128))
	if n := b.Int(`SELECT count(*) FROM tenants`); n != 3 {
		t.Errorf("%d tenants, want 3", n)
	}
}

func wantInvalid(t *testing.T, why string, err error, field string) {
	t.Helper()
	var invalid *tenants.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field || invalid.Message == "" {
		t.Errorf("%s: got %v, want an InvalidError of %s", why, err, field)
	}
}
