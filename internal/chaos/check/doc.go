// Package check compares the database with the traffic's record after a storm,
// and samples it meanwhile.
//
// It reads the tables, not the programs' answers: each request and reservation,
// the whole audit record in its order, and the sums of each stock. A violated
// rule is a finding; an error means that a rule could not be checked.
package check
