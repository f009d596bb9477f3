package httpapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/requests"
)

// Metering is what the calls that queue a request are counted in, and what admission tokens are minted with. The intake
// must have IntakeConfig.Metered, and the database the tables of package metered.
type Metering struct {
	// Tokens mints.
	Tokens *metered.TokenStore
	// Tenant is how often a tenant may call, Customer how often one customer may; Limit 0: as often as they like. Scope
	// and Amount are the API's to set.
	Tenant, Customer metered.Rate
}

func (m *Metering) validate() error {
	if m == nil {
		return nil
	}
	if m.Tokens == nil {
		return errors.New("metering: a store of tokens is needed")
	}
	for _, r := range []metered.Rate{m.Tenant, m.Customer} {
		if r.Limit != 0 && (r.Limit < 1 || r.Limit > metered.RateLimitMax || r.Window < time.Second || r.Window > metered.RateWindowMax) {
			return fmt.Errorf("metering: want a limit (%d) of 1 to %d and a window (%s) of 1s to %s", r.Limit, metered.RateLimitMax, r.Window, metered.RateWindowMax)
		}
	}
	return nil
}

const (
	admissionHeader = "Admission-Token"
	customerHeader  = "Customer-Id"
)

// pass is what the call shows to have a request admitted for the cart; nothing while metering is off. Who names no
// customer is the cart. A token that is none is not looked into: the intake refuses it where one is required.
func (s *service) pass(c *call, cart string) (requests.Pass, error) {
	if s.metering == nil {
		return requests.Pass{}, nil
	}
	customer, given, err := only(c.r.Header, customerHeader)
	switch {
	case err != nil:
		return requests.Pass{}, err
	case !given:
		customer = cart
	default:
		if err := inventory.ValidateID(customerHeader, customer); err != nil {
			return requests.Pass{}, err
		}
	}
	token, _, err := only(c.r.Header, admissionHeader)
	if err != nil {
		return requests.Pass{}, err
	}
	return requests.Pass{Rates: s.metering.rates(customer), Token: metered.ParseToken(token), Subject: customer}, nil
}

// rates are what a call of the customer is counted in.
func (m *Metering) rates(customer string) (rates []metered.Rate) {
	if r := m.Tenant; r.Limit != 0 {
		r.Scope, r.Amount = policyTenant, 1
		rates = append(rates, r)
	}
	if r := m.Customer; r.Limit != 0 {
		r.Scope, r.Amount = policyCustomer+":"+customer, 1
		rates = append(rates, r)
	}
	return rates
}
