package dashboard

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
	"github.com/holdfast/holdfast/checkouts"
	"github.com/holdfast/holdfast/internal/pgclock"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// Channel is the live channel that sends the state each second.
const Channel = "ops.overview"

// Bounds of the lists of a [State].
const (
	VariantsMax      = 20
	ExpiringMax      = 20
	FailedMax        = 20
	SubscriptionsMax = 50
	// errorMax bounds the error of a subscription, in bytes.
	errorMax = 300
)

// OverviewConfig is what an Overview knows of the programs.
type OverviewConfig struct {
	// DepthMax is the intakes' DepthMax; 0 is its default.
	DepthMax int
	// Arrivals means that API processes measure how many requests arrive
	// (hot.Signals). Without it, the rates of arrival are null.
	Arrivals bool
}

// Overview reads the state that the dashboard shows. It is safe for concurrent
// use.
type Overview struct {
	db       *pgxpool.Pool
	load     *queues.Load
	arrivals bool
}

// NewOverview makes an Overview.
func NewOverview(db *pgxpool.Pool, config OverviewConfig) *Overview {
	return &Overview{db: db, load: queues.NewLoad(db, config.DepthMax), arrivals: config.Arrivals}
}

// State is the state of the service as one tenant's operator sees it. Lanes,
// sweeps and subscriptions serve all tenants. The rest is the tenant's own.
type State struct {
	At            time.Time      `json:"at"`
	Lanes         []Lane         `json:"lanes"`
	Variants      []Variant      `json:"variants"`
	Expiring      []Expiring     `json:"expiring"`
	Failed        []Failed       `json:"failed"`
	Sweeps        []Sweep        `json:"sweeps"`
	Subscriptions []Subscription `json:"subscriptions"`
}

// Variant is one of the tenant's variants that matter most now.
type Variant struct {
	VariantID     string     `json:"variant_id"`
	Stock         int64      `json:"stock"`
	Reserved      int64      `json:"reserved"`
	Available     int64      `json:"available"`
	Tracked       bool       `json:"tracked"`
	Backorder     bool       `json:"backorder"`
	Lane          lanes.Lane `json:"lane"`
	Pinned        bool       `json:"pinned"`
	RatePerSecond float64    `json:"rate_per_second"`
	SoldOut       bool       `json:"sold_out"`
}

// Expiring is a hold that falls due soon.
type Expiring struct {
	ReservationID uuid.UUID `json:"reservation_id"`
	CartID        string    `json:"cart_id"`
	VariantID     string    `json:"variant_id"`
	Quantity      int64     `json:"quantity"`
	ExpiresAt     time.Time `json:"expires_at"`
}

// Failed is a failed request.
type Failed struct {
	RequestID uuid.UUID     `json:"request_id"`
	Kind      requests.Kind `json:"kind"`
	CartID    string        `json:"cart_id"`
	VariantID string        `json:"variant_id"`
	Quantity  int32         `json:"quantity"`
	Reason    string        `json:"reason"`
	FailedAt  time.Time     `json:"failed_at"`
	RetriedBy *uuid.UUID    `json:"retried_by"`
}

// Sweep is a pass of maintenance, and for how long the oldest of its work is
// due. LastSuccessAt is nil: the passes keep no record in the database, only
// metrics.
type Sweep struct {
	Name          string     `json:"name"`
	LastSuccessAt *time.Time `json:"last_success_at"`
	LagSeconds    float64    `json:"lag_seconds"`
}

// Subscription is a reader of the audit log.
type Subscription struct {
	Name       string  `json:"name"`
	Lag        int64   `json:"lag"`
	LagSeconds float64 `json:"lag_seconds"`
	Failures   int     `json:"failures"`
	LastError  *string `json:"last_error"`
}

// Read returns the present State for the tenant, as JSON. Its lists are not
// read at the same instant.
func (o *Overview) Read(ctx context.Context, tenantID uuid.UUID) (json.RawMessage, error) {
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

func (o *Overview) state(ctx context.Context, tenantID uuid.UUID) (s State, err error) {
	now, err := pgclock.Read(ctx, o.db)
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
	if s.Failed, err = o.failed(ctx, tenantID); err != nil {
		return s, err
	}
	if s.Sweeps, err = o.sweeps(ctx); err != nil {
		return s, err
	}
	s.Subscriptions, err = o.subscriptions(ctx)
	return s, err
}

// variants returns the busiest variants. A tenant with few of them also sees
// the first ones by id.
func (o *Overview) variants(ctx context.Context, tenantID uuid.UUID) ([]Variant, error) {
	busiest, err := hot.Busiest(ctx, o.db, tenantID, VariantsMax)
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
				busiest = append(busiest, hot.Busy{VariantID: stock.VariantID})
			}
		}
	}
	hotOnes, err := lanes.Lookup(ctx, o.db, tenantID, ids)
	if err != nil {
		return nil, err
	}
	variants := make([]Variant, 0, VariantsMax)
	for _, b := range busiest {
		stock, exists := stocks[b.VariantID]
		if exists && len(variants) < VariantsMax {
			variants = append(variants, variantOf(stock, hotOnes[b.VariantID], b.Rate))
		}
	}
	return variants, nil
}

func variantOf(s inventory.Stock, v lanes.Variant, rate float64) Variant {
	return Variant{
		VariantID: s.VariantID, Stock: s.Stock, Reserved: s.Reserved, Available: s.Available, Tracked: s.Tracked, Backorder: s.Backorder,
		Lane: v.Lane(), Pinned: v.Pinned, RatePerSecond: rounded(rate),
		SoldOut: s.Tracked && !s.Backorder && s.Available <= 0,
	}
}

func (o *Overview) expiring(ctx context.Context, tenantID uuid.UUID) ([]Expiring, error) {
	next, err := inventory.NextDue(ctx, o.db, tenantID, ExpiringMax)
	if err != nil {
		return nil, err
	}
	expiring := make([]Expiring, len(next))
	for i := range next {
		r := &next[i]
		expiring[i] = Expiring{r.ReservationID, r.HolderID, r.ResourceKey, r.Quantity, r.ExpiresAt.UTC()}
	}
	return expiring, nil
}

func (o *Overview) failed(ctx context.Context, tenantID uuid.UUID) ([]Failed, error) {
	latest, err := requests.LatestFailed(ctx, o.db, tenantID, FailedMax)
	if err != nil {
		return nil, err
	}
	failed := make([]Failed, len(latest))
	for i := range latest {
		r := &latest[i]
		failed[i] = Failed{r.RequestID, r.Kind, r.CartID, r.VariantID, r.Quantity, string(r.Reason), r.UpdatedAt.UTC(), r.RetriedBy}
	}
	return failed, nil
}

// sweeps returns the passes whose delay can be read from the database.
func (o *Overview) sweeps(ctx context.Context) ([]Sweep, error) {
	holds, err := inventory.OldestDue(ctx, o.db)
	if err != nil {
		return nil, err
	}
	paying, err := checkouts.OldestDue(ctx, o.db)
	if err != nil {
		return nil, err
	}
	return []Sweep{{Name: "sweep", LagSeconds: rounded(holds.Seconds())}, {Name: "recover", LagSeconds: rounded(paying.Seconds())}}, nil
}

func (o *Overview) subscriptions(ctx context.Context) ([]Subscription, error) {
	states, err := audit.Subscriptions(ctx, o.db)
	if err != nil {
		return nil, err
	}
	states = states[:min(len(states), SubscriptionsMax)]
	subscriptions := make([]Subscription, len(states))
	for i := range states {
		s := &states[i]
		subscriptions[i] = Subscription{Name: s.Name, Lag: s.Lag, LagSeconds: rounded(s.LagSeconds), Failures: s.Failures}
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
