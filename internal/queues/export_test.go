package queues

// Policy returns how the lane claims.
func (l *Lane) Policy() ClaimPolicy { return l.drain.policy }
