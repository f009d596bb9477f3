package audit

import "github.com/holdfast/holdfast/internal/horizon"

// highestSQL also reads the subscriptions: the rows before their positions may
// be purged.
const highestSQL = `
SELECT greatest(
    (SELECT max(s.next) FROM audit_subscriptions s),
    (SELECT a.audit_id FROM audit_log a ORDER BY a.audit_id DESC LIMIT 1))`

// Numbers are the ids of audit rows, the order in which they are delivered.
var Numbers = horizon.Numbers{
	Sequence: "audit_log_audit_id_seq",
	Table:    "audit_log",
	Highest:  highestSQL,
}
