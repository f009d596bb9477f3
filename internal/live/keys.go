package live

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/sleep"
)

// keysMax is how many keys one statement checks.
const keysMax = 1000

// validKeysSQL has a row for each key that is valid, of a tenant that this database
// serves.
const validKeysSQL = `
SELECT k.key_id
FROM unnest($1::uuid[], $2::uuid[]) AS given (tenant_id, key_id)
JOIN api_keys AS k ON k.tenant_id = given.tenant_id AND k.key_id = given.key_id
JOIN tenant_state AS s ON s.tenant_id = given.tenant_id
WHERE k.revoked_at IS NULL AND s.state <> 'gone'
LIMIT $3`

// checkKeys closes the connections whose key was revoked or has moved, again and
// again until ctx ends.
func (h *Hub) checkKeys(ctx context.Context) {
	for sleep.For(ctx, h.config.Limits.KeyCheck) == nil {
		if err := h.closeRevoked(ctx); err != nil && ctx.Err() == nil {
			h.config.Log.WarnContext(ctx, "the keys of live connections could not be checked; they are checked again", "error", err)
		}
	}
}

// closeRevoked closes the connections whose key is not valid.
func (h *Hub) closeRevoked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	byKey := h.sessionsByKey()
	var tenantIDs, keyIDs []uuid.UUID
	for id, sessions := range byKey {
		tenantIDs, keyIDs = append(tenantIDs, sessions[0].holder.TenantID), append(keyIDs, id)
	}
	for len(keyIDs) > 0 {
		n := min(len(keyIDs), keysMax)
		rows, _ := h.config.Pool.Query(ctx, validKeysSQL, tenantIDs[:n], keyIDs[:n], n)
		valid, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return fmt.Errorf("check the keys of live connections: %w", err)
		}
		revoked := make(map[uuid.UUID]bool, n)
		for _, id := range keyIDs[:n] {
			revoked[id] = true
		}
		for _, id := range valid {
			delete(revoked, id)
		}
		for id := range revoked {
			for _, s := range byKey[id] {
				s.end(keyRevoked)
			}
		}
		tenantIDs, keyIDs = tenantIDs[n:], keyIDs[n:]
	}
	return nil
}

func (h *Hub) sessionsByKey() map[uuid.UUID][]*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	byKey := make(map[uuid.UUID][]*session)
	for s := range h.sessions {
		byKey[s.holder.KeyID] = append(byKey[s.holder.KeyID], s)
	}
	return byKey
}
