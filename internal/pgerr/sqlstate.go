package pgerr

// verdict is what a SQLSTATE means for the row.
type verdict int

const (
	data verdict = iota // also of every state that is not listed
	retryable
	outage
)

// states are the SQLSTATEs whose verdict differs from that of their class.
// The list follows appendix A of the PostgreSQL manual.
var states = map[string]verdict{
	"40001": retryable, // serialization_failure: another transaction came first; ours was rolled back
	"40P01": retryable, // deadlock_detected: we were the victim; ours was rolled back
	"55P03": retryable, // lock_not_available: NOWAIT or lock_timeout; the statement changed nothing
}

// classes are the verdicts of the two-character classes.
var classes = map[string]verdict{
	"21": data, // cardinality violation: the group holds a key twice; alone, each row passes
	"22": data, // data exception: out of range, too long, malformed
	"23": data, // integrity constraint violation
	"44": data, // WITH CHECK OPTION violation
	"54": data, // program limit exceeded: the row is too wide for a page or an index, its JSON too deep
	"P0": data, // raised by a function of the schema about what it was given
	"XX": data, // internal error, corrupt tuple or index: bound to what the row touches; must not stop all the others

	"08": outage, // connection exception
	"0A": outage, // feature not supported: a cached plan that a migration outdated is reported so
	"25": outage, // invalid transaction state: read-only after a failover, idle or transaction timeout
	"26": outage, // invalid statement name: a pooler in between lost a prepared statement
	"28": outage, // invalid authorization
	"34": outage, // invalid cursor name: as 26
	"3D": outage, // invalid catalogue: the database is gone
	"3F": outage, // invalid schema: migrations are missing
	"40": outage, // transaction rollback, except the two above: how it ended is not known
	"42": outage, // undefined table or column, privilege: the schema and the program do not fit; no row changes that
	"53": outage, // insufficient resources: disk, memory, connections
	"55": outage, // object not in prerequisite state
	"57": outage, // operator intervention: shutdown, start-up, statement timeout, cancelled by an administrator
	"58": outage, // system error: I/O
	"72": outage, // snapshot too old
	"F0": outage, // configuration file error
}

func verdictOf(code string) verdict {
	if v, ok := states[code]; ok {
		return v
	}
	return classes[class(code)]
}

func class(code string) string {
	if len(code) < 2 {
		return ""
	}
	return code[:2]
}
