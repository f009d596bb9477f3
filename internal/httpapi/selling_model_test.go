package httpapi

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSellingModel makes random calls: lines, choices, kits, limits, groups,
// preorders, waiting lists, allotments, parts, returns and transfers of carts. After
// each it compares the outcomes, the reservations and the stocks with those of a model in
// memory.
func TestSellingModel(t *testing.T) {
	t.Parallel()
	seeds := 5
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		seeds = 100
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, uint64(seed))
			for _, variant := range []string{"free", "cart"} {
				m.allotQuantity(variant, 4)
			}
			for range 80 {
				m.step()
				if t.Failed() {
					t.Fatalf("the calls were\n%s", strings.Join(m.calls, "\n"))
				}
			}
			m.sound()
		})
	}
}

// unitsOfCart are units of a variant that a cart holds or has bought.
type unitsOfCart struct {
	cart, customer, variant, kit, allotment string
	quantity, returned                      int64
	committed                               bool
}

// inLine is a request that waits for units.
type inLine struct {
	unitsOfCart
	request string
}

// owner is whose limits count the units.
func (u *unitsOfCart) owner() string {
	if u.customer != "" {
		return u.customer
	}
	return u.cart
}

type modelVariant struct {
	stock, preorders, maxPerCart, maxPerCustomer, least, step int64 // 0: no rule
	group                                                     string
	allotment                                                 *modelAllotment // named fans
}

type modelAllotment struct{ quantity, left int64 }

type model struct {
	*shop
	random   *rand.Rand
	variants map[string]*modelVariant
	groups   map[string]int64
	kits     map[string][]KitPart
	units    []unitsOfCart
	line     []inLine // in the order in which they came
	calls    []string
	offering bool
	offered  map[string]string // the outcomes of requests that were in line
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		shop: newShop(t), random: rand.New(rand.NewPCG(seed, 27)), groups: map[string]int64{"shirts": 6}, offered: map[string]string{},
		variants: map[string]*modelVariant{
			"free": {stock: 12}, "cart": {stock: 12, maxPerCart: 4}, "customer": {stock: 15, maxPerCustomer: 3}, "pairs": {stock: 15, least: 2, step: 2},
			"preorder": {stock: 3, preorders: 4}, "s": {stock: 12, group: "shirts"}, "m": {stock: 12, group: "shirts", maxPerCustomer: 4},
		},
		kits: map[string][]KitPart{"set": {{"free", 1}, {"s", 2}}, "pair": {{"cart", 1}, {"customer", 1}, {"free", 1}}},
	}
	for name, v := range m.variants {
		rules := fmt.Sprintf(`{"stock":%d,"max_per_cart":%d,"max_per_customer":%d,"quantity_min":%d,"quantity_step":%d,"group":%q`,
			v.stock, v.maxPerCart, v.maxPerCustomer, v.least, v.step, v.group)
		if v.preorders > 0 {
			rules += fmt.Sprintf(`,"backorder":true,"preorder_max":%d`, v.preorders)
		}
		m.stock(name, rules+"}")
	}
	for group, most := range m.groups {
		m.call(200, "PUT", "/v1/groups/"+group, fmt.Sprintf(`{"max_per_customer":%d}`, most))
	}
	for kit, parts := range m.kits {
		var list []string
		for _, p := range parts {
			list = append(list, fmt.Sprintf(`{"variant_id":%q,"quantity":%d}`, p.VariantID, p.Quantity))
		}
		m.call(200, "PUT", "/v1/kits/"+kit, `{"parts":[`+strings.Join(list, ",")+`]}`)
	}
	return m
}

func (m *model) pick(names ...string) string { return names[m.random.IntN(len(names))] }

func (m *model) variant() string { return m.pick(slices.Sorted(maps.Keys(m.variants))...) }

func (m *model) cart() string { return fmt.Sprint("cart-", m.random.IntN(4)) }

// sum adds up the units that match.
func (m *model) sum(matches func(u *unitsOfCart) bool) (sum int64) {
	for i := range m.units {
		if u := &m.units[i]; matches(u) {
			sum += u.quantity - u.returned
		}
	}
	return sum
}

func (m *model) free(variant string) int64 {
	v := m.variants[variant]
	return v.stock + v.preorders - m.reserved(variant)
}

func (m *model) reserved(variant string) int64 {
	reserved := m.sum(func(u *unitsOfCart) bool { return u.variant == variant && !u.committed })
	if a := m.variants[variant].allotment; a != nil {
		reserved += a.left
	}
	return reserved
}

// release gives the units that match back.
func (m *model) release(matches func(u unitsOfCart) bool) {
	m.units = slices.DeleteFunc(m.units, func(u unitsOfCart) bool {
		if !matches(u) {
			return false
		}
		if a := m.variants[u.variant].allotment; a != nil && u.allotment == "fans" {
			a.left += u.quantity
		}
		return true
	})
}

// freeTo is what is free to a request that is not in line.
func (m *model) freeTo(u *unitsOfCart) int64 {
	if u.allotment != "" {
		return m.variants[u.variant].allotment.left
	}
	waits := func(w inLine) bool { return w.variant == u.variant }
	if !m.offering && slices.ContainsFunc(m.line, waits) {
		return min(m.free(u.variant), 0)
	}
	return m.free(u.variant)
}

// offer offers what is free to those in line.
func (m *model) offer() {
	m.offering = true
	for i := 0; i < len(m.line); {
		w := m.line[i]
		if m.free(w.variant) < w.quantity {
			i++
			continue
		}
		m.line = slices.Delete(m.line, i, i+1)
		m.offered[w.request] = "done"
		if reason := m.add(w.unitsOfCart); reason != "" {
			m.offered[w.request] = reason
		}
		i = 0
	}
	m.offering = false
}

func (m *model) inCart(cart, variant string) int64 {
	return m.sum(func(u *unitsOfCart) bool { return u.cart == cart && u.variant == variant && !u.committed })
}

// mayHave reports whether the customer may have so many more units.
func (m *model) mayHave(customer, variant string, more int64) bool {
	v := m.variants[variant]
	own := func(u *unitsOfCart) bool { return u.owner() == customer }
	if v.maxPerCustomer > 0 && more+m.sum(func(u *unitsOfCart) bool { return own(u) && u.variant == variant }) > v.maxPerCustomer {
		return false
	}
	return v.group == "" || more+m.sum(func(u *unitsOfCart) bool { return own(u) && m.variants[u.variant].group == v.group }) <= m.groups[v.group]
}

// add adds units to a cart, or returns why not.
func (m *model) add(u unitsOfCart) string {
	v := m.variants[u.variant]
	if v == nil {
		return "unknown_variant"
	}
	total := u.quantity + m.inCart(u.cart, u.variant)
	switch {
	case u.allotment != "" && v.allotment == nil:
		return "unknown_allotment"
	case total < v.least, v.step > 0 && total%v.step != 0:
		return "quantity_not_allowed"
	case !m.mayHave(u.owner(), u.variant, u.quantity), v.maxPerCart > 0 && total > v.maxPerCart:
		return "limit_exceeded"
	case m.freeTo(&u) < u.quantity:
		return "out_of_stock"
	}
	if u.allotment != "" {
		v.allotment.left -= u.quantity
	}
	m.units = append(m.units, u)
	return ""
}

// set replaces what a cart holds of a variant, or returns why not.
func (m *model) set(u unitsOfCart) string {
	v, ofCustomer := m.variants[u.variant], int64(0)
	isOld := func(o unitsOfCart) bool {
		return o.cart == u.cart && o.variant == u.variant && o.allotment == u.allotment && !o.committed
	}
	own := m.sum(func(o *unitsOfCart) bool { return isOld(*o) })
	total := u.quantity + m.inCart(u.cart, u.variant) - own
	if u.allotment != "" && v.allotment == nil {
		return "unknown_allotment"
	}
	for _, o := range m.units {
		switch {
		case isOld(o) && o.kit != "":
			return "part_of_kit"
		case isOld(o) && o.owner() == u.owner():
			ofCustomer += o.quantity
		}
	}
	switch {
	case total < v.least, v.step > 0 && total%v.step != 0:
		return "quantity_not_allowed"
	case u.quantity > ofCustomer && !m.mayHave(u.owner(), u.variant, u.quantity-ofCustomer), v.maxPerCart > 0 && total > v.maxPerCart:
		return "limit_exceeded"
	case u.quantity > own && m.freeTo(&u)+own < u.quantity:
		return "out_of_stock"
	}
	m.release(isOld)
	if u.allotment != "" {
		v.allotment.left -= u.quantity
	}
	m.units = append(m.units, u)
	return ""
}

// modelLine is a line: of one or several variants, or of a kit.
type modelLine struct {
	variants []string
	kit      string
	split    bool
	quantity int64
	of       string // an allotment
}

func (l *modelLine) body() string {
	switch {
	case l.kit != "":
		return fmt.Sprintf(`{"kit_id":%q,"quantity":%d}`, l.kit, l.quantity)
	case l.of != "":
		return fmt.Sprintf(`{"variant_id":%q,"quantity":%d,"allotment":%q}`, l.variants[0], l.quantity, l.of)
	case len(l.variants) == 1:
		return fmt.Sprintf(`{"variant_id":%q,"quantity":%d}`, l.variants[0], l.quantity)
	}
	choice := `["` + strings.Join(l.variants, `","`) + `"]`
	return fmt.Sprintf(`{"one_of":%s,"split":%t,"quantity":%d}`, choice, l.split, l.quantity)
}

// serve holds what a line gets, and returns how much that is, and why it is not
// all.
func (m *model) serve(u unitsOfCart, l *modelLine, partial bool) (held int64, reason string) {
	if l.kit != "" {
		return m.serveKit(u, l, partial)
	}
	reason = "unknown_variant"
	for i, variant := range l.variants {
		u.variant, u.quantity, u.allotment = variant, l.quantity-held, l.of
		why := m.add(u)
		if why == "out_of_stock" && (l.split || partial && i == len(l.variants)-1) {
			if u.quantity = min(u.quantity, m.freeTo(&u)); u.quantity > 0 {
				why = m.add(u)
			}
		}
		switch {
		case why == "":
			if held += u.quantity; held == l.quantity {
				return held, ""
			}
			reason = "out_of_stock"
		case reason == "unknown_variant":
			reason = why
		}
	}
	return held, reason
}

func (m *model) serveKit(u unitsOfCart, l *modelLine, partial bool) (held int64, reason string) {
	before := slices.Clone(m.units) // kits take from no allotment
	u.kit = l.kit
	try := func(kits int64) (reason string) {
		for _, p := range m.kits[l.kit] {
			u.variant, u.quantity = string(p.VariantID), int64(p.Quantity)*kits
			if why := m.add(u); why != "" && reason == "" {
				reason = why
			}
		}
		if len(m.kits[l.kit]) == 0 {
			return "unknown_kit"
		}
		return reason
	}
	reason = try(l.quantity)
	if reason == "" {
		return l.quantity, ""
	}
	m.units = slices.Clone(before)
	if !partial || reason != "out_of_stock" {
		return 0, reason
	}
	most := l.quantity
	for _, p := range m.kits[l.kit] {
		u.variant = string(p.VariantID)
		most = min(most, max(m.freeTo(&u), 0)/int64(p.Quantity))
	}
	if most > 0 && try(most) == "" {
		return most, reason
	}
	m.units = before
	return 0, reason
}

// lines makes a request of several lines, and compares what each got.
func (m *model) lines(cart, customer string) {
	partial := m.random.IntN(3) == 0
	var lines []modelLine
	var bodies []string
	taken := map[string]bool{}
	for range 1 + m.random.IntN(4) {
		l := modelLine{quantity: 1 + m.random.Int64N(4)}
		switch m.random.IntN(5) {
		case 4:
			l.variants, l.of = []string{m.pick("free", "cart")}, "fans"
		case 0:
			l.variants, l.split = []string{m.variant(), "gone", m.variant()}, m.random.IntN(2) == 0
			if l.variants[0] == l.variants[2] {
				continue
			}
		case 1:
			l.kit = m.pick("set", "pair", "gone")
		default:
			l.variants = []string{m.variant()}
		}
		name := l.of + "/" + l.kit + "/" + strings.Join(l.variants, "/")
		if taken[name] {
			continue
		}
		taken[name] = true
		lines, bodies = append(lines, l), append(bodies, l.body())
	}
	if len(lines) == 0 {
		return
	}
	path := "/v1/carts/" + cart + "/items"
	body := fmt.Sprintf(`{"partial":%t,"lines":[%s]}`, partial, strings.Join(bodies, ","))
	request := m.do(202, "POST", path, body, customer).text(m.t, "request_id")
	m.decide()

	before, left, status, some := slices.Clone(m.units), m.left(), "done", false
	got := make([]int64, len(lines))
	reasons := make([]string, len(lines))
	for i := range lines {
		got[i], reasons[i] = m.serve(unitsOfCart{cart: cart, customer: customer}, &lines[i], partial)
		some = some || got[i] > 0
		if reasons[i] != "" && !partial {
			status = "failed"
		}
	}
	if partial && !some {
		status = "failed"
	}
	want := status
	for i := range lines {
		if status == "failed" {
			got[i] = 0
		}
		want += fmt.Sprintf(" %d/%d%s", got[i], lines[i].quantity, reasons[i])
	}
	if status == "failed" {
		m.units = before
		m.setLeft(left)
	}
	if told := m.shop.lines(request); told != want {
		m.t.Errorf("%s %s: %s, want %s", path, body, told, want)
	}
}

// left is what is left of the allotments, by their variants.
func (m *model) left() map[string]int64 {
	left := map[string]int64{}
	for name, v := range m.variants {
		if v.allotment != nil {
			left[name] = v.allotment.left
		}
	}
	return left
}

func (m *model) setLeft(left map[string]int64) {
	for name, n := range left {
		m.variants[name].allotment.left = n
	}
}

// allot sets units aside, or ends an allotment.
func (m *model) allot(variant string) {
	m.t.Helper()
	path, v := "/v1/stocks/"+variant+"/allotments/fans", m.variants[variant]
	if m.random.IntN(5) == 0 {
		status := 404
		if v.allotment != nil {
			status, v.allotment = 200, nil
		}
		m.do(status, "DELETE", path, "", "")
		return
	}
	m.allotQuantity(variant, 1+m.random.Int64N(8))
}

func (m *model) allotQuantity(variant string, quantity int64) {
	m.t.Helper()
	path, v := "/v1/stocks/"+variant+"/allotments/fans", m.variants[variant]
	taken, more, status := int64(0), quantity, 200
	if v.allotment != nil {
		taken, more = v.allotment.quantity-v.allotment.left, quantity-v.allotment.quantity
	}
	switch {
	case quantity < taken, more > 0 && more > m.free(variant):
		status = 409
	case v.allotment == nil:
		for i := range m.units { // those of an earlier allotment do not return to this one
			if u := &m.units[i]; u.variant == variant && u.allotment == "fans" && !u.committed {
				u.allotment = "fans\x1f"
			}
		}
		v.allotment = &modelAllotment{quantity, quantity}
	default:
		*v.allotment = modelAllotment{quantity, quantity - taken}
	}
	m.do(status, "PUT", path, fmt.Sprintf(`{"quantity":%d}`, quantity), "")
}

// do makes a call for a customer, or for none.
func (m *model) do(status int, method, path, body, customer string) reply {
	m.t.Helper()
	m.calls = append(m.calls, strings.Join([]string{method, path, body, customer}, " "))
	if customer == "" {
		return m.call(status, method, path, body)
	}
	return m.call(status, method, path, body, customerHeader, customer)
}

// request makes a request for one variant, and compares its outcome.
func (m *model) request(method, path, body, customer, reason string) {
	m.t.Helper()
	id := m.do(202, method, path, body, customer).text(m.t, "request_id")
	m.decide()
	if reason == "" {
		reason = "done"
	}
	if got := m.ended(id); got != reason {
		m.t.Errorf("%s %s %s: %s, want %s", method, path, body, got, reason)
	}
}

// someUnits returns a random row, and its place in the model.
func (m *model) someUnits(status string) (id string, place int) {
	var u unitsOfCart
	row := m.db.QueryRow(m.t.Context(), `
		SELECT reservation_id::text, holder_id, coalesce(customer_id, ''), resource_key, coalesce(kit_id, ''), coalesce(allotment_id, ''), quantity, coalesce(returned_quantity, 0), status = 'committed'
		FROM reservations WHERE status = $1 AND holder_id <> '/' ORDER BY reservation_id OFFSET $2 LIMIT 1`, status, m.random.IntN(6))
	if row.Scan(&id, &u.cart, &u.customer, &u.variant, &u.kit, &u.allotment, &u.quantity, &u.returned, &u.committed) != nil {
		return "", -1
	}
	return id, slices.Index(m.units, u)
}

// step makes a random call, and compares the rows with the model.
func (m *model) step() {
	m.t.Helper()
	cart, customer := m.cart(), m.pick("", "", "ann", "bob")
	switch u := (unitsOfCart{cart: cart, customer: customer, variant: m.variant(), quantity: 1 + m.random.Int64N(4)}); m.random.IntN(18) {
	case 0, 1, 14, 15:
		body := fmt.Sprintf(`{"variant_id":%q,"quantity":%d}`, u.variant, u.quantity)
		if m.random.IntN(2) == 0 {
			u.variant, u.allotment = m.pick("free", "cart", "cart", "m"), "fans"
			body = fmt.Sprintf(`{"variant_id":%q,"quantity":%d,"allotment":"fans"}`, u.variant, u.quantity)
		}
		m.request("POST", "/v1/carts/"+cart+"/items", body, customer, m.add(u))
	case 16, 17:
		m.allot(m.pick("free", "cart"))
	case 2:
		body := fmt.Sprintf(`{"quantity":%d}`, u.quantity)
		if m.random.IntN(2) == 0 {
			u.variant, u.allotment = m.pick("free", "cart"), "fans"
			body = fmt.Sprintf(`{"quantity":%d,"allotment":"fans"}`, u.quantity)
		}
		m.request("PATCH", "/v1/carts/"+cart+"/items/"+u.variant, body, customer, m.set(u))
	case 3:
		m.checkout(cart)
	case 4:
		m.remove(cart, m.pick(u.variant, "free", "cart"))
	case 5:
		kit := m.pick("set", "pair")
		m.do(200, "DELETE", "/v1/carts/"+cart+"/kits/"+kit, "", "")
		m.release(func(u unitsOfCart) bool { return u.cart == cart && u.kit == kit && !u.committed })
	case 6:
		m.commitPart()
	case 7:
		m.returnPart()
	case 8:
		m.transfer(cart, m.cart(), customer)
	case 9, 10:
		m.wait(u)
	default:
		m.lines(cart, customer)
	}
	m.decide()
	m.offer()
	m.compare()
}

// wait makes a request that waits if it comes up short.
func (m *model) wait(u unitsOfCart) {
	m.t.Helper()
	body := fmt.Sprintf(`{"variant_id":%q,"quantity":%d,"wait_for_stock":true}`, u.variant, u.quantity)
	id := m.do(202, "POST", "/v1/carts/"+u.cart+"/items", body, u.customer).text(m.t, "request_id")
	m.decide()
	want := m.add(u)
	switch want {
	case "":
		want = "done"
	case "out_of_stock":
		m.line, want = append(m.line, inLine{u, id}), "waiting"
		m.offer() // the same tick
		if offered := m.offered[id]; offered != "" {
			want = offered
		}
	}
	if got := m.ended(id); got != want {
		m.t.Errorf("%s: %s, want %s", body, got, want)
	}
}

func (m *model) checkout(cart string) {
	m.t.Helper()
	status := 409
	for i := range m.units {
		if u := &m.units[i]; u.cart == cart && !u.committed {
			status, u.committed = 200, true
			m.variants[u.variant].stock -= u.quantity
		}
	}
	m.do(status, "POST", "/v1/carts/"+cart+"/checkout", "", "")
}

func (m *model) remove(cart, variant string) {
	m.t.Helper()
	ofCart := func(u unitsOfCart) bool { return u.cart == cart && u.variant == variant && !u.committed }
	if slices.ContainsFunc(m.units, func(u unitsOfCart) bool { return ofCart(u) && u.kit != "" }) {
		m.do(409, "DELETE", "/v1/carts/"+cart+"/items/"+variant, "", "")
		return
	}
	m.do(200, "DELETE", "/v1/carts/"+cart+"/items/"+variant, "", "")
	m.release(ofCart)
	m.line = slices.DeleteFunc(m.line, func(w inLine) bool { return w.cart == cart && w.variant == variant })
}

func (m *model) commitPart() {
	m.t.Helper()
	id, place := m.someUnits("held")
	if id == "" {
		return
	}
	u := &m.units[place]
	n := 1 + m.random.Int64N(u.quantity)
	body := fmt.Sprintf(`{"quantity":%d}`, n)
	if u.kit != "" && n < u.quantity {
		m.do(409, "POST", "/v1/reservations/"+id+"/commit", body, "")
		return
	}
	m.do(200, "POST", "/v1/reservations/"+id+"/commit", body, "")
	part := *u
	part.quantity, part.committed = n, true
	m.variants[u.variant].stock -= n
	if u.quantity -= n; u.quantity == 0 {
		m.units = slices.Delete(m.units, place, place+1)
	}
	m.units = append(m.units, part)
}

func (m *model) returnPart() {
	m.t.Helper()
	id, place := m.someUnits("committed")
	if id == "" {
		return
	}
	u := &m.units[place]
	n, status := 1+m.random.Int64N(u.quantity), 200
	if u.returned+n > u.quantity {
		status = 409
	} else {
		u.returned += n
		m.variants[u.variant].stock += n
	}
	m.do(status, "POST", "/v1/reservations/"+id+"/return", fmt.Sprintf(`{"quantity":%d}`, n), "")
}

func (m *model) transfer(from, to, customer string) {
	m.t.Helper()
	path, body := "/v1/carts/"+from+"/transfer", fmt.Sprintf(`{"to":%q}`, to)
	if from == to {
		m.do(422, "POST", path, body, customer)
		return
	}
	before := slices.Clone(m.units)
	moved := map[string]bool{}
	for i := range m.units {
		if u := &m.units[i]; u.cart == from && !u.committed {
			moved[u.variant], u.cart = true, to
			if customer != "" {
				u.customer = customer
			}
		}
	}
	owner := customer
	if owner == "" {
		owner = to
	}
	for variant := range moved {
		if v := m.variants[variant]; v.maxPerCart > 0 && m.inCart(to, variant) > v.maxPerCart || !m.mayHave(owner, variant, 0) {
			m.units = before
			m.do(409, "POST", path, body, customer)
			return
		}
	}
	for i := range m.line {
		if w := &m.line[i]; w.cart == from {
			w.cart = to
			if customer != "" {
				w.customer = customer
			}
		}
	}
	m.do(200, "POST", path, body, customer)
}

// compare compares the reservations and the stocks with the model.
func (m *model) compare() {
	m.t.Helper()
	var want []string
	for _, u := range m.units {
		want = append(want, fmt.Sprint(u.cart, "|", u.customer, "|", u.variant, "|", u.kit, "|", u.allotment, "|", u.quantity, "|", u.returned, "|", u.committed))
	}
	got := m.rows(`SELECT concat_ws('|', holder_id, coalesce(customer_id, ''), resource_key, coalesce(kit_id, ''), coalesce(allotment_id, ''), quantity, coalesce(returned_quantity, 0),
		CASE status WHEN 'committed' THEN 'true' ELSE 'false' END) FROM reservations WHERE status IN ('held', 'committed') AND holder_id <> '/'`)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		m.t.Errorf("the units are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var line []string
	for i := range m.line {
		line = append(line, m.line[i].cart+"|"+m.line[i].request)
	}
	if got := m.rows(`SELECT concat_ws('|', cart_id, request_id) FROM reservation_requests WHERE status = 'waiting' ORDER BY sequence`); !slices.Equal(got, line) {
		m.t.Errorf("in line are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(line, "\n"))
	}
	for name, v := range m.variants {
		m.wantStock(name, int(v.stock), int(m.reserved(name)))
		if a := v.allotment; a != nil {
			got := m.call(200, "GET", "/v1/stocks/"+name+"/allotments/fans", "").object(m.t)
			if got["quantity"] != float64(a.quantity) || got["available"] != float64(a.left) {
				m.t.Errorf("the allotment of %s is %v, want %+v", name, got, *a)
			}
		}
	}
}
