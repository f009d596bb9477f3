package requests

import (
	"context"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// observe counts a group that was committed, without the requests that had been admitted before.
func observe(ctx context.Context, group []*member, admitted map[Ref]admission) {
	telemetry.AdmittedGroup(ctx, len(group))
	var hot, normal int
	for _, m := range group {
		a := admitted[Ref{m.submission.TenantID, m.submission.RequestID}]
		switch {
		case a.err != nil || a.view.RequestID != m.submission.RequestID:
		case a.view.Lane == Hot:
			hot++
		default:
			normal++
		}
	}
	telemetry.Admitted(ctx, Hot, hot)
	telemetry.Admitted(ctx, Normal, normal)
}
