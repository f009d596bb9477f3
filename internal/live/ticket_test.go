package live_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

func (b *fixture) mint(owner tenants.Principal) (ticket live.Ticket, err error) {
	b.TB.Helper()
	err = pgx.BeginFunc(b.TB.Context(), b.DB, func(tx pgx.Tx) error {
		ticket, err = live.MintTx(b.TB.Context(), tx, owner)
		return err
	})
	return ticket, err
}

func (b *fixture) tickets() int64 { return pgtest.Int(b.TB, b.DB, `SELECT count(*) FROM live_tickets`) }

// A ticket is good once, whichever process takes it, and only its hash is
// stored.
func TestTicketIsGoodOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	owner := b.newKey(tenants.ScopeCart, tenants.ScopeOps)
	other, err := pgxpool.NewWithConfig(t.Context(), b.DB.Config())
	pgtest.Must(t, err)
	t.Cleanup(other.Close)
	for range 20 {
		ticket, err := b.mint(owner)
		pgtest.Must(t, err)
		if n := pgtest.Int(t, b.DB, `SELECT count(*) FROM live_tickets AS t WHERE strpos(t::text, $1) > 0`, ticket.Plaintext); n != 0 {
			t.Error("the ticket is stored")
		}
		if printed := fmt.Sprintf("%v %+v %s %#v", ticket, ticket, ticket, ticket); strings.Contains(printed, ticket.Plaintext) {
			t.Errorf("it is printed: %s", printed)
		}
		var taken atomic.Int64
		var all sync.WaitGroup
		for i := range 6 {
			db := []*pgxpool.Pool{b.DB, other}[i%2]
			all.Go(func() {
				holder, err := live.Take(t.Context(), db, ticket.Plaintext)
				if err == nil {
					taken.Add(1)
					if diff := cmp.Diff(live.Holder{TenantID: b.tenant, KeyID: owner.KeyID, Scopes: owner.Scopes}, holder); diff != "" {
						t.Error(diff)
					}
				} else if !errors.Is(err, live.ErrTicketRefused) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := taken.Load(); n != 1 {
			t.Errorf("the ticket was taken %d times", n)
		}
	}
}

// A ticket is not good if it is malformed, expired, or of a revoked key.
func TestTicketIsRefused(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	owner := b.newKey(tenants.ScopeCart)
	good, err := b.mint(owner)
	pgtest.Must(t, err)
	for _, bad := range []string{"", "hlt_", good.Plaintext + "x", good.Plaintext[:46], strings.ToUpper(good.Plaintext), "hlt_" + strings.Repeat("\x00", 43), strings.Replace(good.Plaintext, "hlt_", "hft_", 1)} {
		if _, err := live.Take(t.Context(), b.DB, bad); !errors.Is(err, live.ErrTicketRefused) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	b.Exec(`UPDATE live_tickets SET expires_at = clock_timestamp()`)
	if _, err := live.Take(t.Context(), b.DB, good.Plaintext); !errors.Is(err, live.ErrTicketRefused) {
		t.Errorf("an expired ticket: %v", err)
	}
	orphan, err := b.mint(owner)
	pgtest.Must(t, err)
	_, err = tenants.RevokeKey(t.Context(), b.DB, owner.TenantID, owner.KeyID)
	pgtest.Must(t, err)
	if _, err := live.Take(t.Context(), b.DB, orphan.Plaintext); !errors.Is(err, live.ErrTicketRefused) {
		t.Errorf("a ticket of a revoked key: %v", err)
	}
}

// fill gives a key of the tenant n tickets that are good for an hour.
func (b *fixture) fill(owner tenants.Principal, n int) {
	b.TB.Helper()
	b.Exec(`INSERT INTO live_tickets (tenant_id, hash, key_id, scopes, expires_at)
		SELECT $1, sha256(($2 || n::text)::bytea), $2::uuid, $3, clock_timestamp() + interval '1 hour'
		FROM generate_series(1, $4::integer) AS n`, owner.TenantID, owner.KeyID, owner.Scopes, n)
}

// wantMinted makes a ticket, and expects that it is refused or not.
func (b *fixture) wantMinted(owner tenants.Principal, wanted error) {
	b.TB.Helper()
	if _, err := b.mint(owner); !errors.Is(err, wanted) {
		b.TB.Errorf("%v, want %v", err, wanted)
	}
}

// One key makes KeyTicketsMax tickets and no more. The keys without the scope
// ops leave the tenant's last OpsTickets to those that have it.
func TestTicketsOfAKeyAreBounded(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	shop, second, third, operator := b.newKey(tenants.ScopeCart), b.newKey(tenants.ScopeCart, tenants.ScopeStock), b.newKey(tenants.ScopeCart), b.newKey(tenants.ScopeOps)
	b.fill(shop, live.KeyTicketsMax-1)
	b.wantMinted(shop, nil)
	b.wantMinted(shop, live.ErrTooManyTickets)
	b.wantMinted(second, nil)
	b.fill(second, live.KeyTicketsMax-1)
	b.fill(third, live.TicketsMax-live.OpsTickets-2*live.KeyTicketsMax-1)
	b.wantMinted(third, nil)
	b.wantMinted(third, live.ErrTooManyTickets)
	b.wantMinted(operator, nil)
	b.fill(operator, live.OpsTickets-2)
	b.wantMinted(operator, nil)
	b.wantMinted(operator, live.ErrTooManyTickets)
	theirs := shop
	theirs.TenantID = b.other
	b.wantMinted(theirs, nil)
}

// Tickets that are used or expired do not count. Expired ones are deleted when
// the tenant makes others, or by a purge.
func TestTicketsAreDeleted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	owner := b.newKey(tenants.ScopeCart)
	b.fill(owner, live.KeyTicketsMax-1)
	last, err := b.mint(owner)
	pgtest.Must(t, err)
	b.wantMinted(owner, live.ErrTooManyTickets)
	if _, err := live.Take(t.Context(), b.DB, last.Plaintext); err != nil {
		t.Error(err)
	}
	b.wantMinted(owner, nil)
	b.Exec(`UPDATE live_tickets SET expires_at = clock_timestamp() - interval '1 hour' WHERE tenant_id = $1`, b.tenant)
	before := b.tickets()
	b.wantMinted(owner, nil)
	if after := b.tickets(); after != before-10+1 {
		t.Errorf("%d tickets after %d; want 10 expired ones less, and the new one", after, before)
	}
	for _, purged := range []int64{1500, live.KeyTicketsMax - 10 - 1500, 0} {
		n, err := live.PurgeTickets(t.Context(), b.DB, 1500)
		pgtest.Must(t, err)
		if n != purged {
			t.Errorf("purged %d, want %d", n, purged)
		}
	}
	if n := b.tickets(); n != 1 {
		t.Errorf("%d tickets are left, want the good one", n)
	}
}

// Every statement can be prepared.
func TestStatements(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	conn, err := b.DB.Acquire(t.Context())
	pgtest.Must(t, err)
	defer conn.Release()
	for name, sql := range live.Statements {
		if _, err := conn.Conn().Prepare(t.Context(), name, sql); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
