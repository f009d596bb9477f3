package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// A channel is sampled while it has a subscriber.
func ExampleHub_Subscribe() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		lanes := func(context.Context, uuid.UUID) (json.RawMessage, error) {
			return json.RawMessage(`{"waiting":3}`), nil
		}
		hub, err := live.New(live.Config{
			Pool: pool, Log: slog.Default(),
			Sampled: []live.Sampled{{Channel: "lanes", Scope: tenants.ScopeOps, Sample: lanes}},
		})
		if err != nil {
			log.Fatal(err)
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- hub.Run(running) }()

		subscription, err := hub.Subscribe(uuid.New(), "lanes")
		if err != nil {
			log.Fatal(err)
		}
		frame, err := subscription.Next(ctx)
		fmt.Println(frame.Event, frame.Version, string(frame.Payload), err)
		subscription.Close()
		stop()
		fmt.Println(<-ended)
	})
	// Output:
	// snapshot 1 {"waiting":3} <nil>
	// <nil>
}
