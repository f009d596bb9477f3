package queues_test

import (
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

func lateAdmission(f *conformance) {
	f.Stock("shoe", 10)
	lane := f.Lane(queues.LaneConfig{})
	slow, commit := f.Open("slow")
	for range 5 { // each drain could move the mark past the slow transaction
		quick := f.Submit("quick", "shoe", 1)
		f.Tick(lane)
		f.Want(quick, requests.Done, "")
		if quick.Sequence < slow.Sequence {
			f.TB.Fatal("the slow admission did not draw its number first")
		}
	}
	commit()
	f.Tick(lane)
	f.Want(slow, requests.Done, "")
	f.markMoves(lane)
	f.CheckInvariants()
}

// markMoves fails the test unless the mark passes a request that is decided
// now.
func (f *conformance) markMoves(lane *queues.Lane) {
	f.TB.Helper()
	var mark int64
	for range 3 { // of two concurrent drains of a slot, neither may move the mark
		last := f.Fixture.SubmitAs(requestrows.Submission{CartID: "last", VariantID: "shoe", Quantity: 1})
		f.Tick(lane)
		mark = f.Mark(last)
		if mark >= last.Sequence {
			return
		}
	}
	f.TB.Errorf("the mark is %d, below a finished request", mark)
}

// prepares reports whether the server prepares transactions.
func (f *conformance) prepares() bool {
	return f.Int(`SELECT current_setting('max_prepared_transactions')::integer`) > 0
}

// prepare prepares an admission of one shoe to the cart, as a transaction with
// the cart's name. It sends no wake, because a transaction that has notified
// cannot be prepared.
func prepare(f *testkit.Fixture, cart string) requests.Request {
	f.TB.Helper()
	tx := f.Begin()
	s := requestrows.Submission{TenantID: f.Tenant, RequestID: requestrows.NewID(), CartID: cart, VariantID: "shoe", Quantity: 1}
	inserted, err := requestrows.Insertion{Group: []requestrows.Submission{s}}.InsertTx(f.TB.Context(), tx)
	f.Must(err)
	_, err = tx.Exec(f.TB.Context(), `PREPARE TRANSACTION '`+cart+`'`)
	f.Must(err)
	return inserted.Results[s.Ref()].View.Request
}

// preparedAdmission prepares an admission: no session runs it, and its requests
// may become visible at any time.
func preparedAdmission(f *conformance) {
	f.Stock("shoe", 10)
	lane := f.Lane(queues.LaneConfig{})
	if !f.prepares() {
		f.TB.Log("max_prepared_transactions is 0 here: not tested")
		return
	}
	slow := prepare(f.Fixture, f.Tenant.String())
	for range 3 {
		quick := f.Submit("quick", "shoe", 1)
		f.Tick(lane)
		f.Want(quick, requests.Done, "")
		if mark := f.Mark(quick); mark >= slow.Sequence {
			f.TB.Fatalf("the mark is %d, past the prepared request %d", mark, slow.Sequence)
		}
	}
	f.Exec(`COMMIT PREPARED '` + slow.CartID + `'`)
	f.Tick(lane)
	f.Want(slow, requests.Done, "")
	f.markMoves(lane)
	f.CheckInvariants()
}

// outsiders are two transactions that write other tables: an open one, and one
// that was prepared and never ended. No mark waits for them.
func outsiders(f *conformance) {
	f.Stock("shoe", 10)
	lane := f.Lane(queues.LaneConfig{})
	f.Lock(`CREATE TABLE of_an_outsider (id bigint)`)
	if f.prepares() {
		tx, name := f.Begin(), f.Tenant.String()
		for _, sql := range []string{`CREATE TABLE of_another (id bigint)`, `PREPARE TRANSACTION '` + name + `'`} {
			_, err := tx.Exec(f.TB.Context(), sql)
			f.Must(err)
		}
		defer f.Exec(`ROLLBACK PREPARED '` + name + `'`)
	}
	f.markMoves(lane)
	f.CheckInvariants()
}
