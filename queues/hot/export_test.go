package hot

import "context"

// Detected is what a pass did.
type Detected = detected

// ClaimPolicy is how the lane claims.
type ClaimPolicy = claimPolicy

// RunOnce makes one pass of the detector.
func (d *Detector) RunOnce(ctx context.Context) (Detected, error) { return d.runOnce(ctx) }
