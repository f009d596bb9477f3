package projections

// Limits.
const (
	NameMax     = nameMax
	KeyMax      = keyMax
	StateMax    = stateMax
	ChannelsMax = readMax
)

// Names returns the names of the projections that are registered.
func (f *Feed) Names() []string { return f.names() }
