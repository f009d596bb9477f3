package metered

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/internal/purge"
	"github.com/holdfast/holdfast/migrations"
)

// Config configures a [Commands]. The zero value of a field is its default.
type Config struct {
	// WindowMax is the longest window of a charge, up to 400 days; default 24
	// h. A purge never deletes entries that such a window still counts. If
	// another program purges, it must keep entries at least as long, or the
	// ledger grants more than the limit. Holdfast's worker keeps them for
	// METERED_RETENTION, at least 24 h: a longer WindowMax needs an equally
	// long METERED_RETENTION. After WindowMax is raised, entries purged before
	// are not counted.
	WindowMax time.Duration
}

// Commands runs commands, ends them and reads their status. It enqueues their
// jobs on River, in the schema "river". It works no jobs, and takes no part in
// River's leader election or maintenance. It is safe for concurrent use, in any
// number of processes.
type Commands struct {
	// Budgets and Tokens are what commands reserve and redeem.
	Budgets *BudgetLedger
	Tokens  *TokenStore

	db     *pgxpool.Pool
	river  *river.Client[pgx.Tx]
	scopes purge.Walk[purge.Position]
}

// notifyEvery is the shortest time between two notifications of one queue's
// workers by one process. Notifications are serialized at COMMIT, so one per
// job would slow the jobs down.
const notifyEvery = 10 * time.Millisecond

// New makes a Commands. The pool is for the verbs without Tx.
func New(db *pgxpool.Pool, config Config) (*Commands, error) {
	if config.WindowMax == 0 {
		config.WindowMax = 24 * time.Hour
	}
	if config.WindowMax < time.Second || config.WindowMax > 400*24*time.Hour {
		return nil, fmt.Errorf("metered: want 1s ≤ window_max (%s) ≤ 9600h", config.WindowMax)
	}
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:              migrations.RiverSchema,
		FetchCooldown:       notifyEvery,
		FetchPollInterval:   time.Second,
		Logger:              slog.New(slog.DiscardHandler), // it only inserts, and the insert returns errors
		SkipUnknownJobCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("metered: %w", err)
	}
	return &Commands{Budgets: &BudgetLedger{db, config.WindowMax}, Tokens: &TokenStore{db}, db: db, river: client}, nil
}
