package verify

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Note is a finding that breaks no invariant but explains the data to a reader.
type Note struct {
	Name string `json:"name"`
	// Meaning is true of each row, in one sentence.
	Meaning string `json:"meaning"`
	// Rows is the number of such rows, at most BrokenMax. Sample has the first
	// SampleMax of them.
	Rows   int64             `json:"rows"`
	Sample []json.RawMessage `json:"sample"`
}

// One statement draws the audit id and reads the clock, so the record's times
// follow its ids to a few milliseconds, across all transactions.
const clockSetBackSQL = `
SELECT tenant_id, target_id, audit_id, created_at, previous_created_at
FROM (
    SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at, lag(a.created_at) OVER (ORDER BY a.audit_id) AS previous_created_at
    FROM audit_log AS a
) AS record
WHERE created_at < previous_created_at - interval '1 second'`

// timesBackwardsSQL selects the rows that timesInOrderSQL accepts because the
// clock was set back.
const timesBackwardsSQL = timesRecord + `
SELECT r.tenant_id, r.reservation_id, r.status, r.held_at, r.ended_at,
       record.held_id, record.held_recorded_at, record.ended_id, record.ended_recorded_at
FROM reservations AS r
JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.reservation_id
WHERE (r.ended_at < r.held_at AND record.ended_id > record.held_id AND record.ended_recorded_at < record.held_recorded_at)
   OR (r.held_at > @now AND record.held_recorded_at > @now)`

// clockNotes select the rows whose times are explained by a clock that was set
// back.
var clockNotes = []check{
	{"clock_set_back", "The record's times run backwards by more than a second here: the database's clock was set back.", clockSetBackSQL},
	{"times_backwards", "A reservation's times run backwards although its record is in order: the database's clock was set back in between.", timesBackwardsSQL},
}

// note runs the check and returns its rows as a note.
func (c check) note(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) (Note, error) {
	found, err := c.run(ctx, tx, args)
	return Note{Name: found.Name, Meaning: found.Meaning, Rows: found.Broken, Sample: found.Sample}, err
}
