package plans

// Lookup are session parameters for connections that only admit and drain. Whatever such a statement touches, it looks
// up by index, row by row from the few that its arguments or its claim name; that is right however large the tables are.
// So the plan is made once for a connection, and no other kind of plan is tried: one made while a table was empty can't
// read all of it later. Planning anew each time took a fifth of what small groups cost.
//
// The map is not to be changed.
var Lookup = map[string]string{
	"plan_cache_mode":  "force_generic_plan",
	"enable_seqscan":   "off",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"enable_material":  "off",
}
