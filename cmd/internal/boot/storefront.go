package boot

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/examples/storefront"
	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

// What the sample storefront sells. The hold is short, so that a visitor sees
// one expire.
const (
	demoVariant    = "demo-trail-runner"
	demoName       = "Ridgeline Trail Runner"
	demoPriceCents = 12900
	demoUnits      = 25
	demoKit        = "demo-trail-set" // the shoes with gaiters
	demoGaiters    = "demo-gaiters"
	demoKitCents   = 14900
	demoKits       = 10
	demoHold       = 2 * time.Minute
	demoExtend     = time.Minute
	demoClaim      = time.Minute // of units that are offered to the waiting list
	demoMaxPerCart = 4
	// demoCountdown is how long after the first visitor the sale starts.
	demoCountdown = 15 * time.Second
	demoSale      = 24 * time.Hour
)

// storefrontPath is where the all-in-one serves the sample storefront.
const storefrontPath = "/demo"

// storefrontKey is the key of the page's visitors. Every visitor can read it.
var storefrontKey = localKey{name: "holdfast run, storefront", file: "storefront-key", scopes: []tenants.Scope{tenants.ScopeCart}}

// demoShop is what the sample storefront sells. It opens with the first
// visitor: until then the all-in-one makes neither its key nor its variant.
type demoShop struct {
	local *Local
	api   *API
	dir   string

	mu       sync.Mutex
	settings *storefront.Settings // nil until it is open
}

// addStorefront serves the sample storefront on the API's port.
func (l *Local) addStorefront(api *API, dir string) error {
	shop := &demoShop{local: l, api: api, dir: dir}
	page, err := storefront.Handler(shop.open)
	if err != nil {
		return err
	}
	api.handler = withStorefront(api.bodiless(http.StripPrefix(storefrontPath, page)), api.handler)
	l.Storefront = api.URL() + storefrontPath + "/"
	return nil
}

// openTime bounds the opening, during which other visitors wait.
const openTime = 5 * time.Second

// open returns the settings of the page. For the first visitor it makes the
// page's key, and the variant unless that exists.
func (d *demoShop) open(ctx context.Context) (storefront.Settings, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settings != nil {
		return *d.settings, nil
	}
	// The next visitor needs it too, even if this one leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
	defer cancel()
	err := stockStorefront(ctx, d.api)
	key := ""
	if err == nil {
		key, err = d.local.makeKey(ctx, d.api.cells[0].calls, storefrontKey, d.dir)
	}
	if err != nil {
		d.local.program.Log.WarnContext(ctx, "the storefront is closed", "error", err)
		return storefront.Settings{}, err
	}
	starts := time.Now().UTC().Truncate(time.Second).Add(demoCountdown)
	d.settings = &storefront.Settings{
		Key: key, VariantID: demoVariant, Name: demoName, Price: storefront.Price{Amount: demoPriceCents, Currency: "EUR"},
		Kit: &storefront.Kit{
			KitID: demoKit, Name: "Trail Set", About: "The shoes with a pair of gaiters. You get both, or neither.",
			Price: storefront.Price{Amount: demoKitCents, Currency: "EUR"},
		},
		MaxPerCart: demoMaxPerCart, ExtendSeconds: int32(demoExtend / time.Second),
		SaleStartsAt: starts, SaleEndsAt: starts.Add(demoSale),
	}
	return *d.settings, nil
}

// stockStorefront makes the storefront's variant, pinned to the hot lane so
// that a request has a position in its queue, and its set. An existing variant
// keeps its stock. Two programs that start at the same time may both set the stock.
func stockStorefront(ctx context.Context, api *API) error {
	shop, err := api.cells[0].client.Tenant(ctx, devTenant)
	if err != nil {
		return err
	}
	hold := new(int32(demoHold / time.Second))
	for variant, patch := range map[string]holdfast.StockPatch{
		demoVariant: {
			Stock: new(int64(demoUnits)), HoldTTLSeconds: hold, MaxPerCart: new(int32(demoMaxPerCart)),
			Lane: new(lanes.WishHot), Sale: &holdfast.Sale{ClaimSeconds: new(int32(demoClaim / time.Second))},
		},
		demoGaiters: {Stock: new(int64(demoKits)), HoldTTLSeconds: hold},
	} {
		_, err := shop.Stock(ctx, variant)
		if errors.Is(err, holdfast.ErrUnknownVariant) {
			_, err = shop.SetStock(ctx, variant, patch, nil)
		}
		if err != nil {
			return err
		}
	}
	_, err = shop.SetKit(ctx, demoKit, []requests.KitPart{{VariantID: demoVariant, Quantity: 1}, {VariantID: demoGaiters, Quantity: 1}}, nil)
	return err
}

// storefrontLink is the storefront's entry on the page at the root.
var storefrontLink = httpapi.Link{Path: storefrontPath + "/", Title: "The sample shop", Text: "a product page over this API"}

// withStorefront serves the page under storefrontPath and the API at all other
// paths. It is no ServeMux, which would redirect paths of the API.
func withStorefront(page, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == storefrontPath:
			w.Header().Set("Location", storefrontPath+"/")
			writeText(w, http.StatusTemporaryRedirect, storefrontPath+"/\n")
		case strings.HasPrefix(r.URL.Path, storefrontPath+"/"):
			page.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}
