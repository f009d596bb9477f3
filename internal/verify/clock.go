package verify

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Note is what a run found that breaks nothing, but that a reader of the data has to know.
type Note struct {
	Name string `json:"name"`
	// Meaning is what is true of every row, in one sentence.
	Meaning string `json:"meaning"`
	// Rows is how many rows it is true of, at most BrokenMax; Sample shows the first SampleMax of them.
	Rows   int64             `json:"rows"`
	Sample []json.RawMessage `json:"sample"`
}

// Audit ids are drawn and the clock is read in one statement, so the record's times follow its ids to a few
// milliseconds, whichever transaction wrote them.
const clockSetBackSQL = `
SELECT tenant_id, target_id, audit_id, created_at, previous_created_at
FROM (
    SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at, lag(a.created_at) OVER (ORDER BY a.audit_id) AS previous_created_at
    FROM audit_log AS a
) AS record
WHERE created_at < previous_created_at - interval '1 second'`

// timesBackwardsSQL selects what timesInOrderSQL passes for this reason.
const timesBackwardsSQL = timesRecord + `
SELECT r.tenant_id, r.reservation_id, r.status, r.held_at, r.ended_at,
       record.held_id, record.held_recorded_at, record.ended_id, record.ended_recorded_at
FROM reservations AS r
JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.reservation_id
WHERE (r.ended_at < r.held_at AND record.ended_id > record.held_id AND record.ended_recorded_at < record.held_recorded_at)
   OR (r.held_at > @now AND record.held_recorded_at > @now)`

// clockNotes are what a database clock that was set back explains.
var clockNotes = []check{
	{"clock_set_back", "Here the record's times run backwards by more than a second, as they do when the database's clock is set back.", clockSetBackSQL},
	{"times_backwards", "A reservation's times run backwards although its record is in order: the database's clock was set back in between.", timesBackwardsSQL},
}

// note makes a note of what the statement selects.
func (c check) note(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) (Note, error) {
	found, err := c.run(ctx, tx, args)
	return Note{Name: found.Name, Meaning: found.Meaning, Rows: found.Broken, Sample: found.Sample}, err
}
