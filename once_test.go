package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// A call is tried again only if it had no effect. Its result is stored under its
// key, without what is secret, and returned to its repetition.
func TestOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	shop := newShop(t, db, nil, false)
	deadlock := &pgconn.PgError{Code: "40P01"}
	broken := errors.New("broken")
	for _, tc := range []struct {
		name  string
		fails []error
		tries int
		err   error
	}{
		{"immediately", nil, 1, nil},
		{"after two deadlocks", []error{deadlock, deadlock}, 3, nil},
		{"never after three", []error{deadlock, deadlock, deadlock}, 3, deadlock},
		{"not after another error", []error{broken}, 1, broken},
		{"not after a refusal", []error{holdfast.ErrBelowReserved}, 1, holdfast.ErrBelowReserved},
	} {
		tries := 0
		call := func(opts *holdfast.CallOpts) (holdfast.MintedAdmission, error) {
			return holdfast.Once(t.Context(), shop, "Mint", []any{tc.name}, func(context.Context, pgx.Tx) (m holdfast.MintedAdmission, err error) {
				tries++
				if tries <= len(tc.fails) {
					return m, tc.fails[tries-1]
				}
				return holdfast.MintedAdmission{Token: "secret", ExpiresAt: time.Unix(1, 0).UTC()}, nil
			}, opts)
		}
		info := &holdfast.CallInfo{}
		opts := &holdfast.CallOpts{IdempotencyKey: tc.name, Info: info}
		first, err := call(opts)
		if tries != tc.tries || !errors.Is(err, tc.err) || (err == nil) != (first.Token == "secret") || info.Replayed {
			t.Errorf("%s: %d tries, %v, %+v", tc.name, tries, err, first)
		}
		stored := pgtest.Int(t, db, `SELECT count(*) FROM idempotency_keys WHERE idempotency_key = $1`, tc.name)
		if (stored == 1) != (tc.err == nil) {
			t.Errorf("%s: %d results are stored", tc.name, stored)
		}
		if tc.err != nil {
			continue
		}
		again, err := call(opts)
		if err != nil || again.Token != "" || !again.ExpiresAt.Equal(first.ExpiresAt) || !info.Replayed || tries != tc.tries {
			t.Errorf("%s: the repetition returned %+v, %v, after %d tries", tc.name, again, err, tries)
		}
	}
}

// A call that finds its own request failed, because a worker decided it before the
// attempt that had inserted it was known to be committed, returns the outcomes of
// its lines.
func TestOwnRequestHasItsLines(t *testing.T) {
	t.Parallel()
	shop := newShop(t, pgtest.New(t), nil, true)
	opts := &holdfast.CallOpts{IdempotencyKey: "k", ID: uuid.Must(uuid.NewV7())}
	lines := requests.Lines{Items: []requests.Line{{VariantID: "shirt", Quantity: 1}, {VariantID: "hat", Quantity: 1}}}
	r, err := shop.AddLines(t.Context(), "cart", lines, opts)
	pgtest.Must(t, err)
	outcome(t, shop, r, requests.UnknownVariant)
	again, err := shop.AddLines(t.Context(), "cart", lines, opts)
	pgtest.Must(t, err)
	if again.RequestID != opts.ID || len(again.Outcomes) != 2 || again.Outcomes[1].Reason != requests.UnknownVariant {
		t.Errorf("%+v", again)
	}
}

// A rate in which no call could be counted is refused.
func TestRatesAreChecked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	rate := func(limit int64, window time.Duration) ratelimit.Rate {
		return ratelimit.Rate{Limit: limit, Window: window}
	}
	for _, bad := range []holdfast.Rates{
		{Tenant: rate(-1, time.Minute)}, {Customer: rate(1, 0)},
		{Tenant: rate(ratelimit.RateLimitMax+1, time.Minute)}, {Customer: rate(1, ratelimit.RateWindowMax+1)},
	} {
		if _, err := holdfast.New(db, &holdfast.Config{Rates: bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	good := holdfast.Rates{Tenant: rate(1, time.Second), Customer: rate(ratelimit.RateLimitMax, ratelimit.RateWindowMax)}
	if _, err := holdfast.New(db, &holdfast.Config{Rates: good}); err != nil {
		t.Error(err)
	}
}

// A configuration with which no pass would run is refused.
func TestMaintenanceRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, bad := range []holdfast.Config{
		{MaintenanceByRiver: true, NoLanes: true}, {MaintenanceByRiver: true, River: &river.Config{}},
	} {
		if _, err := holdfast.New(db, &bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if _, err := holdfast.New(db, &holdfast.Config{MaintenanceByRiver: true, NoLanes: true, NoMaintenance: true}); err != nil {
		t.Error(err)
	}
}

// A client that does not accept requests refuses those that are to be counted.
func TestMeteredNeedsTheIntake(t *testing.T) {
	t.Parallel()
	var config holdfast.Config
	config.Intake.Metered = true
	shop := newShop(t, pgtest.New(t), &config, false)
	if _, err := shop.Add(t.Context(), "ann's", "shirt", 1, nil); !errors.Is(err, holdfast.ErrOverloaded) {
		t.Errorf("%v, want ErrOverloaded", err)
	}
}

// A wait for a checkout ends when the process stops waiting, and waits for no
// one once too many callers wait.
func TestWaitCheckoutEnds(t *testing.T) {
	t.Parallel()
	client, err := holdfast.New(pgtest.New(t), nil)
	pgtest.Must(t, err)
	pgtest.Must(t, client.Start(t.Context()))
	defer func() { pgtest.Must(t, client.Stop(context.Background())) }()
	shop, err := client.Tenant(t.Context(), "shop")
	pgtest.Must(t, err)
	_, err = shop.SetStock(t.Context(), "shirt", holdfast.StockPatch{Stock: new(int64(1))}, nil)
	pgtest.Must(t, err)
	held(t, shop, "ann's", 1)
	begun, err := shop.BeginCheckout(t.Context(), "ann's", "order", "", nil)
	pgtest.Must(t, err)
	waited := func() {
		c, err := shop.WaitCheckout(t.Context(), begun.CheckoutID, time.Hour)
		if err != nil || c.Status.Ended() {
			t.Errorf("%s, %v; want the checkout as it is", c.Status, err)
		}
	}
	client.OccupyCheckoutWaits(1000)
	waited()
	client.OccupyCheckoutWaits(-1000)
	client.EndWaits()
	waited()
}
