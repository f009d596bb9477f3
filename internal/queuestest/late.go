package queuestest

import (
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

func lateAdmission(b *Bench) {
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{})
	slow, commit := b.Open("slow")
	for range 5 { // each drain could move the mark past the slow transaction
		quick := b.Submit("quick", "shoe", 1)
		b.Tick(lane)
		b.Want(quick, requests.Done, "")
		if quick.Sequence < slow.Sequence {
			b.TB.Fatal("the slow admission did not draw its number first")
		}
	}
	commit()
	b.Tick(lane)
	b.Want(slow, requests.Done, "")
	b.markMoves(lane)
	b.Sound()
}

// markMoves fails the test unless the mark passes a request that is decided
// now.
func (b *Bench) markMoves(lane *queues.Lane) {
	b.TB.Helper()
	var mark int64
	for range 3 { // of two concurrent drains of a slot, neither may move the mark
		last := b.SubmitQueued(requestrows.Submission{CartID: "last", VariantID: "shoe", Quantity: 1})
		b.Tick(lane)
		mark = b.Mark(last)
		if mark >= last.Sequence {
			return
		}
	}
	b.TB.Errorf("the mark is %d, below a finished request", mark)
}

// prepares reports whether the server prepares transactions.
func (b *Bench) prepares() bool {
	return b.Int(`SELECT current_setting('max_prepared_transactions')::integer`) > 0
}

// Open begins an admission of one shoe to the cart. It returns the request and
// a function that commits it. If the function is not called, the admission is
// rolled back when the test ends.
func (b *Bench) Open(cart string) (r requests.Request, commit func()) {
	b.TB.Helper()
	tx := b.Begin()
	r, err := admission.SubmitTx(b.TB.Context(), tx, b.Inserter, b.shoe(cart))
	if err != nil {
		b.TB.Fatal(err)
	}
	return r, func() {
		b.TB.Helper()
		if err := tx.Commit(b.TB.Context()); err != nil {
			b.TB.Fatal(err)
		}
	}
}

// Prepare prepares an admission of one shoe to the cart, as a transaction with
// the cart's name.
func (b *Bench) Prepare(cart string) requests.Request {
	b.TB.Helper()
	tx := b.Begin()
	r := b.insertTx(tx, cart) // a transaction that has notified cannot be prepared
	b.prepareTx(tx, cart)
	return r
}

// Insert admits one shoe to the cart without a wake.
func (b *Bench) Insert(cart string) requests.Request {
	b.TB.Helper()
	tx := b.Begin()
	r := b.insertTx(tx, cart)
	if err := tx.Commit(b.TB.Context()); err != nil {
		b.TB.Fatal(err)
	}
	return r
}

// insertTx inserts a request for one shoe, without a wake.
func (b *Bench) insertTx(tx pgx.Tx, cart string) requests.Request {
	b.TB.Helper()
	submission := b.shoe(cart)
	inserted, err := requestrows.Insertion{Group: []requestrows.Submission{submission}}.InsertTx(b.TB.Context(), tx)
	if err != nil {
		b.TB.Fatal(err)
	}
	return inserted.Results[submission.Ref()].View.Request
}

func (b *Bench) prepareTx(tx pgx.Tx, name string) {
	b.TB.Helper()
	if _, err := tx.Exec(b.TB.Context(), `PREPARE TRANSACTION '`+name+`'`); err != nil {
		b.TB.Fatal(err)
	}
}

// shoe is a submission of one shoe to the cart.
func (b *Bench) shoe(cart string) requestrows.Submission {
	return requestrows.Submission{TenantID: b.Tenant, RequestID: requestrows.NewID(), CartID: cart, VariantID: "shoe", Quantity: 1}
}

// preparedAdmission prepares an admission: no session runs it, and its requests
// may become visible at any time.
func preparedAdmission(b *Bench) {
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{})
	if !b.prepares() {
		b.TB.Log("max_prepared_transactions is 0 here: not tested")
		return
	}
	slow := b.Prepare(b.Tenant.String())
	for range 3 {
		quick := b.Submit("quick", "shoe", 1)
		b.Tick(lane)
		b.Want(quick, requests.Done, "")
		if mark := b.Mark(quick); mark >= slow.Sequence {
			b.TB.Fatalf("the mark is %d, past the prepared request %d", mark, slow.Sequence)
		}
	}
	b.Exec(`COMMIT PREPARED '` + slow.CartID + `'`)
	b.Tick(lane)
	b.Want(slow, requests.Done, "")
	b.markMoves(lane)
	b.Sound()
}

// outsiders are two transactions that write other tables: an open one, and one
// that was prepared and never ended. No mark waits for them.
func outsiders(b *Bench) {
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{})
	b.Lock(`CREATE TABLE of_an_outsider (id bigint)`)
	if b.prepares() {
		tx, name := b.Begin(), b.Tenant.String()
		if _, err := tx.Exec(b.TB.Context(), `CREATE TABLE of_another (id bigint)`); err != nil {
			b.TB.Fatal(err)
		}
		b.prepareTx(tx, name)
		defer b.Exec(`ROLLBACK PREPARED '` + name + `'`)
	}
	b.markMoves(lane)
	b.Sound()
}
