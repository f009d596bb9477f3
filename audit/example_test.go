package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A transition and its audit row are written in one transaction. History
// returns the transitions of a target, in order.
func ExampleHistory() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		door := audit.TargetOf(tenant, "door", "front")
		for _, state := range []string{"open", "closed"} {
			err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				// … lock the door's row, move it …
				return audit.WriteTx(ctx, tx, []audit.Entry{{
					TenantID: tenant, TargetID: door, Action: "door." + state,
					Origin: audit.Origin{Actor: audit.User("ann")}, After: json.RawMessage(`{"state": "` + state + `"}`),
				}})
			})
			if err != nil {
				log.Fatal(err)
			}
		}
		records, err := audit.History(ctx, db, tenant, door)
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range records {
			fmt.Println(r.Actor.ID, r.Action, string(r.After))
		}
	})
	// Output:
	// ann door.open {"state": "open"}
	// ann door.closed {"state": "closed"}
}

// A subscriber writes its effects and its checkpoint in one transaction, so
// each record counts once, whenever a process dies. RunOnce makes one delivery.
// A program that follows the record permanently calls Run.
func ExampleSubscribe() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		must := func(err error) {
			if err != nil {
				log.Fatal(err)
			}
		}
		_, err := db.Exec(ctx, `CREATE TABLE openings (door uuid PRIMARY KEY, count int NOT NULL)`)
		must(err)
		sub, err := audit.Subscribe(ctx, db, "openings", audit.SubscriptionConfig{FromBeginning: true})
		must(err)

		tenant := uuid.New()
		door := audit.TargetOf(tenant, "door", "front")
		for _, action := range []string{"door.opened", "door.closed", "door.opened"} {
			must(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				return audit.WriteTx(ctx, tx, []audit.Entry{{TenantID: tenant, TargetID: door, Action: action, After: json.RawMessage(`{}`)}})
			}))
		}

		count := func(ctx context.Context, d *audit.Delivery) error {
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				for _, r := range d.Records {
					if r.Action != "door.opened" {
						continue
					}
					_, err := tx.Exec(ctx, `INSERT INTO openings VALUES ($1, 1) ON CONFLICT (door) DO UPDATE SET count = openings.count + 1`, r.TargetID)
					if err != nil {
						return err
					}
				}
				return d.CheckpointTx(ctx, tx)
			})
		}
		for delivered := 0; delivered < 3; { // until concurrent writers have ended
			report, err := sub.RunOnce(ctx, count)
			must(err)
			delivered += report.Delivered
		}
		var openings int
		must(db.QueryRow(ctx, `SELECT count FROM openings WHERE door = $1`, door).Scan(&openings))
		states, err := audit.Subscriptions(ctx, db)
		must(err)
		fmt.Println(openings, "openings;", states[0].Name, "lags by", states[0].Lag)
	})
	// Output:
	// 2 openings; openings lags by 0
}

// The state of a target is computed from its record: each row's After replaces
// the values of earlier rows.
func ExampleReconstructState() {
	history := []audit.Record{
		{Entry: audit.Entry{Action: "door.made", After: json.RawMessage(`{"state": "open", "colour": "red"}`)}},
		{Entry: audit.Entry{Action: "door.closed", After: json.RawMessage(`{"state": "closed"}`)}},
	}
	state, err := audit.ReconstructState(history)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s\n", state["colour"], state["state"])
	// Output:
	// "red" "closed"
}
