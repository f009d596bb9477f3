package metered_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/metered"
)

// A customer that uploaded a picture may enlarge it once, if the hour's budget
// has enough left.
func ExampleCommands_Run() {
	onPool(enlargeOnce)
	// Output:
	// key-1 started: true
	// key-1 started: false
	// key-2 refused: true run enlarge: metered: the token is not valid: used
	// queued
	// 40 of 100 are spent
}

// enlargeArgs are the arguments of a River job.
type enlargeArgs struct {
	Picture json.RawMessage `json:"picture"`
	Times   int             `json:"times"`
}

func (enlargeArgs) Kind() string { return "enlarge" }

func (enlargeArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: "pictures", MaxAttempts: 5}
}

func enlargeOnce(ctx context.Context, db *pgxpool.Pool) error {
	commands, err := metered.New(db, metered.Config{})
	if err != nil {
		return err
	}

	// Mint the token when the customer may use it. Its plaintext is returned
	// only now.
	minted, err := commands.Tokens.Mint(ctx, shop, metered.Grant{
		Purpose: "upload", Subject: "session-1", Payload: json.RawMessage(`{"picture": 7}`), TTL: time.Hour,
	})
	if err != nil {
		return err
	}

	// Redeem it when the customer uses it.
	enlarge := func(key string, times int) error {
		started, err := commands.Run(ctx, metered.Command{
			Reserve: []metered.Charge{{Scope: "all:hourly", Amount: 40, Limit: 100, Window: time.Hour}},
			Spend:   &metered.Redemption{Purpose: "upload", Subject: "session-1", Token: minted[0].Token},
			Start:   metered.Job{TenantID: shop, Args: enlargeArgs{Times: times}, IdempotencyKey: key},
			Compose: func(granted metered.Started) (river.JobArgs, error) {
				return enlargeArgs{Picture: granted.Payload, Times: times}, nil
			},
		})
		if refusal, ok := errors.AsType[*metered.Error](err); ok {
			fmt.Println(key, "refused:", refusal.Kind == metered.ErrTokenRefused, err)
			return nil
		}
		if err == nil {
			fmt.Println(key, "started:", started.Created)
		}
		return err
	}
	for _, key := range []string{"key-1", "key-1", "key-2"} { // the second key-1 is a repetition: it is answered and has no effect
		if err := enlarge(key, 4); err != nil {
			return err
		}
	}

	status, err := commands.StatusByKey(ctx, shop, "pictures", "key-1")
	if err != nil {
		return err
	}
	spent, err := commands.Budgets.WindowedSum(ctx, shop, "all:hourly", time.Hour)
	if err != nil {
		return err
	}
	fmt.Println(status.State)
	fmt.Println(spent, "of 100 are spent")
	return nil
}
