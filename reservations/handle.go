package reservations

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Handle names a hold that is still to be ended. It is used once: Commit, Release and Extend take it, and a second use in
// this process is ErrHandleUsed. (Extend returns a new one.) Across processes the database answers *ConflictError.
//
// A verb that fails gives the handle back, also when it is the COMMIT that fails: then the outcome is unknown, and the verb
// may be tried again. A verb that joined the caller's transaction keeps the handle, also if that is rolled back:
// Kernel.Handle makes a new one.
//
// A Handle is safe for concurrent use, and must not be copied.
type Handle struct {
	reservation Reservation
	observe     observer
	used        atomic.Bool
}

// Handle names a hold of this kind that was made elsewhere: in another process, or by a transaction that was rolled back
// after it had used the handle. It asks nothing of the database; the verb that takes the handle finds out, in its own
// transaction, whether there is such a hold (else ErrNotFound). So the handle has no quantity; Commit returns the row's.
func (k *Kernel[K, W]) Handle(tenantID, reservationID uuid.UUID) *Handle {
	return newHandle(Reservation{TenantID: tenantID, ReservationID: reservationID, ResourceKind: k.kind}, k.config.Observe)
}

func newHandle(r Reservation, observe observer) *Handle {
	return &Handle{reservation: r, observe: observe}
}

// ID is the reservation's.
func (h *Handle) ID() uuid.UUID { return h.reservation.ReservationID }

// ExpiresAt is the hold's deadline on the database's clock, as of when the handle was made; the zero time for a handle
// that Kernel.Handle made.
func (h *Handle) ExpiresAt() time.Time { return h.reservation.ExpiresAt }

// Reservation is the hold as the verb that made the handle wrote it, Hold or Extend; not as a verb that took the handle
// left it, which Commit and Release return. A handle that Kernel.Handle made has never read the row: then ok is false and
// the reservation is the zero value, with no quantity and no status. Get reads the row.
func (h *Handle) Reservation() (r Reservation, ok bool) {
	if h.reservation.Status == "" {
		return Reservation{}, false
	}
	return h.reservation, true
}

// take uses the handle.
func (h *Handle) take() error {
	if h == nil || h.reservation.ResourceKind == "" {
		return fmt.Errorf("%w: a handle that no kernel made", ErrInvalid)
	}
	if !h.used.CompareAndSwap(false, true) {
		return ErrHandleUsed
	}
	return nil
}

// use takes the handles for one verb, and gives them back if it fails.
func use(handles []*Handle, verb func() error) error {
	for i, h := range handles {
		if err := h.take(); err != nil {
			giveBack(handles[:i])
			return err
		}
	}
	err := verb()
	if err != nil {
		giveBack(handles)
	}
	return err
}

func giveBack(handles []*Handle) {
	for _, h := range handles {
		h.used.Store(false)
	}
}

// observers are those of the handles' kernels.
func observers(handles []*Handle) []observer {
	all := make([]observer, 0, len(handles))
	for _, h := range handles {
		if h != nil {
			all = append(all, h.observe)
		}
	}
	return all
}
