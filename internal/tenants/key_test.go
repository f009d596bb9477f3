package tenants_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/tenants"
)

func TestCreateKey(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	plaintext, key := b.createKey(t, tenants.ScopeStock, tenants.ScopeCart, tenants.ScopeStock)
	if !tenants.WellFormed(plaintext) || !strings.HasPrefix(plaintext, key.Prefix) || len(key.Prefix) != 9 {
		t.Errorf("plaintext %q, prefix %q", plaintext, key.Prefix)
	}
	want := tenants.Key{
		TenantID: b.tenant.TenantID, KeyID: key.KeyID, Name: "till", Prefix: key.Prefix,
		Scopes: []tenants.Scope{"cart", "stock"}, CreatedAt: key.CreatedAt,
	}
	if diff := cmp.Diff(want, key); diff != "" {
		t.Error(diff)
	}
	keys, err := tenants.ListKeys(t.Context(), b.DB, b.tenant.TenantID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]tenants.Key{want}, keys); diff != "" {
		t.Error(diff)
	}
}

func TestCreateKeyRefuses(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	create := func(tenantID uuid.UUID, name string, scopes ...tenants.Scope) error {
		plaintext, _, err := tenants.CreateKey(t.Context(), b.DB, tenantID, name, scopes)
		if plaintext != "" {
			t.Errorf("a plaintext came with %v", err)
		}
		return err
	}
	for why, name := range badText {
		wantInvalid(t, why, create(b.tenant.TenantID, name, tenants.ScopeCart), "name")
	}
	wantInvalid(t, "no scope", create(b.tenant.TenantID, "till"), "scopes")
	wantInvalid(t, "an unknown scope", create(b.tenant.TenantID, "till", tenants.ScopeCart, "admin"), "scopes[1]")
	if err := create(uuid.New(), "till", tenants.ScopeCart); !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Errorf("unknown tenant: %v", err)
	}
	if n := b.Int(`SELECT count(*) FROM api_keys`); n != 0 {
		t.Errorf("%d keys were made", n)
	}
}

func TestCreateKeyIsBounded(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	_, revoked := b.createKey(t, tenants.ScopeOps)
	if _, err := tenants.RevokeKey(t.Context(), b.DB, b.tenant.TenantID, revoked.KeyID); err != nil {
		t.Fatal(err)
	}
	_, err := b.DB.Exec(t.Context(), `
		INSERT INTO api_keys (tenant_id, key_id, name, prefix, hash, scopes)
		SELECT $1, gen_random_uuid(), 'n', 'hf_', decode(md5(n::text), 'hex'), '{cart}'
		FROM generate_series(1, $2::int) AS n`, b.tenant.TenantID, tenants.MaxKeys-1)
	if err != nil {
		t.Fatal(err)
	}
	b.createKey(t, tenants.ScopeCart)
	_, _, err = tenants.CreateKey(t.Context(), b.DB, b.tenant.TenantID, "one too many", []tenants.Scope{tenants.ScopeCart})
	if !errors.Is(err, tenants.ErrTooManyKeys) {
		t.Errorf("got %v, want ErrTooManyKeys", err)
	}
	if _, _, err := tenants.CreateKey(t.Context(), b.DB, b.other.TenantID, "till", []tenants.Scope{tenants.ScopeCart}); err != nil {
		t.Errorf("the limit of one tenant applies to another: %v", err)
	}
	keys, err := tenants.ListKeys(t.Context(), b.DB, b.tenant.TenantID)
	if err != nil || len(keys) != tenants.MaxKeys {
		t.Errorf("%d keys are listed, error %v", len(keys), err)
	}
}

// No row of any table contains the plaintext of a key in any form.
func TestPlaintextIsNowhere(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	plaintext, key := b.createKey(t, tenants.ScopeCart)
	if _, err := tenants.NewAuthenticator(b.DB, tenants.Config{}).Authenticate(t.Context(), plaintext); err != nil {
		t.Fatal(err)
	}
	rows, err := b.DB.Query(t.Context(), `
		SELECT format('SELECT x::text FROM %I.%I AS x', schemaname, tablename)
		FROM pg_tables
		WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		t.Fatal(err)
	}
	selects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(selects) < 3 {
		t.Fatalf("%d tables, error %v", len(selects), err)
	}
	secret := plaintext[len(key.Prefix):]
	found := 0
	for _, sql := range selects {
		rows, err := b.DB.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if strings.Contains(text, secret) || strings.Contains(text, hex.EncodeToString([]byte(secret))) {
				t.Errorf("%s contains the plaintext: %s", sql, text)
			}
			if strings.Contains(text, key.Prefix) {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("the prefix is in %d rows, so the search proves nothing", found)
	}
}

func TestRevokeKey(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	_, key := b.createKey(t, tenants.ScopeCart)
	_, kept := b.createKey(t, tenants.ScopeOps)
	for _, tenantID := range []uuid.UUID{b.other.TenantID, uuid.New()} {
		if _, err := tenants.RevokeKey(t.Context(), b.DB, tenantID, key.KeyID); !errors.Is(err, tenants.ErrKeyNotFound) {
			t.Errorf("another tenant's call: %v", err)
		}
	}
	if _, err := tenants.RevokeKey(t.Context(), b.DB, b.tenant.TenantID, uuid.New()); !errors.Is(err, tenants.ErrKeyNotFound) {
		t.Errorf("an unknown key: %v", err)
	}
	if n := b.Int(`SELECT count(*) FROM api_keys WHERE revoked_at IS NOT NULL`); n != 0 {
		t.Fatalf("%d keys were revoked", n)
	}
	first, err := tenants.RevokeKey(t.Context(), b.DB, b.tenant.TenantID, key.KeyID)
	if err != nil || first.RevokedAt == nil {
		t.Fatalf("got %+v, %v", first, err)
	}
	again, err := tenants.RevokeKey(t.Context(), b.DB, b.tenant.TenantID, key.KeyID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("revoking again changed the key: %s", diff)
	}
	keys, err := tenants.ListKeys(t.Context(), b.DB, b.tenant.TenantID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]tenants.Key{kept, first}, keys); diff != "" {
		t.Error(diff)
	}
	if keys, err := tenants.ListKeys(t.Context(), b.DB, b.other.TenantID); err != nil || len(keys) != 0 {
		t.Errorf("another tenant is listed %d keys, error %v", len(keys), err)
	}
}

func TestFindKeys(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	plaintext, key := b.createKey(t, tenants.ScopeCart)
	_, _ = b.createKey(t, tenants.ScopeCart)
	for _, name := range []string{key.KeyID.String(), plaintext, key.Prefix} {
		found, err := tenants.FindKeys(t.Context(), b.DB, name)
		if diff := cmp.Diff([]tenants.Key{key}, found); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	for _, name := range []string{uuid.NewString(), "", "hf_", plaintext[:20], plaintext + "x", key.Name, "a\x00b", "\xff", strings.Repeat("k", 1000)} {
		if found, err := tenants.FindKeys(t.Context(), b.DB, name); err != nil || len(found) != 0 {
			t.Errorf("%.40q: %d keys, %v; want none", name, len(found), err)
		}
	}
}
