package verbs

// Gathered is how many calls wait for a group.
func (g *Groups) Gathered() int { return g.line.Len() }
