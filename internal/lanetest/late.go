package lanetest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

func lateAdmission(b *Bench) {
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{})
	late, err := b.DB.Begin(b.TB.Context())
	if err != nil {
		b.TB.Fatal(err)
	}
	defer func() { _ = late.Rollback(b.TB.Context()) }()
	slow, err := requests.SubmitTx(b.TB.Context(), late, b.Bell, requests.Submission{TenantID: b.Tenant, CartID: "slow", VariantID: "shoe", Quantity: 1})
	if err != nil {
		b.TB.Fatal(err)
	}
	for range 5 { // many turns, each of which would like to move the mark past the slow one
		quick := b.Submit("quick", "shoe", 1)
		b.Tick(lane)
		b.Want(quick, requests.Done, "")
		if quick.Sequence < slow.Sequence {
			b.TB.Fatal("the slow admission did not draw its number first")
		}
	}
	if err := late.Commit(b.TB.Context()); err != nil {
		b.TB.Fatal(err)
	}
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
		if mark = b.Int(`SELECT low_water FROM lane_slots WHERE lane = $1 AND slot = $2`, lane.Name(), last.Slot); mark >= last.Sequence {
			return
		}
	}
	b.TB.Errorf("the mark is %d, below a finished request", mark)
}

// prepares reports whether the server prepares transactions, and what prepares one under a name of the test's own.
func (b *Bench) prepares() (name string, can bool) {
	return fmt.Sprintf("'%s'", b.Tenant), b.Int(`SELECT current_setting('max_prepared_transactions')::integer`) > 0
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
	name, can := b.prepares()
	if !can {
		b.TB.Log("max_prepared_transactions is 0 here: not tested")
		return
	}
	tx, err := b.DB.Begin(b.TB.Context())
	if err != nil {
		b.TB.Fatal(err)
	}
	defer func() { _ = tx.Rollback(b.TB.Context()) }()
	// a transaction that has notified, as River does for a wake, cannot be prepared
	slow, err := requests.SubmitTx(b.TB.Context(), tx, silent{}, requests.Submission{TenantID: b.Tenant, CartID: "slow", VariantID: "shoe", Quantity: 1})
	if err != nil {
		b.TB.Fatal(err)
	}
	if _, err := tx.Exec(b.TB.Context(), `PREPARE TRANSACTION `+name); err != nil {
		b.TB.Fatal(err)
	}
	for range 3 {
		quick := b.Submit("quick", "shoe", 1)
		b.Tick(lane)
		b.Want(quick, requests.Done, "")
		if mark := b.Int(`SELECT low_water FROM lane_slots WHERE lane = $1 AND slot = $2`, lane.Name(), quick.Slot); mark >= slow.Sequence {
			b.TB.Fatalf("the mark is %d, past the prepared request %d", mark, slow.Sequence)
		}
	}
	b.Exec(`COMMIT PREPARED ` + name)
	b.Tick(lane)
	b.Want(slow, requests.Done, "")
	b.markMoves(lane)
	b.Sound()
}

// outsiders have a transaction open, and another prepared and forgotten, that wrote something else: no mark waits for them.
func outsiders(b *Bench) {
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{})
	open, err := b.DB.Begin(b.TB.Context())
	if err != nil {
		b.TB.Fatal(err)
	}
	defer func() { _ = open.Rollback(b.TB.Context()) }()
	if _, err := open.Exec(b.TB.Context(), `CREATE TABLE of_an_outsider (id bigint)`); err != nil {
		b.TB.Fatal(err)
	}
	if name, can := b.prepares(); can {
		tx, err := b.DB.Begin(b.TB.Context())
		if err != nil {
			b.TB.Fatal(err)
		}
		defer func() { _ = tx.Rollback(b.TB.Context()) }()
		if _, err := tx.Exec(b.TB.Context(), `CREATE TABLE of_another (id bigint)`); err != nil {
			b.TB.Fatal(err)
		}
		if _, err := tx.Exec(b.TB.Context(), `PREPARE TRANSACTION `+name); err != nil {
			b.TB.Fatal(err)
		}
		defer b.Exec(`ROLLBACK PREPARED ` + name)
	}
	b.markMoves(lane)
	b.Sound()
}
