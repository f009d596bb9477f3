package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// Channel is the live channel that sends the state each second.
const Channel = "ops.overview"

// Bounds of the lists of an [Overview].
const (
	VariantsMax      = 20
	ExpiringMax      = 20
	FailedMax        = 20
	SubscriptionsMax = 50
	// errorMax bounds the error of a subscription, in bytes.
	errorMax = 300
)

// Config is what a Reader knows of the programs.
type Config struct {
	// Arrivals means that API processes measure how many requests arrive
	// (package signals). Without it, the rates of arrival are null.
	Arrivals bool
	// Cell is the name of the database's cell, and Cells are those of the process;
	// "" and nil if there is one.
	Cell  string
	Cells *Cells
}

// Reader reads the overview. It is safe for concurrent use.
type Reader struct {
	db       *pgxpool.Pool
	load     *queues.Load
	arrivals bool
	name     string
	cells    *Cells
}

// NewReader makes a Reader.
func NewReader(db *pgxpool.Pool, config Config) *Reader {
	o := &Reader{db: db, load: queues.NewLoad(db), arrivals: config.Arrivals, name: config.Cell, cells: config.Cells}
	if o.cells != nil {
		o.cells.join(o.name, o)
	}
	return o
}

// Overview is the state of the service as one tenant's operator sees it. Lanes,
// sweeps and subscriptions serve all tenants. The rest is the tenant's own. The
// tags describe its JSON in the API's document.
type Overview struct {
	At            time.Time              `json:"at"`
	Lanes         []OverviewLane         `json:"lanes" doc:"Over all tenants and processes."`
	Variants      []OverviewVariant      `json:"variants" doc:"Your busiest variants, 20 at most: up to 10 hot ones, those with the most arriving requests, those of your newest requests, and then the first by id."`
	Expiring      []OverviewHold         `json:"expiring" doc:"Your next 20 holds to fall due."`
	Failed        []OverviewFailed       `json:"failed" doc:"20 failed requests among your newest 5,000 requests: first those with internal_error and expired_in_queue, the newest first."`
	Sweeps        []OverviewSweep        `json:"sweeps" doc:"Maintenance, for all tenants."`
	Subscriptions []OverviewSubscription `json:"subscriptions" doc:"Readers of the audit log, for all tenants, 50 at most."`
	Cells         []OverviewCell         `json:"cells,omitempty" doc:"The cells of the service, in short; left out where there is one."`
}

// OverviewVariant is one of the tenant's variants that matter most now.
type OverviewVariant struct {
	VariantID     string     `json:"variant_id" minLength:"1" maxLength:"128" doc:"The variant's id."`
	Stock         int64      `json:"stock"`
	Reserved      int64      `json:"reserved"`
	Available     int64      `json:"available"`
	Tracked       bool       `json:"tracked"`
	Backorder     bool       `json:"backorder"`
	Lane          lanes.Lane `json:"lane" enum:"hot,normal" doc:"The lane of its next request."`
	Pinned        bool       `json:"pinned" doc:"A pinned variant stays hot."`
	RatePerSecond float64    `json:"rate_per_second" doc:"Requests that arrive, per second."`
	SoldOut       bool       `json:"sold_out" doc:"No unit is available, and it allows no backorder."`
	InLine        int64      `json:"in_line" doc:"Requests that wait in line for it; 1000 means that many or more."`
	SetAside      int64      `json:"set_aside" doc:"Units that are left in its allotments, which are in reserved too."`
}

// OverviewHold is a hold that falls due soon.
type OverviewHold struct {
	ReservationID uuid.UUID `json:"reservation_id" format:"uuid"`
	CartID        string    `json:"cart_id"`
	VariantID     string    `json:"variant_id" minLength:"1" maxLength:"128" doc:"The variant's id."`
	Quantity      int64     `json:"quantity"`
	ExpiresAt     time.Time `json:"expires_at"`
}

// OverviewSweep is a pass of maintenance, and for how long the oldest of its
// work is due. LastSuccessAt is nil: the passes keep no record in the database,
// only metrics.
type OverviewSweep struct {
	Name          string     `json:"name" doc:"sweep expires due holds. recover ends due checkouts."`
	LastSuccessAt *time.Time `json:"last_success_at" doc:"When it last succeeded; null where that is not known. The metrics count it."`
	LagSeconds    float64    `json:"lag_seconds" doc:"For how long the oldest of its work is due; 0 for none."`
}

// OverviewSubscription is a reader of the audit log.
type OverviewSubscription struct {
	Name       string  `json:"name"`
	Lag        int64   `json:"lag" doc:"An upper bound of the records that it has not received."`
	LagSeconds float64 `json:"lag_seconds" doc:"The age of the oldest of them."`
	Failures   int     `json:"failures" doc:"Failed deliveries since the last successful one."`
	LastError  *string `json:"last_error" doc:"The error of the last failed one; null without failures."`
}

// Read returns the present Overview for the tenant, as JSON. Its lists are not
// read at the same instant.
func (o *Reader) Read(ctx context.Context, tenantID uuid.UUID) (json.RawMessage, error) {
	state, err := o.state(ctx, tenantID)
	if err != nil {
		return nil, fmt.Errorf("read the overview: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // ids as the other bodies have them; the page shows them as text
	if err := enc.Encode(state); err != nil {
		return nil, fmt.Errorf("encode the overview: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (o *Reader) state(ctx context.Context, tenantID uuid.UUID) (s Overview, err error) {
	now, err := pg.ReadClock(ctx, o.db)
	if err != nil {
		return s, err
	}
	s.At = now.UTC()
	if s.Lanes, err = o.lanes(ctx); err != nil {
		return s, err
	}
	if s.Variants, err = o.variants(ctx, tenantID); err != nil {
		return s, err
	}
	if s.Expiring, err = o.expiring(ctx, tenantID); err != nil {
		return s, err
	}
	if s.Failed, err = o.failed(ctx, tenantID, FailedMax); err != nil {
		return s, err
	}
	if s.Sweeps, err = o.sweeps(ctx); err != nil {
		return s, err
	}
	if s.Subscriptions, err = o.subscriptions(ctx); err != nil {
		return s, err
	}
	if o.cells != nil {
		s.Cells = o.cells.read(ctx, o.name)
	}
	return s, nil
}

// variants returns the busiest variants. A tenant with few of them also sees
// the first ones by id.
func (o *Reader) variants(ctx context.Context, tenantID uuid.UUID) ([]OverviewVariant, error) {
	busiest, err := Busiest(ctx, o.db, tenantID, VariantsMax)
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, VariantsMax)
	for i := range busiest {
		ids = append(ids, busiest[i].VariantID)
	}
	stocks, err := inventory.GetAll(ctx, o.db, tenantID, ids)
	if err != nil {
		return nil, err
	}
	if len(stocks) < VariantsMax {
		first, err := inventory.List(ctx, o.db, tenantID, VariantsMax, "")
		if err != nil {
			return nil, err
		}
		for _, stock := range first.Items {
			if !slices.Contains(ids, stock.VariantID) {
				stocks[stock.VariantID] = stock
				ids = append(ids, stock.VariantID)
				busiest = append(busiest, Busy{VariantID: stock.VariantID})
			}
		}
	}
	hotOnes, err := lanes.Lookup(ctx, o.db, tenantID, ids)
	if err != nil {
		return nil, err
	}
	kept, err := inventory.GetKeptBack(ctx, o.db, tenantID, ids)
	if err != nil {
		return nil, err
	}
	variants := make([]OverviewVariant, 0, VariantsMax)
	for _, b := range busiest {
		stock, exists := stocks[b.VariantID]
		if exists && len(variants) < VariantsMax {
			v := variantOf(stock, hotOnes[b.VariantID], b.Rate)
			v.InLine, v.SetAside = kept[b.VariantID].InLine, kept[b.VariantID].SetAside
			variants = append(variants, v)
		}
	}
	return variants, nil
}

func variantOf(s inventory.Stock, v lanes.Variant, rate float64) OverviewVariant {
	return OverviewVariant{
		VariantID: s.VariantID, Stock: s.Stock, Reserved: s.Reserved, Available: s.Available, Tracked: s.Tracked, Backorder: s.Backorder,
		Lane: v.Lane(), Pinned: v.Pinned, RatePerSecond: rounded(rate),
		SoldOut: s.Tracked && (!s.Backorder || s.PreorderMax != nil) && s.Available <= 0,
	}
}

func (o *Reader) expiring(ctx context.Context, tenantID uuid.UUID) ([]OverviewHold, error) {
	next, err := reservationrows.NextDue(ctx, o.db, tenantID, inventory.Kind, ExpiringMax)
	if err != nil {
		return nil, err
	}
	expiring := make([]OverviewHold, len(next))
	for i := range next {
		r := &next[i]
		expiring[i] = OverviewHold{r.ReservationID, r.HolderID, r.ResourceKey, r.Quantity, r.ExpiresAt.UTC()}
	}
	return expiring, nil
}

// sweeps returns the passes whose delay can be read from the database.
func (o *Reader) sweeps(ctx context.Context) ([]OverviewSweep, error) {
	holds, err := inventory.OldestDue(ctx, o.db)
	if err != nil {
		return nil, err
	}
	paying, err := checkouts.OldestDue(ctx, o.db)
	if err != nil {
		return nil, err
	}
	return []OverviewSweep{{Name: "sweep", LagSeconds: rounded(holds.Seconds())}, {Name: "recover", LagSeconds: rounded(paying.Seconds())}}, nil
}

func (o *Reader) subscriptions(ctx context.Context) ([]OverviewSubscription, error) {
	states, err := audit.Subscriptions(ctx, o.db)
	if err != nil {
		return nil, err
	}
	states = states[:min(len(states), SubscriptionsMax)]
	subscriptions := make([]OverviewSubscription, len(states))
	for i := range states {
		s := &states[i]
		subscriptions[i] = OverviewSubscription{Name: s.Name, Lag: s.Lag, LagSeconds: rounded(s.LagSeconds), Failures: s.Failures}
		if s.Failures > 0 && s.LastError != "" {
			text := strings.ToValidUTF8(s.LastError[:min(len(s.LastError), errorMax)], "")
			subscriptions[i].LastError = &text
		}
	}
	return subscriptions, nil
}

// rounded returns a number of seconds or a rate with two digits after the
// point.
func rounded(x float64) float64 { return math.Round(x*100) / 100 }
