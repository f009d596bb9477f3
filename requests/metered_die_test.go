package requests_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/requests"
)

// leastSteps is how many steps the admission of one who is let in has at least: BEGIN, what inserts and takes, COMMIT, and
// the moment after.
const leastSteps = 4

// admitOn admits one metered request through an intake of its own on db.
func admitOn(t *testing.T, db *pgxpool.Pool, s requests.Submission, p requests.Pass) error {
	t.Helper()
	_, err := submitOn(t, db, ringerFunc(func(context.Context, []requests.Wake) error { return nil }), meteredConfig, s, p)
	return err
}

// The session of an admission ends between any two of its steps: the intake tries again, and what is admitted is paid once.
func TestSessionOfAdmissionEnds(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	for last := 1; ; last++ {
		db, ended := pgtest.NewEnded(t, b.DB, last)
		s := add("a", "shoe", fmt.Sprint("key-", last))
		s.TenantID = b.Tenant
		if err := admitOn(t, db, s, show(b.mint("shoe"), "shop")); err != nil {
			t.Fatalf("ended ahead of step %d: %v", last, err)
		}
		b.want(fmt.Sprint("ended ahead of step ", last), left{Requests: int64(last), Spent: int64(last), Rates: map[string]int{"shop": last}})
		if !ended.Load() || t.Failed() {
			if last <= leastSteps {
				t.Errorf("it has %d steps", last-1)
			}
			return
		}
	}
}

const (
	dieToken  = "REQUESTS_TEST_TOKEN"
	dieTenant = "REQUESTS_TEST_TENANT"
)

// TestAdmissionProcess is the process that TestAdmissionIsKilled kills; alone it does nothing.
func TestAdmissionProcess(t *testing.T) { //nolint:paralleltest // a program of its own
	db := pgtest.NewKilled(t)
	if db == nil {
		return
	}
	s := add("a", "shoe", "key")
	s.TenantID = uuid.MustParse(os.Getenv(dieTenant))
	must(t, admitOn(t, db, s, show(metered.ParseToken(os.Getenv(dieToken)), "shop", "ann")))
}

// A process killed with kill -9 between any two steps of an admission leaves the request, the token spent and the rates
// counted, or nothing; killed so again and again, the same call pays once.
func TestAdmissionIsKilled(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	token := b.mint("shoe")
	for last := 1; ; last++ {
		killed := pgtest.RunKilled(t, b.DB, "TestAdmissionProcess", last, dieToken+"="+token.Plaintext(), dieTenant+"="+b.Tenant.String())
		if b.Int(`SELECT count(*) FROM reservation_requests`) == 0 {
			b.want(fmt.Sprint("killed ahead of step ", last), left{})
			if !killed {
				t.Fatalf("it was not killed at step %d, and admitted nothing", last)
			}
			continue
		}
		b.want(fmt.Sprint("killed ahead of step ", last), left{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1, "ann": 1}})
		if !killed {
			return
		}
		if last < leastSteps {
			t.Fatalf("it was admitted by step %d", last)
		}
	}
}
