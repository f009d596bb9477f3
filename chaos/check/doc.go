// Package check holds the database against what the traffic recorded, once a storm is over, and samples it meanwhile.
//
// It asks the tables, not the programs: each request and reservation, the whole audit record folded in its order, and the
// sums of each stock. What a rule found is a finding; an error means that a rule could not be checked.
package check
