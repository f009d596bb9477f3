package admission

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/ratelimit"
)

func hourly(scope string, amount, limit int64) ratelimit.Rate {
	return ratelimit.Rate{Scope: scope, Amount: amount, Limit: limit, Window: time.Hour}
}

// A locked rate refuses items of its own tenant only, for a second.
func TestRateCacheLocked(t *testing.T) {
	t.Parallel()
	cache, tenant, now := newRateCache(), uuid.New(), time.Now()
	cache.markLocked(now, []ratelimit.RateRef{{TenantID: tenant, Scope: "locked"}})
	locked := []ratelimit.Rate{hourly("free", 1, 24), hourly("locked", 1, 24)}
	for _, c := range []struct {
		name   string
		after  time.Duration
		tenant uuid.UUID
		rates  []ratelimit.Rate
		want   error
	}{
		{"at once", 0, tenant, locked, ErrOverloaded},
		{"within the second", time.Second - 1, tenant, locked, ErrOverloaded},
		{"after it", time.Second, tenant, locked, nil},
		{"another rate", 0, tenant, locked[:1], nil},
		{"another tenant", 0, uuid.New(), locked, nil},
		{"no rate", 0, tenant, nil, nil},
	} {
		states, err := cache.lookup(now.Add(c.after), c.tenant, c.rates)
		if states != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", c.name, states, err, c.want)
		}
	}
}

// An exhausted rate refuses items of the same amount, with its state as time
// passes. It does so until its wait is over, or for a second, whichever is
// shorter.
func TestRateCacheExhausted(t *testing.T) {
	t.Parallel()
	cache, tenant, now := newRateCache(), uuid.New(), time.Now()
	rates := []ratelimit.Rate{hourly("roomy", 1, 24), hourly("long", 2, 24), hourly("short", 1, 24)}
	mark := func() {
		cache.markExhausted(now, tenant, rates, []ratelimit.State{
			{Remaining: 5}, {Remaining: 1, Wait: time.Hour, Reset: 2 * time.Hour}, {Wait: 100 * time.Millisecond, Reset: 50 * time.Millisecond},
		})
	}
	ms := time.Millisecond
	for _, c := range []struct {
		name  string
		after time.Duration
		rates []ratelimit.Rate
		scope string
		want  []ratelimit.State
	}{
		{"a rate with capacity", 0, rates[:1], "", nil},
		{"all", 40 * ms, rates, "long", []ratelimit.State{UnknownState, {Remaining: 1, Wait: time.Hour - 40*ms, Reset: 2*time.Hour - 40*ms}, {Remaining: 0, Wait: 60 * ms, Reset: 10 * ms}}},
		{"past its reset", 60 * ms, rates[2:], "short", []ratelimit.State{{Remaining: 0, Wait: 40 * ms, Reset: 0}}},
		{"past its wait", 100 * ms, rates[2:], "", nil},
		{"for a second", time.Second, rates[1:], "long", []ratelimit.State{{Remaining: 1, Wait: time.Hour - time.Second, Reset: 2*time.Hour - time.Second}, UnknownState}},
		{"after it", time.Second + 1, rates, "", nil},
		{"another amount", 0, []ratelimit.Rate{hourly("long", 1, 24)}, "", nil},
		{"another limit", 0, []ratelimit.Rate{hourly("long", 2, 25)}, "", nil},
	} {
		mark()
		states, err := cache.lookup(now.Add(c.after), tenant, c.rates)
		scope := ""
		if exceeded, ok := errors.AsType[*ratelimit.ExceededError](err); ok {
			scope = exceeded.Scope
		}
		if diff := cmp.Diff(c.want, states); diff != "" || scope != c.scope || err == nil != (c.scope == "") {
			t.Errorf("%s: %v, want %q (-want +got):\n%s", c.name, err, c.scope, diff)
		}
	}
}

// The cache is bounded: beyond its size, exhausted rates displace others.
func TestRateCacheIsBounded(t *testing.T) {
	t.Parallel()
	cache, tenant, now := newRateCache(), uuid.New(), time.Now()
	state := []ratelimit.State{{Wait: time.Hour}}
	const marked, most = 12_000, 10_000
	for i := range marked {
		cache.markExhausted(now, tenant, []ratelimit.Rate{hourly(fmt.Sprint(i), 1, 24)}, state)
	}
	known := 0
	for i := range marked {
		if _, err := cache.lookup(now, tenant, []ratelimit.Rate{hourly(fmt.Sprint(i), 1, 24)}); err != nil {
			known++
		}
	}
	if known != most {
		t.Errorf("%d rates are cached, want %d", known, most)
	}
}
