package sweeper

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/metered"
)

// PurgedMetered is what one purge deleted of package metered's tables.
type PurgedMetered struct {
	Tokens        int64 `json:"expiring_tokens,omitempty"`
	LedgerEntries int64 `json:"budget_ledger,omitempty"`
	Scopes        int64 `json:"budget_scopes,omitempty"`
	Rates         int64 `json:"budget_rates,omitempty"`
	CommandKeys   int64 `json:"command_keys,omitempty"`
}

// meteredPurge purges package metered's tables. It remembers how far it has walked through those that it can't read in
// the order of age, so that passes that are bounded come to the end of a long one all the same.
type meteredPurge struct {
	db        *pgxpool.Pool
	tokens    *metered.TokenStore
	budgets   *metered.BudgetLedger
	jobs      *metered.JobStore
	retention time.Duration

	mu     sync.Mutex
	scopes metered.ScopePosition
	rates  metered.ScopePosition
}

// Bounds of the windows that a purge leaves whole.
const (
	windowLeast = 24 * time.Hour
	windowMost  = 400 * 24 * time.Hour
)

// newMeteredPurge makes the purge. A ledger whose windows are longer than the default would lose what they still count to
// one that does not know of it, so this one takes the retention for the longest window.
func newMeteredPurge(db *pgxpool.Pool, retention time.Duration) (*meteredPurge, error) {
	budgets, err := metered.NewBudgetLedger(db, metered.BudgetConfig{WindowMax: min(max(retention, windowLeast), windowMost)})
	if err != nil {
		return nil, err
	}
	jobs, err := metered.NewJobStore(db)
	if err != nil {
		return nil, err
	}
	return &meteredPurge{db: db, tokens: metered.NewTokenStore(db), budgets: budgets, jobs: jobs, retention: retention}, nil
}

func (s *Sweeper) purgeMetered(ctx context.Context, report *PurgedMetered, more *bool) (err error) {
	m := s.metered
	report.Tokens, err = s.inBatches(more, func() (int64, error) { return m.tokens.PurgeExpired(ctx, m.retention, purgeBatch) })
	if err != nil {
		return err
	}
	report.LedgerEntries, err = s.inBatches(more, func() (int64, error) { return m.budgets.Purge(ctx, m.retention, purgeBatch) })
	if err != nil {
		return err
	}
	report.CommandKeys, err = s.inBatches(more, func() (int64, error) { return m.jobs.PurgeKeys(ctx, m.retention, purgeBatch) })
	if err != nil {
		return err
	}
	report.Scopes, err = s.walk(&m.scopes, func(after metered.ScopePosition) (metered.PurgedScopes, error) {
		return m.budgets.PurgeScopes(ctx, after, purgeBatch)
	})
	if err != nil {
		return err
	}
	report.Rates, err = s.walk(&m.rates, func(after metered.ScopePosition) (metered.PurgedScopes, error) {
		return metered.PurgeRates(ctx, m.db, after, purgeBatch)
	})
	return err
}

// walk goes on where the walk before it stopped, up to the bound or the end; the one after an end begins anew. Of two
// at once, one has looked at the same piece in vain.
func (s *Sweeper) walk(at *metered.ScopePosition, purge func(after metered.ScopePosition) (metered.PurgedScopes, error)) (deleted int64, err error) {
	s.metered.mu.Lock()
	after := *at
	s.metered.mu.Unlock()
	defer func() {
		s.metered.mu.Lock()
		*at = after
		s.metered.mu.Unlock()
	}()
	for looked := 0; looked < s.config.PurgeMax; looked += purgeBatch {
		one, err := purge(after)
		if err != nil {
			return deleted, err
		}
		deleted += one.Deleted
		if !one.More {
			after = metered.ScopePosition{}
			break
		}
		after = one.Last
	}
	return deleted, nil
}
