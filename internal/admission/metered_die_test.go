package admission_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/metered"
)

// leastSteps is the minimum number of steps of the admission of an accepted
// request: the batch that begins, inserts and charges, COMMIT, and the moment
// after it.
const leastSteps = 3

// admitOn admits one metered request through a new intake on db, which inserts
// its wakes on other connections.
func admitOn(t *testing.T, db *pgxpool.Pool, s requestrows.Submission, p admission.Credentials) error {
	t.Helper()
	others, err := pgxpool.New(t.Context(), db.Config().ConnString())
	pgtest.Must(t, err)
	defer others.Close()
	inserter, err := queues.NewWakeInserter(others)
	pgtest.Must(t, err)
	_, err = submitOn(t, db, inserter, meteredConfig, s, p)
	return err
}

// The session of an admission ends between any two of its steps. The intake
// tries again, and the admitted request is charged once.
func TestSessionOfAdmissionEnds(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	for last := 1; ; last++ {
		db, ended := pgtest.NewEnded(t, b.DB, last)
		s := add("a", "shoe", fmt.Sprint("key-", last))
		s.TenantID = b.Tenant
		if err := admitOn(t, db, s, credentials(b.mint("shoe"), "shop")); err != nil {
			t.Fatalf("ended ahead of step %d: %v", last, err)
		}
		b.want(fmt.Sprint("ended ahead of step ", last), effects{Requests: int64(last), Spent: int64(last), Rates: map[string]int{"shop": last}})
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

// TestAdmissionProcess is the process that TestAdmissionIsKilled kills. Run
// alone, it does nothing.
func TestAdmissionProcess(t *testing.T) { //nolint:paralleltest // it runs in a separate process
	db := pgtest.NewKilled(t)
	if db == nil {
		return
	}
	s := add("a", "shoe", "key")
	s.TenantID = uuid.MustParse(os.Getenv(dieTenant))
	pgtest.Must(t, admitOn(t, db, s, credentials(metered.ParseToken(os.Getenv(dieToken)), "shop", "ann")))
}

// A process is killed with kill -9 between any two steps of an admission. The
// request, the redeemed token and the counted rates are all committed, or
// nothing is. After repetitions the call is charged once.
func TestAdmissionIsKilled(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	token := b.mint("shoe")
	for last := 1; ; last++ {
		killed := pgtest.RunKilled(t, b.DB, "TestAdmissionProcess", last, dieToken+"="+token.Plaintext(), dieTenant+"="+b.Tenant.String())
		if b.Int(`SELECT count(*) FROM reservation_requests`) == 0 {
			b.want(fmt.Sprint("killed ahead of step ", last), effects{})
			if !killed {
				t.Fatalf("it was not killed at step %d, and admitted nothing", last)
			}
			continue
		}
		b.want(fmt.Sprint("killed ahead of step ", last), effects{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1, "ann": 1}})
		if !killed {
			return
		}
		if last < leastSteps {
			t.Fatalf("it was admitted by step %d", last)
		}
	}
}
