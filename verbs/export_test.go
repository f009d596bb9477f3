package verbs

// Waiting is how many calls are in the line.
func (g *Groups) Waiting() int { return g.line.Len() }

// BlockedFor is how long calls for a stock that was found locked are made alone.
const BlockedFor = blockedFor

// HoldsMax is how many holds a cart may have for its calls to be made in a group.
const HoldsMax = holdsMax
