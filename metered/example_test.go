package metered_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
)

// shop is whose budgets, tokens and commands these are.
var shop = uuid.MustParse("01900000-0000-7000-8000-000000000002")

// onMetered runs an example with a database that has the tables of metered commands.
func onMetered(do func(ctx context.Context, db *pgxpool.Pool, budgets *metered.BudgetLedger, jobs *metered.JobStore)) {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		if err := migrations.UpMetered(ctx, db); err != nil {
			log.Fatal(err)
		}
		budgets, err := metered.NewBudgetLedger(db, metered.BudgetConfig{WindowMax: 24 * time.Hour})
		if err != nil {
			log.Fatal(err)
		}
		jobs, err := metered.NewJobStore(db)
		if err != nil {
			log.Fatal(err)
		}
		do(ctx, db, budgets, jobs)
	})
}

// Whoever uploaded a picture may have it enlarged once, as long as the hour's budget lasts.
func ExampleCommands_Run() {
	onMetered(func(ctx context.Context, db *pgxpool.Pool, budgets *metered.BudgetLedger, jobs *metered.JobStore) {
		tokens := metered.NewTokenStore(db)
		commands := metered.NewCommands(db, metered.NewGate(budgets), jobs)
		minted, err := tokens.Mint(ctx, shop, metered.Grant{
			Purpose: "upload", Subject: "session-1", Payload: json.RawMessage(`{"picture": 7}`), TTL: time.Hour,
		})
		if err != nil {
			log.Fatal(err)
		}
		enlarge := func(key string, times int) {
			started, err := commands.Run(ctx, metered.Command{
				Reserve: []metered.Charge{{Scope: "all:hourly", Amount: 40, Limit: 100, Window: time.Hour}},
				Spend:   &metered.Redemption{Purpose: "upload", Subject: "session-1", Token: minted.Token},
				Start: metered.Job{
					TenantID: shop, Queue: "pictures", Kind: "enlarge", IdempotencyKey: key,
					Payload: json.RawMessage(fmt.Sprintf(`{"times": %d}`, times)), MaxAttempts: 5,
				},
				Compose: func(asked json.RawMessage, granted metered.Granted) (json.RawMessage, error) {
					return json.Marshal(map[string]json.RawMessage{"asked": asked, "granted": granted.Payload})
				},
			})
			fmt.Println(key, "started:", started.Created, "error:", err)
		}
		enlarge("key-1", 4)
		enlarge("key-1", 4) // sent again: answered, not done again
		enlarge("key-2", 4) // the token is spent, so nothing is charged either
		status, err := jobs.StatusByKey(ctx, shop, "pictures", "key-1")
		fmt.Println(status.State, err)
		spent, err := budgets.WindowedSum(ctx, shop, "all:hourly", time.Hour)
		fmt.Println(spent, err)
	})
	// Output:
	// key-1 started: true error: <nil>
	// key-1 started: false error: <nil>
	// key-2 started: false error: run enlarge: the token is not valid: used
	// queued <nil>
	// 40 <nil>
}

// The same by hand, with writes of the caller's own between: one transaction, in which any step can still refuse.
func Example_byHand() {
	onMetered(func(ctx context.Context, db *pgxpool.Pool, budgets *metered.BudgetLedger, jobs *metered.JobStore) {
		tokens := metered.NewTokenStore(db)
		minted, err := tokens.Mint(ctx, shop, metered.Grant{
			Purpose: "upload", Subject: "session-1", Payload: json.RawMessage(`{"picture": 7}`), TTL: time.Hour,
		})
		if err != nil {
			log.Fatal(err)
		}
		errOverBudget := errors.New("over budget")
		enlarge := func(cost int64) error {
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				budget, err := budgets.TryReserveTx(ctx, tx, shop, metered.Charge{Scope: "all:hourly", Amount: cost, Limit: 100, Window: time.Hour})
				if err != nil {
					return err
				}
				if !budget.Reserved {
					return errOverBudget
				}
				picture, err := tokens.ConsumeTx(ctx, tx, shop, metered.Redemption{Purpose: "upload", Subject: "session-1", Token: minted.Token})
				if err != nil {
					return err // one of ErrTokenRefused; the budget goes back with the transaction
				}
				_, _, err = jobs.EnqueueTx(ctx, tx, metered.Job{
					TenantID: shop, Queue: "pictures", Kind: "enlarge", Payload: picture, IdempotencyKey: "key-1",
					Reservations: []metered.Reservation{budget.Reservation},
				})
				return err
			})
		}
		spent := func() int64 {
			sum, err := budgets.WindowedSum(ctx, shop, "all:hourly", time.Hour)
			if err != nil {
				log.Fatal(err)
			}
			return sum
		}
		fmt.Println(enlarge(101), spent())
		fmt.Println(enlarge(40), spent())
		fmt.Println(enlarge(40), spent())
	})
	// Output:
	// over budget 0
	// <nil> 40
	// the token is not valid: used 40
}

// A group is decided in one go: each member has all it asks for or nothing, and pays for nobody else.
func ExampleGate_PassTx() {
	onMetered(func(ctx context.Context, db *pgxpool.Pool, budgets *metered.BudgetLedger, _ *metered.JobStore) {
		gate := metered.NewGate(budgets)
		ask := func(customer string) metered.Pass {
			return metered.Pass{TenantID: shop, Reserve: []metered.Charge{
				{Scope: "shop", Amount: 1, Limit: 3, Window: time.Minute},
				{Scope: "customer:" + customer, Amount: 1, Limit: 1, Window: time.Minute},
			}}
		}
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			verdicts, err := gate.PassTx(ctx, tx, []metered.Pass{ask("ann"), ask("ann"), ask("bob"), ask("cem"), ask("dee")})
			for _, v := range verdicts {
				fmt.Println(v.Budgets[0].Remaining, v.Err)
			}
			return err
		})
		fmt.Println(err)
	})
	// Output:
	// 2 <nil>
	// 2 metered: over budget: 1 of customer:ann asked for, 0 of 1 left in 1m0s
	// 1 <nil>
	// 0 <nil>
	// 0 metered: over budget: 1 of shop asked for, 0 of 3 left in 1m0s
	// <nil>
}

// A group brings its own writes and what it is to be counted in to the database at once: each row of a visitor who is
// refused is taken back, and nobody else pays for it.
func ExampleTurnstile() {
	onMetered(func(ctx context.Context, db *pgxpool.Pool, _ *metered.BudgetLedger, _ *metered.JobStore) {
		minted, err := metered.NewTokenStore(db).Mint(ctx, shop, metered.Grant{Purpose: "sale", Subject: "ann", TTL: time.Hour})
		if err != nil {
			log.Fatal(err)
		}
		visit := func(customer string, token metered.Token) metered.Visit {
			v, err := metered.NewVisit(shop,
				[]metered.Rate{{Scope: "shop", Amount: 1, Limit: 2, Window: 24 * time.Hour}, {Scope: "customer:" + customer, Amount: 1, Limit: 1, Window: 24 * time.Hour}},
				&metered.Redemption{Purpose: "sale", Subject: customer, Token: token})
			if err != nil {
				log.Fatal(err)
			}
			return v
		}
		err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			turnstile, err := metered.NewTurnstile([]metered.Visit{
				visit("bob", minted.Token), // is ann's
				visit("ann", minted.Token),
				visit("ann", minted.Token),    // again
				visit("cem", metered.Token{}), // wants what asks for no token
				visit("dee", metered.Token{}), // comes late
			})
			if err != nil {
				return err
			}
			batch := &pgx.Batch{} // with the group's own writes
			turnstile.Queue(batch)
			if err := tx.SendBatch(ctx, batch).Close(); err != nil {
				return err
			}
			entries, err := turnstile.PassTx(ctx, tx, func(place int) metered.Treatment {
				if place < 3 {
					return metered.Guarded
				}
				return metered.Counted
			})
			for _, e := range entries {
				fmt.Println(e.Standings[0].Remaining, e.Standings[1].Remaining, e.Err)
			}
			return err
		})
		fmt.Println(err)
	})
	// Output:
	// 2 1 the token is not valid: minted for another subject
	// 1 0 <nil>
	// 1 0 the token is not valid: used
	// 0 0 <nil>
	// 0 1 metered: over the rate of shop: 1 asked for, 0 of 2 left
	// <nil>
}

// What was reserved in advance is settled when the cost is known.
func ExampleBudgetLedger_Settle() {
	onMetered(func(ctx context.Context, _ *pgxpool.Pool, budgets *metered.BudgetLedger, _ *metered.JobStore) {
		budget, err := budgets.TryReserve(ctx, shop, metered.Charge{Scope: "customer:ann", Amount: 500, Limit: 1000, Window: 24 * time.Hour})
		fmt.Println(budget.Reserved, budget.Remaining, err)
		fmt.Println(budgets.Settle(ctx, shop, budget.Reservation, 120))
		fmt.Println(budgets.WindowedSum(ctx, shop, "customer:ann", 24*time.Hour))
		_, err = budgets.Settle(ctx, shop, budget.Reservation, 120)
		fmt.Println(errors.Is(err, metered.ErrSettled))
	})
	// Output:
	// true 500 <nil>
	// -380 <nil>
	// 120 <nil>
	// true
}
