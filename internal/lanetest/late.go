package lanetest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

func lateAdmission(b *Bench) {
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{})
	slow, commit := b.Open("slow")
	for range 5 { // many turns, each of which would like to move the mark past the slow one
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

// markMoves fails the test unless the mark passes a request that is decided now.
func (b *Bench) markMoves(lane *queues.Lane) {
	b.TB.Helper()
	var mark int64
	for range 3 { // drains of one slot side by side leave the mark to each other
		last := b.SubmitQueued(requests.Submission{CartID: "last", VariantID: "shoe", Quantity: 1})
		b.Tick(lane)
		if mark = b.Mark(last); mark >= last.Sequence {
			return
		}
	}
	b.TB.Errorf("the mark is %d, below a finished request", mark)
}

// prepares reports whether the server prepares transactions.
func (b *Bench) prepares() bool {
	return b.Int(`SELECT current_setting('max_prepared_transactions')::integer`) > 0
}

// Open begins an admission of one shoe to the cart. It returns the request, and what commits it; if that is not
// called, it is rolled back when the test ends.
func (b *Bench) Open(cart string) (r requests.Request, commit func()) {
	b.TB.Helper()
	tx := b.Begin()
	return b.submitTx(tx, b.Bell, cart), func() {
		b.TB.Helper()
		if err := tx.Commit(b.TB.Context()); err != nil {
			b.TB.Fatal(err)
		}
	}
}

// Prepare prepares an admission of one shoe to the cart, as a transaction of that name.
func (b *Bench) Prepare(cart string) requests.Request {
	b.TB.Helper()
	tx := b.Begin()
	// a transaction that has notified, as River does for a wake, cannot be prepared
	r := b.submitTx(tx, silent{}, cart)
	b.prepareTx(tx, cart)
	return r
}

func (b *Bench) prepareTx(tx pgx.Tx, name string) {
	b.TB.Helper()
	if _, err := tx.Exec(b.TB.Context(), `PREPARE TRANSACTION '`+name+`'`); err != nil {
		b.TB.Fatal(err)
	}
}

func (b *Bench) submitTx(tx pgx.Tx, ringer requests.Ringer, cart string) requests.Request {
	b.TB.Helper()
	r, err := requests.SubmitTx(b.TB.Context(), tx, ringer, requests.Submission{TenantID: b.Tenant, CartID: cart, VariantID: "shoe", Quantity: 1})
	if err != nil {
		b.TB.Fatal(err)
	}
	return r
}

// silent makes no wakes.
type silent struct{}

func (silent) RingTx(context.Context, pgx.Tx, []requests.Wake) error { return nil }
func (silent) Ring(context.Context, []requests.Wake) error           { return nil }
func (silent) Notify(context.Context, []requests.Wake) error         { return nil }

// preparedAdmission prepares an admission: no process has it, and its requests may become visible at any time.
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

// outsiders have a transaction open, and another prepared and forgotten, that wrote something else: no mark waits for them.
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
