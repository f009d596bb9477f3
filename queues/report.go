package queues

import "errors"

// Report is what a drain did.
type Report struct {
	Claimed  int `json:"claimed"`
	Held     int `json:"held"`
	Rejected int `json:"rejected"`
	Careful  int `json:"careful"`
	// More says that the stream may hold more: a full batch was claimed, or the drain's time was up. Moving says that
	// variants of the slot are between the lanes.
	More   bool `json:"more"`
	Moving bool `json:"moving,omitempty"`
	// Throttled says that the lane's rate cap left nothing to claim.
	Throttled bool `json:"throttled,omitempty"`

	outcomes *outcomes // of a transaction that decided something
}

// outcome is the drain's own in telemetry: "" leaves it to the error.
func (r *Report) outcome(err error) string {
	switch {
	case errors.Is(err, ErrBusy):
		return "busy"
	case errors.Is(err, errCapped), err == nil && r.Claimed == 0:
		return "idle"
	default:
		return ""
	}
}

func (r *Report) add(o Report) {
	r.Claimed += o.Claimed
	r.Held += o.Held
	r.Rejected += o.Rejected
	r.Careful += o.Careful
	r.More, r.Moving, r.Throttled = o.More, o.Moving, o.Throttled
}
