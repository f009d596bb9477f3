package cells

// The states of tenant_state.
const (
	stateActive   = "active"
	stateArriving = "arriving"
	stateMoving   = "moving"
	stateGone     = "gone"
)
