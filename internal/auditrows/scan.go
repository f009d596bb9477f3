package auditrows

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Columns are the columns of both states of a record, for a query of audit_log
// as a, and ColumnsWithoutUnits the same without the lists of units. Scan reads
// either.
const (
	Columns             = columns + `, a.unit_ids, a.before, a.after`
	ColumnsWithoutUnits = columns + `, NULL::jsonb, a.before - 'unit_ids', a.after`

	columns = `coalesce(a.resource_kind, ''), coalesce(a.resource_key, ''), coalesce(a.holder_id, ''), coalesce(a.quantity, 0), a.expires_at,
       coalesce(a.release_reason, ''), coalesce(a.resource_window, ''), a.checkout_id`
)

// Scan reads a row that begins with the columns of first and goes on with
// Columns. It sets both states of the record; action is one of the columns of
// first. A state before that cannot be read is returned as it is stored: one
// damaged record does not stop those that read the log.
func Scan(row pgx.CollectableRow, action *string, before, after *json.RawMessage, first ...any) error {
	var r Reservation
	var deadline *time.Time
	var checkout *[16]byte
	var units []byte
	err := row.Scan(append(first, &r.ResourceKind, &r.ResourceKey, &r.HolderID, &r.Quantity, &deadline,
		&r.ReleaseReason, &r.ResourceWindow, &checkout, &units, (*[]byte)(before), (*[]byte)(after))...)
	if err != nil || *after != nil {
		return err
	}
	r.UnitIDs, r.Before = string(units), *before
	if deadline != nil {
		r.ExpiresAt = *deadline
	}
	if checkout != nil {
		r.CheckoutID = uuid.UUID(*checkout)
	}
	*before, *after, _ = r.States(*action)
	return nil
}
