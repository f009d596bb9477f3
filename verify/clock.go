package verify

import "encoding/json"

// Note is a finding that breaks no invariant but explains the data to a reader.
type Note struct {
	Name string `json:"name"`
	// Meaning is true of each row, in one sentence.
	Meaning string `json:"meaning"`
	// Rows is the number of such rows, counted up to 10,000. Sample has the first
	// 20 of them.
	Rows   int64             `json:"rows"`
	Sample []json.RawMessage `json:"sample"`
}

// latestSQL is the latest time that a row may have: the clock may have been set
// back behind the record.
const latestSQL = `
SELECT greatest(@now::timestamptz, max(a.created_at))
FROM audit_log AS a
WHERE a.created_at > @now AND a.audit_id > @after`

// workedSQL is the last time that the service recorded anything, at least a
// minute ago, or long ago. What it should have done before that is overdue. What is
// old because the programs did not run, or the database was restored from a
// backup, is not: they have a minute to do it.
const workedSQL = `
SELECT coalesce((
    SELECT a.created_at
    FROM audit_log AS a
    WHERE a.created_at <= @now::timestamptz - @margin::interval
    ORDER BY a.audit_id DESC
    LIMIT 1), 'epoch')`

// One statement draws the audit id and reads the clock, so the record's times
// follow its ids to a few milliseconds, across all transactions.
const clockSetBackSQL = `
SELECT audit_id, created_at, previous_created_at
FROM (
    SELECT a.audit_id, a.created_at, lag(a.created_at) OVER (ORDER BY a.audit_id) AS previous_created_at
    FROM audit_log AS a
    WHERE a.audit_id > @after AND a.tenant_id <> ALL (@arrived::uuid[])
) AS record
WHERE created_at < previous_created_at - interval '1 second'`

const auditOnceSQL = `
SELECT a.audit_id, count(*) AS rows
FROM audit_log AS a
WHERE a.audit_id > @after
GROUP BY a.audit_id, CASE WHEN a.tenant_id = ANY (@arrived::uuid[]) THEN a.tenant_id END
HAVING count(*) > 1`

var auditChecks = []tableCheck{
	{name: "audit_id_once", meaning: "No two audit rows have one id, but for those of tenants that came from another cell.", sql: auditOnceSQL, changed: true},
}

// clockNotes find where in the record the clock was set back.
var clockNotes = []tableCheck{
	{name: "clock_set_back", meaning: "The record's times run backwards by more than a second here: the database's clock was set back.", sql: clockSetBackSQL, changed: true},
}

// targetNotes select the rows whose times are explained by a clock that was set
// back.
var targetNotes = []targetCheck{
	{"times_backwards", "A reservation's times run backwards although its record is in order: the database's clock was set back in between.", timesBackwards},
}

// note returns the check's rows as a note.
func (c Check) note() Note {
	return Note{Name: c.Name, Meaning: c.Meaning, Rows: c.Broken, Sample: c.Sample}
}
