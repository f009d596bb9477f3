package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// shop is an all-in-one with two tenants, which call it.
type shop struct {
	*container
	db         *pgx.Conn
	one, other *caller
	carts      int
}

// busyShop starts an all-in-one on a database with a subscription, and does
// everything once.
func busyShop(t *testing.T) *shop {
	t.Helper()
	c := newContainer(t)
	c.startUnit("migrate").wait(time.Minute)
	db, err := pgx.Connect(t.Context(), c.direct)
	c.must(err)
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	s := &shop{container: c, db: db}
	// It is inserted before the programs start, because they read the
	// subscriptions every 15 s.
	s.exec(`INSERT INTO audit_subscriptions (name, position, settled, next, next_horizon) VALUES ('mails', 0, 0, 0, '0')`)
	given := ports{}
	address := "http://127.0.0.1:" + given.free(t, "8080")
	p := c.start(map[string]string{
		"DATABASE_URL": c.url, "PORT": given["8080"], "SWEEP_SCHEDULE": "@every 1s", "PURGE_SCHEDULE": "@every 1s",
		"HOT_PROMOTE_RATE": "10", "ADMISSION_QUEUE_MAX": "4", "QUEUE_DEPTH_MAX": strconv.Itoa(depthMax),
		"CHECKOUT_CALLBACK_SECRET": callbackSecret, "CHECKOUT_CALLBACK_PRIVATE": "true",
	}, "holdfast", "run")
	until(t, "the all-in-one is ready", func() bool { return strings.Contains(p.stdout.String(), "ready url=") })
	t.Cleanup(func() {
		p.terminate()
		p.stopped()
	})
	s.one, s.other = c.newCaller(address, "one"), c.newCaller(address, "other")
	s.sell()
	s.payLate()
	s.askLate()
	s.promote()
	s.contend()
	s.pause()
	s.breakLane()
	s.watch()
	s.until("a sequence behind a low-water mark is counted", "holdfast_lane_sequence_behind_total", func() {
		s.exec(`UPDATE lane_slots SET low_water = low_water + 1000000`)
		s.add(s.one, "shirt", 1)
	})
	return s
}

// sell makes requests that are held, in both lanes, one that is rejected, one
// that is invalid, and a hold that expires.
func (s *shop) sell() {
	s.t.Helper()
	const shirts = `{"stock":1000000,"lane":"normal"}`
	for name, stock := range map[string]string{
		"shirt": shirts, "gone": `{"stock":0}`, "brief": `{"stock":1000000,"hold_ttl_seconds":1}`, "pinned": `{"stock":1000000,"lane":"hot"}`,
	} {
		s.one.want(200, "PUT", "/v1/stocks/"+name, stock)
	}
	s.other.want(200, "PUT", "/v1/stocks/shirt", shirts)
	s.one.want(422, "POST", "/v1/carts/a/items", `{"variant_id":"shirt","quantity":0}`)
	for _, variant := range []string{"shirt", "gone", "pinned", "brief"} {
		s.add(s.one, variant, 1)
	}
	s.one.want(409, "POST", "/v1/carts/empty/checkout", "")
	s.until("a hold expires", `holdfast_reservations_expired_total{by="sweep"}`, func() {})
	for _, pass := range []string{"sweep", "purge"} {
		s.until("the pass is counted: "+pass, fmt.Sprintf(`holdfast_job_successes_total{pass=%q}`, pass), func() {})
	}
}

// payLate reports a payment after the deadline of its checkout.
func (s *shop) payLate() {
	s.t.Helper()
	s.one.want(202, "POST", "/v1/carts/late/items", `{"variant_id":"shirt","quantity":1}`)
	s.decided()
	begun := s.one.want(202, "POST", "/v1/checkouts", `{"cart_id":"late","payment_reference":"order"}`)
	var checkout struct {
		URL string `json:"status_url"`
	}
	s.must(json.Unmarshal([]byte(begun), &checkout))
	s.exec(`UPDATE checkouts SET deadline = created_at`)
	s.one.want(409, "POST", checkout.URL+"/payment", `{"result":"paid"}`)
}

// callbackSecret signs the calls of the payment service.
const callbackSecret = "whsec_Y2hlY2stY2xvdWRydW4tY2hlY2stY2xvdWRydW4t"

// askLate has a payment service called for the first time after the deadline of
// its checkout.
func (s *shop) askLate() {
	s.t.Helper()
	payments := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"result":"pending"}`)
	}))
	s.t.Cleanup(payments.Close)
	// The deadline is past when the checkout is inserted. Moved afterwards, it
	// could come after the first call, which then was in time.
	s.exec(`CREATE FUNCTION be_late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.deadline := NEW.created_at; RETURN NEW; END'`)
	s.exec(`CREATE TRIGGER be_late BEFORE INSERT ON checkouts FOR EACH ROW EXECUTE FUNCTION be_late()`)
	s.one.want(202, "POST", "/v1/carts/asked/items", `{"variant_id":"shirt","quantity":1}`)
	s.decided()
	s.one.want(202, "POST", "/v1/checkouts", `{"cart_id":"asked","payment_reference":"asked","callback_url":"`+payments.URL+`"}`)
	s.exec(`DROP TRIGGER be_late ON checkouts`)
	s.exec(`DROP FUNCTION be_late`)
	s.until("a payment service is called late", "holdfast_checkout_asked_late_total", func() {})
}

// promote makes a variant hot by calls for it.
func (s *shop) promote() {
	s.t.Helper()
	s.until("a variant becomes hot", "holdfast_lane_moves_total", func() { s.add(s.one, "brief", 10) })
}

// contend has callers refused for a lock, and for the full queue behind it.
func (s *shop) contend() {
	s.t.Helper()
	s.until("a caller is refused for a lock", refusal("locked", "all"), s.lockOut)
	s.until("a caller is refused for the full queue", refusal("queue", "all"), s.lockOut)
}

// lockOut makes many concurrent calls while the table of requests is locked.
func (s *shop) lockOut() {
	s.t.Helper()
	tx, err := s.db.Begin(s.t.Context())
	s.must(err)
	_, err = tx.Exec(s.t.Context(), `LOCK TABLE reservation_requests IN ACCESS EXCLUSIVE MODE`)
	s.must(err)
	var all sync.WaitGroup
	for range callers {
		s.carts++
		path := fmt.Sprintf("/v1/carts/cart-%d/items", s.carts)
		all.Go(func() { s.one.call("POST", path, `{"variant_id":"shirt","quantity":1}`) })
	}
	all.Wait()
	s.must(tx.Rollback(s.t.Context()))
}

// pause pauses both lanes. In the hot lane a request becomes too old; both
// tenants fill the normal lane.
func (s *shop) pause() {
	s.t.Helper()
	for _, lane := range []string{"hot", "normal"} {
		s.one.want(200, "PATCH", "/v1/lanes/"+lane, `{"paused":true}`)
	}
	s.one.want(202, "POST", "/v1/carts/leaving/items", `{"variant_id":"shirt","quantity":1}`)
	s.one.want(200, "DELETE", "/v1/carts/leaving/items/shirt", "") // on a separate cart, because it cancels a request
	until(s.t, "a request waits in the hot lane", func() bool { s.add(s.one, "pinned", 1); return s.waiting("hot") > 0 })
	s.exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 hour' WHERE status = 'queued'`)
	until(s.t, "one tenant has used its share", func() bool { s.add(s.one, "shirt", 1); return s.waiting("normal") >= depthMax/2 })
	s.until("the lane is full for all", refusal("depth", "all"), func() {
		s.add(s.other, "shirt", 1)
		s.add(s.one, "shirt", 1) // in case the other tenant has more by now
	})
	s.until("a request is too old", refusal("age", "all"), func() {
		s.add(s.one, "pinned", 1)
		// Requests that are admitted until the age is read next must not fill
		// the lane.
		s.exec(`DELETE FROM reservation_requests WHERE status = 'queued' AND lane = 'hot' AND created_at > clock_timestamp() - interval '1 minute'`)
	})
	for _, lane := range []string{"hot", "normal"} {
		s.one.want(200, "PATCH", "/v1/lanes/"+lane, `{"paused":false}`)
	}
	s.decided()
}

// depthMax is QUEUE_DEPTH_MAX, of which one tenant may have a half.
const depthMax = 40

// breakLane makes every hold fail with one error for a while.
func (s *shop) breakLane() {
	s.t.Helper()
	s.exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	s.until("a breaker opens", "holdfast_lane_breakers_open", func() { s.add(s.one, "shirt", 10) })
	s.exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	s.decided()
}

// watch opens a live connection, which misses frames and needs a snapshot, and
// records an event that no projection can fold.
func (s *shop) watch() {
	s.t.Helper()
	const channel = "projection.stocks.availability.shirt"
	s.one.subscribe(channel)
	s.until("a client that missed frames needs a snapshot", "holdfast_live_resyncs_total", func() {
		s.exec(`SELECT pg_notify('holdfast_live', json_build_array(json_build_object(
			't', tenant_id, 'c', '` + channel + `', 'e', 'delta', 'f', 1000000, 'v', 1000000, 'p', '{}'::json))::text)
			FROM tenants WHERE name = 'one'`)
	})
	s.exec(`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, holder_id, quantity, expires_at)
		SELECT tenant_id, tenant_id, 'reservation.held', 'system', E'damaged\nkind', 'shirt', 'cart', 1, now()
		FROM tenants WHERE name = 'one'`)
	s.until("an event is left out of a projection", "holdfast_projection_skipped_total", func() {})
}

// add adds one unit to each of the given number of carts. Calls may be refused.
func (s *shop) add(who *caller, variant string, times int) {
	s.t.Helper()
	for range times {
		s.carts++
		status, answer := who.call("POST", fmt.Sprintf("/v1/carts/cart-%d/items", s.carts), `{"variant_id":"`+variant+`","quantity":1}`)
		if status != 202 && status != 429 && status != 503 {
			s.t.Fatalf("add %s: %d %s", variant, status, answer)
		}
	}
}

// waiting counts the queued requests of a lane.
func (s *shop) waiting(lane string) (n int) {
	s.t.Helper()
	const waitingSQL = `SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing') AND lane = $1`
	s.must(s.db.QueryRow(s.t.Context(), waitingSQL, lane).Scan(&n))
	return n
}

// decided waits until no request is queued.
func (s *shop) decided() {
	s.t.Helper()
	until(s.t, "all requests are decided", func() bool { return s.waiting("hot")+s.waiting("normal") == 0 })
}

// until repeats do until a selector matches a series.
func (s *shop) until(what, selector string, do func()) {
	s.t.Helper()
	matchers := selectors(parse(s.t, selector))[0].LabelMatchers
	until(s.t, what, func() bool {
		if len(s.scrape().find(matchers)) > 0 {
			return true
		}
		do()
		return false
	})
}

func refusal(reason, whose string) string {
	return fmt.Sprintf(`holdfast_admission_refusals_total{reason=%q,whose=%q}`, reason, whose)
}

// scrape reads /metrics.
func (s *shop) scrape() (all series) {
	s.t.Helper()
	text := s.one.want(http.StatusOK, "GET", "/metrics", "")
	textParser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := textParser.TextToMetricFamilies(strings.NewReader(text))
	s.must(err)
	for _, family := range families {
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, family)
		s.must(err)
		for _, sample := range samples {
			all = append(all, sample.Metric)
		}
	}
	return all
}

func (s *shop) exec(sql string) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), sql)
	s.must(err)
}
