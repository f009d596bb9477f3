package checkouts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/tenants"
)

// beginKeyed claims a key, begins the checkout of a cart with it unless it has an
// answer, and returns that answer.
func (s *fixture) beginKeyed(cart, key string) (stored *tenants.Answer, c checkouts.Checkout) {
	s.TB.Helper()
	ctx := s.TB.Context()
	s.Must(pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) (err error) {
		stored, err = tenants.ClaimKeyTx(ctx, tx, s.tenant, key, [32]byte{1})
		if err != nil || stored != nil {
			return err
		}
		start := s.start(cart)
		start.IdempotencyKey = key
		c, err = checkouts.BeginTx(ctx, tx, start, s.config)
		if err != nil {
			return err
		}
		return tenants.StoreAnswerTx(ctx, tx, s.tenant, key, tenants.Answer{StatusCode: 202, Body: []byte(cart)})
	}))
	return stored, c
}

// A checkout's key is kept while the checkout is open, and then while its
// record is, however old it is. The keys behind it are purged.
func TestKeyOfACheckout(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 9)
	var begun []uuid.UUID
	for _, cart := range []string{"a", "b", "c"} {
		s.hold(cart, "shoe", 1)
		_, c := s.beginKeyed(cart, cart)
		begun = append(begun, c.CheckoutID)
	}
	s.Exec(`INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint, created_at)
		SELECT $1, n, '', clock_timestamp() FROM generate_series(1, 3) AS n`, s.tenant)
	s.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '8 days'`)
	const week = 7 * 24 * time.Hour
	for _, want := range []int64{2, 1, 0} {
		n, err := tenants.PurgeKeys(t.Context(), s.DB, week, 2)
		if err != nil || n != want {
			t.Errorf("purged %d keys, %v, want %d", n, err, want)
		}
	}
	for _, result := range []checkouts.Result{checkouts.ResultPaid, checkouts.ResultFailed} {
		_, err := s.answer(begun[0], result)
		s.Must(err)
		begun = begun[1:]
	}
	purge := func(want checkouts.Purged) {
		t.Helper()
		purged, err := checkouts.PurgeEnded(t.Context(), s.DB, week, 10)
		if err != nil || purged != want {
			t.Errorf("purged %+v, %v, want %+v", purged, err, want)
		}
	}
	purge(checkouts.Purged{})
	for _, cart := range []string{"a", "b", "c"} {
		if stored, _ := s.beginKeyed(cart, cart); stored == nil || string(stored.Body) != cart {
			t.Errorf("the key of the checkout of %s has the answer %v", cart, stored)
		}
	}
	s.Exec(`UPDATE checkouts SET ended_at = ended_at - interval '8 days' WHERE ended_at IS NOT NULL`)
	purge(checkouts.Purged{Checkouts: 2, Keys: 2})
	if stored, _ := s.beginKeyed("c", "c"); stored == nil {
		t.Error("the key of the open checkout was forgotten")
	}
	s.hold("d", "shoe", 1)
	if stored, c := s.beginKeyed("d", "a"); stored != nil || c.CartID != "d" {
		t.Errorf("a purged key has the answer %v", stored)
	}
}

// Nothing is begun with a key that the transaction has not claimed.
func TestKeyIsNotClaimed(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 1)
	s.hold("a", "shoe", 1)
	start := s.start("a")
	start.IdempotencyKey = "key"
	if _, err := checkouts.Begin(t.Context(), s.DB, start, s.config); !errors.Is(err, tenants.ErrKeyNotClaimed) {
		t.Errorf("begun: %v", err)
	}
	if n := s.Int(`SELECT count(*) FROM checkouts`); n != 0 {
		t.Errorf("%d checkouts", n)
	}
}
