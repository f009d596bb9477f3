package admission_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/ratelimit"
)

// In a group of 200, one bad caller is refused alone, whatever the reason. One
// transaction admits the others, in their order.
func TestOneOfGroupIsRefused(t *testing.T) {
	t.Parallel()
	const members = 200
	for name, c := range map[string]struct {
		bad  admission.Credentials
		want func(error) bool
	}{
		"required":  {credentials(noToken, "bad"), func(err error) bool { return errors.Is(err, admission.ErrTokenRequired) }},
		"malformed": {credentials(malformedToken, "bad"), func(err error) bool { return errors.Is(err, tokens.ErrMalformed) }},
		"over its rate": {credentials(noToken, "spent"), func(err error) bool {
			over, ok := errors.AsType[*ratelimit.ExceededError](err)
			return ok && over.Scope == "spent" && over.Wait > 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newGuarded(t)
			b.spend("spent", 24)
			want := effects{Requests: members - 1, Spent: members - 1, Rates: map[string]int{"spent": 24}}
			calls := make([]call, members)
			for i, token := range b.mintMany("shoe", members) {
				scope := fmt.Sprint("customer-", i%20)
				calls[i] = call{add(fmt.Sprint("cart-", i), "shoe", fmt.Sprintf("key-%03d", i)), credentials(token, scope)}
				if i == 77 {
					calls[i].credentials = c.bad
					if name == "over its rate" {
						calls[i].credentials.Token = token
					}
					continue
				}
				want.Rates[scope]++
			}
			answers := gatherCalls(t, b.Fixture, meteredConfig, calls).run()
			last := int64(0)
			for i, a := range answers {
				switch {
				case i == 77 && !c.want(a.err):
					t.Errorf("the bad one: %v", a.err)
				case i != 77 && (a.err != nil || a.request.CartID != calls[i].CartID || a.request.Sequence <= last || len(a.states) != 1):
					t.Fatalf("caller %d: %+v, %+v, %v", i, a.request, a.states, a.err)
				case i != 77:
					last = a.request.Sequence
				}
			}
			b.want("a group", want)
			if n := b.Int(`SELECT count(DISTINCT xmin::text) FROM reservation_requests`); n != 1 {
				t.Errorf("%d transactions, want one", n)
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'cart-77'`); n != 0 {
				t.Error("the bad one has a row")
			}
		})
	}
}

// Within a group callers are served in their order: the last units of the
// shop's rate go to the first callers. A refused caller uses none.
func TestGroupInOrder(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	b.spend("shop", 21)
	answers := gatherCalls(t, b.Fixture, meteredConfig, []call{
		{add("a", "shoe", ""), credentials(noToken, "shop")}, {add("b", "sock", ""), credentials(noToken, "shop")}, {add("c", "shoe", ""), credentials(b.mint("shoe"), "shop")},
		{add("d", "song", ""), credentials(noToken, "shop")}, {add("e", "sock", ""), credentials(noToken, "shop")}, {add("f", "sock", ""), credentials(noToken)},
	}).run()
	var got []string
	for _, a := range answers {
		over, _ := errors.AsType[*ratelimit.ExceededError](a.err)
		switch {
		case over != nil:
			got = append(got, "over "+over.Scope)
		case a.err != nil:
			got = append(got, a.err.Error())
		default:
			got = append(got, fmt.Sprint(a.remaining()))
		}
	}
	if diff := cmp.Diff([]string{admission.ErrTokenRequired.Error(), "[2]", "[1]", "[0]", "over shop", "[]"}, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	b.want("in order", effects{Requests: 4, Spent: 1, Rates: map[string]int{"shop": 24}})
}

// One row that the database rejects fails alone, and is not charged.
func TestMeteredGroupSplit(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	b.Exec(`ALTER TABLE reservation_requests ADD CONSTRAINT poison CHECK (cart_id <> 'bad')`)
	var calls []call
	for i, token := range b.mintMany("shoe", 9) {
		calls = append(calls, call{add([]string{"good", "bad"}[i/4%2], "shoe", ""), credentials(token, "shop")})
	}
	for i, a := range gatherCalls(t, b.Fixture, meteredConfig, calls).run() {
		if bad := i/4%2 == 1; (a.err != nil) != bad || bad && pg.Constraint(a.err) != "poison" {
			t.Errorf("caller %d: %v", i, a.err)
		}
	}
	b.want("split", effects{Requests: 5, Spent: 5, Rates: map[string]int{"shop": 5}})
}

// The connection breaks while a group is sent or committed. A caller that is
// admitted is charged once, and a caller that is not is not charged. Calling
// again under the same key neither loses nor repeats anything.
func TestMeteredUnknownFate(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"shoe", "commit\x00"} {
		for _, how := range []cut{before, unheard, midway} {
			for _, times := range []int64{1, 2, 3} {
				t.Run(fmt.Sprintf("cut %d at %s, %d times", how, mark[:4], times), func(t *testing.T) {
					t.Parallel()
					b := newGuarded(t)
					db, w := newWireAt(t, b.Fixture, mark, how, times)
					through := *b.Fixture
					through.DB = db
					calls := make([]call, 4)
					for i, token := range b.mintMany("shoe", 4) {
						calls[i] = call{add(fmt.Sprint("cart-", i), "shoe", fmt.Sprint("key-", i)), credentials(token, "shop", fmt.Sprint("customer-", i))}
					}
					calls[3].credentials.Token = malformedToken
					answers := gatherCalls(t, &through, meteredConfig, calls).run()
					if w.left.Load() == times { // on a busy server a later attempt may fail for another reason
						t.Fatalf("no cut was made: %v", answers[0].err)
					}
					for i, a := range answers {
						switch {
						case pg.IsOutage(a.err) && times == 3:
						case i == 3 && isTokenRefusal(a.err):
						case i == 3 || a.err != nil:
							t.Errorf("caller %d: %+v, %v", i, a.request, a.err)
						}
					}
					in := b.Intake(meteredConfig)
					for i := range calls[:3] {
						again := b.submit(in, calls[i].Submission, calls[i].credentials)
						if again.err != nil || answers[i].err == nil && again.request.RequestID != answers[i].request.RequestID {
							t.Errorf("caller %d, again: %+v, %v; first %+v, %v", i, again.request, again.err, answers[i].request, answers[i].err)
						}
					}
					b.want("again", effects{Requests: 3, Spent: 3, Rates: map[string]int{"shop": 3, "customer-0": 1, "customer-1": 1, "customer-2": 1}})
				})
			}
		}
	}
}

// If another transaction has locked a rate's row, the callers of that rate wait
// until lock_timeout. No other caller waits, in this group or in later ones.
// When the lock is released, the callers are admitted.
func TestLockedRateDelaysItsCallersOnly(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	b.spend("busy", 3)
	shortWait := b.With("lock_timeout", "50ms")
	lock := b.Lock(`SELECT FROM budget_rates WHERE scope = 'busy' FOR UPDATE`)
	minted := b.mintMany("shoe", 21)
	calls, want := make([]call, len(minted)), effects{Requests: 19, Spent: 19, Rates: map[string]int{"busy": 3}}
	for i, token := range minted {
		scope := fmt.Sprint("customer-", i%3)
		if i == 4 || i == 15 {
			scope = "busy"
		} else {
			want.Rates[scope]++
		}
		calls[i] = call{add("a", "shoe", fmt.Sprint("key-", i)), credentials(token, scope)}
	}
	calls[15].IdempotencyKey = ""
	c := gatherCalls(t, shortWait, meteredConfig, calls)
	for i, a := range c.run() {
		switch i {
		case 4, 15:
			wantRefusal(t, a.err, admission.RefusedError{Why: admission.WhyBusy})
		default:
			if a.err != nil {
				t.Errorf("caller %d: %v", i, a.err)
			}
		}
	}
	b.want("while it is locked", want)
	in := shortWait.Intake(meteredConfig)
	if a := b.submit(in, add("a", "sock", ""), credentials(noToken, "customer-0")); a.err != nil {
		t.Errorf("in a later group: %v", a.err)
	}
	lock.Release()
	for _, i := range []int{4, 15} {
		if a := b.submit(in, calls[i].Submission, calls[i].credentials); a.err != nil {
			t.Errorf("caller %d, after the release: %v", i, a.err)
		}
	}
	want.Requests, want.Spent = 22, 21
	want.Rates["busy"], want.Rates["customer-0"] = 5, want.Rates["customer-0"]+1
	b.want("after the release", want)
}

// Another transaction locks a rate for long, or inserts it and does not commit.
// A call that is counted in this rate is refused, and from the second call on
// at once, unless it is a repetition. Calls of other tenants are admitted
// meanwhile, however many calls of the first tenant are queued.
func TestLockedRateDelaysNoOtherTenant(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]string{
		"locked":   `UPDATE budget_rates SET full_at = full_at WHERE tenant_id = $1 AND scope = 'busy'`,
		"inserted": `INSERT INTO budget_rates (tenant_id, scope, full_at) VALUES ($1, 'busy', 0)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newGuarded(t)
			shortWait := b.With("lock_timeout", "100ms")
			in := shortWait.Intake(admission.IntakeConfig{Metered: true})
			known := add("a", "sock", "known")
			first := b.submit(in, known, credentials(noToken, "busy"))
			pgtest.Must(t, first.err)
			if name == "inserted" {
				b.Exec(`DELETE FROM budget_rates`)
			}
			lock := b.Lock(stall, b.Tenant)

			const crowd = 400
			refused := make(chan error, crowd)
			for range crowd {
				go func() {
					s := add("a", "sock", "")
					s.TenantID = b.Tenant
					_, _, err := in.SubmitMetered(context.Background(), s, credentials(noToken, "busy"))
					refused <- err
				}()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			neighbour := uuid.New()
			for range 10 {
				s := add("b", "sock", "")
				s.TenantID = neighbour
				if _, _, err := in.SubmitMetered(ctx, s, credentials(noToken, "busy")); err != nil {
					t.Fatalf("the neighbour: %v", err)
				}
				if again := b.submit(in, known, credentials(noToken, "busy")); again.err != nil || again.request.RequestID != first.request.RequestID {
					t.Errorf("a repetition: %+v, %v", again.request, again.err)
				}
			}
			for range crowd {
				wantRefusal(t, <-refused, admission.RefusedError{Why: admission.WhyBusy})
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 11 {
				t.Errorf("%d requests are admitted, want the first and 10 of the neighbour's", n)
			}
			lock.Release()
		})
	}
}

// If the query for blocked items does not find the lock that blocks a group,
// the group is admitted tenant by tenant. The callers of other tenants are
// admitted, and those that wait for the lock receive WhyBusy.
func TestBlockedAgainIsSplitByTenant(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	shortWait := b.With("lock_timeout", "100ms")
	b.spend("shop", 1)
	lock := b.Lock(`SELECT FROM budget_rates WHERE scope = 'shop' FOR SHARE`) // the query takes a share lock too
	in := shortWait.Intake(meteredConfig)
	neighbour, errs := uuid.New(), make(chan error, 100)
	for i := range cap(errs) {
		go func() {
			s, p := add("a", "sock", ""), credentials(noToken, "shop")
			s.TenantID = b.Tenant
			if i%2 == 0 {
				s.TenantID, p = neighbour, credentials(noToken)
			}
			_, _, err := in.SubmitMetered(context.Background(), s, p)
			if i%2 == 0 && err != nil {
				errs <- fmt.Errorf("the neighbour: %w", err)
				return
			}
			if busy, ok := errors.AsType[*admission.RefusedError](err); i%2 == 1 && (!ok || busy.Why != admission.WhyBusy) {
				errs <- fmt.Errorf("a caller of the locked rate: %w", err)
				return
			}
			errs <- nil
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	lock.Release()
	b.want("while the rate is locked", effects{Requests: 50, Rates: map[string]int{"shop": 1}})
}

func isTokenRefusal(err error) bool {
	_, ok := errors.AsType[tokens.RefusedError](err)
	return ok
}
