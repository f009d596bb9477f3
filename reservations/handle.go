package reservations

import (
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"
)

// Handle names a hold that has not ended. It is used once: Commit, Release and
// Extend take it, and a second use in this process is ErrHandleUsed. (Extend
// returns a new handle.) A second use in another process is a *ConflictError.
//
// After a verb that fails the handle can be used again, also if the COMMIT
// fails: its outcome is unknown, and the verb may be tried again. So it can
// after a verb that joined the caller's transaction, because that may be rolled
// back: once it is committed, a second use is a *ConflictError.
//
// A Handle is safe for concurrent use, and must not be copied.
type Handle struct {
	reservation Reservation
	observe     observer
	used        atomic.Bool
}

// Handle names a hold of this kind that was made in another process. It does
// not query the database: the verb that takes the handle reads, in its own
// transaction, whether there is such a hold (else ErrNotFound). So the handle
// has no quantity; Commit returns the quantity of the row.
func (k *Kernel[K, W]) Handle(tenantID, reservationID uuid.UUID) *Handle {
	return newHandle(Reservation{TenantID: tenantID, ReservationID: reservationID, ResourceKind: k.kind}, k.config.Observe)
}

func newHandle(r Reservation, observe observer) *Handle {
	return &Handle{reservation: r, observe: observe}
}

// ID is the id of the reservation.
func (h *Handle) ID() uuid.UUID { return h.reservation.ReservationID }

// Reservation is the hold as Hold or Extend wrote it when it made the handle.
// The verbs that take the handle do not change it; Commit and Release return
// the row that they wrote. A handle that Kernel.Handle made has never read the
// row: then ok is false and the reservation is the zero value. Get reads the
// row.
func (h *Handle) Reservation() (r Reservation, ok bool) {
	if h.reservation.Status == "" {
		return Reservation{}, false
	}
	return h.reservation, true
}

// take marks the handle as used.
func (h *Handle) take() error {
	if h == nil || h.reservation.ResourceKind == "" {
		return fmt.Errorf("%w: a handle that no kernel made", ErrInvalid)
	}
	if !h.used.CompareAndSwap(false, true) {
		return ErrHandleUsed
	}
	return nil
}

// use takes the handles for one verb of a kernel of the kind (empty: of any),
// and restores them if it fails, or if it joined the caller's transaction.
func use(handles []*Handle, kind string, joined bool, verb func() error) error {
	for i, h := range handles {
		if err := h.take(); err != nil {
			restoreHandles(handles[:i])
			return err
		}
	}
	var err error
	if own := handles[0].reservation.ResourceKind; kind != "" && own != kind {
		err = fmt.Errorf("%w: a handle of another kernel: its kind is %s, the kernel's is %s", ErrInvalid, own, kind)
	} else {
		err = verb()
	}
	if err != nil || joined {
		restoreHandles(handles)
	}
	return err
}

func restoreHandles(handles []*Handle) {
	for _, h := range handles {
		h.used.Store(false)
	}
}

// observers returns the observers of the handles' kernels.
func observers(handles []*Handle) []observer {
	all := make([]observer, 0, len(handles))
	for _, h := range handles {
		if h != nil {
			all = append(all, h.observe)
		}
	}
	return all
}
