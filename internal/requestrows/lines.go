package requestrows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// LinesMax is how many lines a request has at most, and ChoiceMax how many
// variants one of them may name.
const (
	LinesMax  = 50
	ChoiceMax = 20
)

func validateLines(lines *requests.Lines) error {
	if lines == nil || len(lines.Items) == 0 || len(lines.Items) > LinesMax {
		return &inventory.InvalidError{Field: "lines", Message: fmt.Sprintf("must have 1 to %d items", LinesMax)}
	}
	type source struct{ variant, allotment string }
	named, kits := make(map[source]bool, len(lines.Items)), make(map[string]bool)
	for i := range lines.Items {
		line := &lines.Items[i]
		field := func(name string) string { return fmt.Sprintf("lines[%d].%s", i, name) }
		if line.Quantity < 1 || line.Quantity > inventory.MaxQuantity {
			return &inventory.InvalidError{Field: field("quantity"), Message: fmt.Sprintf("must be between 1 and %d", inventory.MaxQuantity)}
		}
		if err := validateLine(line, field); err != nil {
			return err
		}
		of := source{variant: line.VariantID}
		if line.Units != nil {
			of.allotment = line.Units.Allotment
		}
		if named[of] && line.VariantID != "" {
			return &inventory.InvalidError{Field: field("variant_id"), Message: "is the variant of another line"}
		}
		if kits[line.KitID] {
			return &inventory.InvalidError{Field: field("kit_id"), Message: "is the kit of another line"}
		}
		named[of] = true
		if line.KitID != "" {
			kits[line.KitID] = true
		}
	}
	return nil
}

func validateLine(line *requests.Line, field func(string) string) error {
	switch {
	case line.KitID != "":
		return validateKit(line, field)
	case len(line.OneOf) > 0 && (line.VariantID != "" || line.Units != nil):
		return &inventory.InvalidError{Field: field("one_of"), Message: "must be left out with a variant or a block"}
	case line.Split && len(line.OneOf) == 0:
		return &inventory.InvalidError{Field: field("split"), Message: "must be left out without one_of"}
	case len(line.OneOf) > ChoiceMax:
		return &inventory.InvalidError{Field: field("one_of"), Message: fmt.Sprintf("must have 1 to %d items", ChoiceMax)}
	case len(line.OneOf) == 0:
		if err := inventory.ValidateID(field("variant_id"), line.VariantID); err != nil {
			return err
		}
	}
	for i, id := range line.OneOf {
		at := field(fmt.Sprintf("one_of[%d]", i))
		if err := inventory.ValidateID(at, id); err != nil {
			return err
		}
		if slices.Contains(line.OneOf[:i], id) {
			return &inventory.InvalidError{Field: at, Message: "is named twice"}
		}
	}
	if line.Units == nil {
		return nil
	}
	if line.Units.Allotment != "" {
		return validateAllotment(field("allotment"), line.Units)
	}
	if line.Quantity > unitrows.UnitsMax {
		return &inventory.InvalidError{Field: field("any_of"), Message: fmt.Sprintf("must be between 1 and %d", unitrows.UnitsMax)}
	}
	err := inventory.ValidateUnits(line.Units.IDs, int(line.Quantity))
	if wrong, ok := errors.AsType[*inventory.InvalidError](err); ok {
		return &inventory.InvalidError{Field: field(wrong.Field), Message: wrong.Message}
	}
	return err
}

// unitsOf is how many units and kits the lines ask for together, at most what
// the column can hold.
func unitsOf(lines *requests.Lines) int32 {
	sum := int32(0)
	for _, line := range lines.Items {
		sum += line.Quantity // at most 50 times 1,000,000
	}
	return sum
}

// Variants returns the variants of a line, in the order in which they are
// tried, or those of the parts of a kit.
func Variants(line *requests.Line) []string {
	switch {
	case line.KitID != "":
		variants := make([]string, len(line.Parts))
		for i := range line.Parts {
			variants[i] = line.Parts[i].VariantID
		}
		return variants
	case len(line.OneOf) > 0:
		return line.OneOf
	}
	return []string{line.VariantID}
}

// PartOf is the submission of a part of a request of several lines: quantity
// units of a variant for the line at that place.
func PartOf(r *requests.Request, place int, variantID string, quantity int64) Submission {
	return Submission{
		TenantID: r.TenantID, RequestID: NewID(), Kind: requests.Add, CartID: r.CartID, VariantID: variantID, Quantity: int32(quantity),
		Units: r.Lines.Items[place].Units, ParentID: r.RequestID, Line: int16(place), KitID: r.Lines.Items[place].KitID,
		CorrelationID: r.CorrelationID, ActorID: r.ActorID, CustomerID: r.CustomerID, traceParent: r.TraceParent,
	}
}

// QueueDecidedParts adds to b the statements that insert parts as they were
// decided with their requests at the time now: done, or failed with
// reasons[i], and the audit rows of the failed ones.
func QueueDecidedParts(b *pgx.Batch, parts []Submission, reasons []requests.Reason, now time.Time) {
	if len(parts) == 0 {
		return
	}
	views := make(map[Ref]requests.View, len(parts))
	all := make([]requests.Request, len(parts))
	for i := range parts {
		all[i] = parts[i].request(requests.Request{Status: requests.Queued, CreatedAt: now, UpdatedAt: now})
		views[parts[i].Ref()] = requests.View{Request: requests.Request{Reason: reasons[i]}}
	}
	g := newInsertGroup(Insertion{Group: slices.Clone(parts)})
	g.queueInsert(b, true, &decidedGroup{began: now, at: now, views: views})
	queueFailures(b, all, reasons, OriginOf)
}

// finishPartsSQL counts the parts that are finished in their requests, and
// claims those without another undecided part for the caller. It locks the
// requests in the order of their names.
const finishPartsSQL = `
WITH parent AS MATERIALIZED (
    SELECT p.tenant_id, p.request_id, f.parts
    FROM reservation_requests p
    JOIN unnest($1::uuid[], $2::uuid[], $3::smallint[]) AS f (tenant_id, request_id, parts) USING (tenant_id, request_id)
    WHERE p.status = 'processing' AND p.open_parts > 0
    ORDER BY p.tenant_id, p.request_id
    FOR NO KEY UPDATE OF p
)
UPDATE reservation_requests r
SET open_parts = r.open_parts - parent.parts,
    claim_epoch = CASE WHEN r.open_parts = parent.parts THEN r.claim_epoch + 1 ELSE r.claim_epoch END,
    claim_expires_at = CASE WHEN r.open_parts = parent.parts THEN $4::timestamptz END,
    updated_at = $5
FROM parent
WHERE r.tenant_id = parent.tenant_id AND r.request_id = parent.request_id`

// queueFinishParts adds to b the statement that counts finished parts in their
// requests of several lines. A request whose last part is finished is to be
// completed: its claim lapses at once.
func queueFinishParts(b *pgx.Batch, finished []requests.Request, now time.Time) {
	var parents []Ref
	counts := make(map[Ref]int16)
	for i := range finished {
		if finished[i].ParentID == nil {
			continue
		}
		ref := Ref{finished[i].TenantID, *finished[i].ParentID}
		if counts[ref]++; counts[ref] == 1 {
			parents = append(parents, ref)
		}
	}
	if len(parents) == 0 {
		return
	}
	tenants, ids, parts := make([][16]byte, len(parents)), make([][16]byte, len(parents)), make([]int16, len(parents))
	for i, ref := range parents {
		tenants[i], ids[i], parts[i] = ref.TenantID, ref.RequestID, counts[ref]
	}
	b.Queue(finishPartsSQL, tenants, ids, parts, now, now)
}

const partsSQL = `
SELECT ` + columns + `
FROM unnest($1::uuid[], $2::uuid[]) AS parent (tenant_id, request_id)
JOIN reservation_requests r ON r.tenant_id = parent.tenant_id AND r.parent_id = parent.request_id
ORDER BY r.sequence`

// Part is a part of a request of several lines, with its reservation, nil if
// there is none.
type Part struct {
	requests.Request
	Reservation *reservations.Reservation
}

// Parts returns the parts of the requests, by the names of these.
func Parts(ctx context.Context, db Querier, of []Ref) (map[Ref][]Part, error) {
	tenants, ids := make([][16]byte, len(of)), make([][16]byte, len(of))
	for i, ref := range of {
		tenants[i], ids[i] = ref.TenantID, ref.RequestID
	}
	found, err := collect(ctx, db, partsSQL, tenants, ids)
	if err != nil {
		return nil, fmt.Errorf("read the parts of %d requests: %w", len(of), err)
	}
	var done []reservationrows.Ref
	for i := range found {
		if found[i].Status == requests.Done {
			done = append(done, reservationrows.Ref{TenantID: found[i].TenantID, ReservationID: found[i].RequestID})
		}
	}
	held := make(map[Ref]*reservations.Reservation, len(done))
	if len(done) > 0 {
		all, err := reservationrows.GetAll(ctx, db, done)
		if err != nil {
			return nil, err
		}
		for i := range all {
			held[Ref{all[i].TenantID, all[i].ReservationID}] = &all[i]
		}
	}
	parts := make(map[Ref][]Part, len(of))
	for _, r := range found {
		parent := Ref{r.TenantID, *r.ParentID}
		parts[parent] = append(parts[parent], Part{r, held[RefOf(&r)]})
	}
	return parts, nil
}

// addOutcomes adds the outcomes of their lines to the requests of several
// lines.
func addOutcomes(ctx context.Context, db Querier, views map[Ref]requests.View) error {
	var several []Ref
	for ref, v := range views {
		if v.Lines != nil {
			several = append(several, ref)
		}
	}
	if len(several) == 0 {
		return nil
	}
	parts, err := Parts(ctx, db, several)
	if err != nil {
		return err
	}
	for _, ref := range several {
		v := views[ref]
		v.Outcomes = outcomesOf(v.Lines, parts[ref], v.Status.Finished())
		views[ref] = v
	}
	return nil
}

func outcomesOf(lines *requests.Lines, parts []Part, finished bool) []requests.LineOutcome {
	outcomes := make([]requests.LineOutcome, len(lines.Items))
	for i, line := range lines.Items {
		outcomes[i].Line = line
	}
	for i := range parts {
		p := &parts[i]
		o := &outcomes[p.Line]
		if p.Reason != "" && (o.Reason == "" || o.KitID == "") { // a kit has that of its first part
			o.Reason = p.Reason
		}
		if r := p.Reservation; r != nil {
			o.Reservations = append(o.Reservations, *r)
			if o.KitID == "" && (r.Status == reservations.Held || r.Status == reservations.Committed) {
				o.Held += r.Quantity
			}
		}
	}
	for i := range outcomes {
		o := &outcomes[i]
		if o.KitID != "" {
			o.Held = kitsOf(&o.Line, o.Reservations, partsOf(parts, i))
		}
		switch served := isServed(&o.Line, partsOf(parts, i)); {
		case served:
			o.Reason = "" // an earlier variant of the choice came up short
		case len(partsOf(parts, i)) > 0 && o.Reason == "" && finished:
			o.Reason = requests.OutOfStock
		}
	}
	return outcomes
}

func partsOf(parts []Part, place int) (of []Part) {
	for _, p := range parts {
		if int(p.Line) == place {
			of = append(of, p)
		}
	}
	return of
}

// isServed reports whether parts of a line have all that it asks for: units, all
// parts of its kits, or a variant that is not tracked.
func isServed(line *requests.Line, parts []Part) bool {
	if line.KitID != "" {
		return hasAllParts(line, parts)
	}
	left := int64(line.Quantity)
	for i := range parts {
		switch p := &parts[i]; {
		case p.Status == requests.Done && p.Reservation == nil:
			return true
		case p.Status == requests.Done:
			left -= int64(p.Quantity)
		}
	}
	return left <= 0
}

// DispatchTx inserts parts of a request, which the caller has locked by its
// claim, as queued. open is how many undecided parts the request has already.
// While it has any, it is processing without a claim. Otherwise its claim lapses
// at once, so that it is completed. It returns the streams whose drains decide
// the parts.
//
// The transaction must be READ COMMITTED, else pg.ErrIsolation.
func DispatchTx(ctx context.Context, tx pgx.Tx, r *requests.Request, parts []Submission, open int) (inserted Inserted, err error) {
	if len(parts) > 0 {
		if inserted, err = (Insertion{Group: parts}).InsertTx(ctx, tx); err != nil {
			return inserted, err
		}
	}
	for _, result := range inserted.Results {
		if result.View.Status == requests.Queued {
			open++
		}
	}
	tag, err := tx.Exec(ctx, setOpenSQL, r.TenantID, r.RequestID, r.ClaimEpoch, open)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("count the parts of request %s: it is finished or claimed by another process", r.RequestID)
	}
	return inserted, err
}

const setOpenSQL = `
UPDATE reservation_requests
SET open_parts = $4::smallint, claim_expires_at = CASE WHEN $4 = 0 THEN clock_timestamp() END, updated_at = clock_timestamp()
WHERE tenant_id = $1 AND request_id = $2 AND status = 'processing' AND claim_epoch = $3`

const claimDecidedSQL = `
UPDATE reservation_requests r
SET attempts = least(r.attempts, 32766) + 1, claim_epoch = r.claim_epoch + 1, claim_expires_at = clock_timestamp() + $3, updated_at = clock_timestamp()
FROM unnest($1::uuid[], $2::uuid[]) AS parent (tenant_id, request_id)
WHERE r.tenant_id = parent.tenant_id AND r.request_id = parent.request_id
  AND r.status = 'processing' AND r.open_parts = 0 AND r.claim_expires_at <= clock_timestamp()
RETURNING ` + columns

// ClaimDecided claims those of the requests of several lines whose parts are all
// decided, and which no other process has claimed.
func ClaimDecided(ctx context.Context, db Querier, of []Ref, claimFor time.Duration) ([]requests.Request, error) {
	tenants, ids := make([][16]byte, len(of)), make([][16]byte, len(of))
	for i, ref := range of {
		tenants[i], ids[i] = ref.TenantID, ref.RequestID
	}
	return claim(ctx, db, claimDecidedSQL, tenants, ids, claimFor)
}
