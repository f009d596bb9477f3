package tenants_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

var fingerprint = [32]byte{1, 2, 3}

// claimed is the result of a claim.
type claimed struct {
	answer *tenants.Answer
	err    error
}

func (b *fixture) claim(t *testing.T, tx pgx.Tx, key string, fp [32]byte) claimed {
	t.Helper()
	answer, err := tenants.ClaimKeyTx(t.Context(), tx, b.tenant.TenantID, key, fp)
	return claimed{answer, err}
}

// done claims key, stores answer and commits.
func (b *fixture) done(t *testing.T, tenantID uuid.UUID, key string, answer tenants.Answer) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		stored, err := tenants.ClaimKeyTx(t.Context(), tx, tenantID, key, fingerprint)
		if err != nil || stored != nil {
			t.Fatalf("key %s is not free: %v, %v", key, stored, err)
		}
		return tenants.StoreAnswerTx(t.Context(), tx, tenantID, key, answer)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestClaimKeyReplaysTheAnswer(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	want := tenants.Answer{StatusCode: 200, Body: []byte(`{"committed":[]}`)}
	b.done(t, b.tenant.TenantID, "k", want)
	tx := b.Begin()
	got := b.claim(t, tx, "k", fingerprint)
	if got.err != nil {
		t.Fatal(got.err)
	}
	if diff := cmp.Diff(&want, got.answer); diff != "" {
		t.Error(diff)
	}
	if got := b.claim(t, tx, "k", [32]byte{9}); !errors.Is(got.err, tenants.ErrKeyReused) || got.answer != nil {
		t.Errorf("another fingerprint: %+v", got)
	}
	if got := b.claim(t, tx, "K", fingerprint); got.err != nil || got.answer != nil {
		t.Errorf("another key: %+v", got)
	}
	if got, err := tenants.ClaimKeyTx(t.Context(), tx, b.other.TenantID, "k", [32]byte{9}); err != nil || got != nil {
		t.Errorf("another tenant's key of the same name: %v, %v", got, err)
	}
}

func TestClaimKeyRefusesBadKeys(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	tx := b.Begin()
	for why, key := range badText {
		if why == "too long" {
			key += key // a key may have twice the length of a name
		}
		wantInvalid(t, why, b.claim(t, tx, key, fingerprint).err, "idempotency_key")
	}
	if got := b.claim(t, tx, strings.Repeat("ü", tenants.MaxKeyText), fingerprint); got.err != nil {
		t.Errorf("the transaction is aborted: %v", got.err)
	}
}

func TestClaimKeyWaitsForTheClaimingCall(t *testing.T) {
	t.Parallel()
	want := tenants.Answer{StatusCode: 409, Body: []byte(`{}`)}
	for name, c := range map[string]struct {
		commits bool
		asked   [32]byte
		answer  *tenants.Answer
		err     error
	}{
		"the holder commits":                    {commits: true, asked: fingerprint, answer: &want},
		"the holder of another call commits":    {commits: true, asked: [32]byte{7}, err: tenants.ErrKeyReused},
		"the holder rolls back":                 {commits: false, asked: fingerprint},
		"the holder of another call rolls back": {commits: false, asked: [32]byte{7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			holder, waiter := b.Begin(), b.Begin()
			if got := b.claim(t, holder, "k", fingerprint); got.err != nil || got.answer != nil {
				t.Fatalf("the holder got %+v", got)
			}
			result := make(chan claimed)
			go func() {
				answer, err := tenants.ClaimKeyTx(t.Context(), waiter, b.tenant.TenantID, "k", c.asked)
				result <- claimed{answer, err}
			}()
			pgtest.UntilBlocked(t, b.DB, 1)
			if err := tenants.StoreAnswerTx(t.Context(), holder, b.tenant.TenantID, "k", want); err != nil {
				t.Fatal(err)
			}
			end := holder.Rollback
			if c.commits {
				end = holder.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := <-result
			if diff := cmp.Diff(c.answer, got.answer); diff != "" || !errors.Is(got.err, c.err) {
				t.Errorf("error %v, answer %s", got.err, diff)
			}
			// A caller that has claimed the key can store an answer under it.
			if c.answer == nil && c.err == nil {
				if err := tenants.StoreAnswerTx(t.Context(), waiter, b.tenant.TenantID, "k", want); err != nil {
					t.Error(err)
				}
			}
			if err := waiter.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := b.Int(`SELECT count(*) FROM idempotency_keys WHERE status_code = 409`); n != 1 {
				t.Errorf("%d answers are stored", n)
			}
		})
	}
}

// Many concurrent callers do the same work under one key. It is done once, and
// all receive the same answer.
func TestClaimKeyByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const callers = 30
	results := make(chan claimed, callers)
	for i := range callers {
		go func() {
			var got claimed
			got.err = pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) (err error) {
				got.answer, err = tenants.ClaimKeyTx(t.Context(), tx, b.tenant.TenantID, "k", fingerprint)
				if err != nil || got.answer != nil {
					return err
				}
				got.answer = &tenants.Answer{StatusCode: 200 + i}
				return tenants.StoreAnswerTx(t.Context(), tx, b.tenant.TenantID, "k", *got.answer)
			})
			results <- got
		}()
	}
	first := <-results
	for range callers - 1 {
		if got := <-results; got.err != nil || got.answer.StatusCode != first.answer.StatusCode {
			t.Errorf("got %+v after %+v", got, first)
		}
	}
	if n := b.Int(`SELECT count(*) FROM idempotency_keys WHERE status_code = $1`, first.answer.StatusCode); n != 1 {
		t.Errorf("%d answers are stored", n)
	}
}

func TestStoreAnswerNeedsAFreshClaim(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	answer := tenants.Answer{StatusCode: 200}
	b.done(t, b.tenant.TenantID, "k", answer)
	tx := b.Begin()
	for _, key := range []string{"k", "never claimed"} {
		if err := tenants.StoreAnswerTx(t.Context(), tx, b.tenant.TenantID, key, answer); !errors.Is(err, tenants.ErrKeyNotClaimed) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := tenants.StoreAnswerTx(t.Context(), tx, b.other.TenantID, "k", answer); !errors.Is(err, tenants.ErrKeyNotClaimed) {
		t.Errorf("another tenant's: %v", err)
	}
}

func TestPurgeKeys(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for _, key := range []string{"new", "old", "older", "oldest"} {
		b.done(t, b.tenant.TenantID, key, tenants.Answer{StatusCode: 200})
	}
	_, err := b.DB.Exec(t.Context(), `
		UPDATE idempotency_keys AS k
		SET created_at = clock_timestamp() - age
		FROM (VALUES ('new', interval '59 minutes'), ('old', '61 minutes'), ('older', '2 hours'), ('oldest', '3 hours')) AS v (key, age)
		WHERE k.idempotency_key = v.key`)
	if err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		rows, err := b.DB.Query(t.Context(), `SELECT idempotency_key FROM idempotency_keys ORDER BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	for _, step := range []struct {
		purged int64
		left   []string
	}{
		{2, []string{"new", "old"}},
		{1, []string{"new"}},
		{0, []string{"new"}},
	} {
		n, err := tenants.PurgeKeys(t.Context(), b.DB, time.Hour, 2)
		if err != nil || n != step.purged {
			t.Errorf("purged %d, error %v; want %d", n, err, step.purged)
		}
		if diff := cmp.Diff(step.left, left()); diff != "" {
			t.Error(diff)
		}
	}
	// A purged key is free again, for another call too.
	tx := b.Begin()
	if got := b.claim(t, tx, "old", [32]byte{9}); got.err != nil || got.answer != nil {
		t.Errorf("a purged key: %+v", got)
	}
}
