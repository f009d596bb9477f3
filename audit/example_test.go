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

// A transition and its row are written in one transaction; History tells what happened to a target, in order.
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
