package callback

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/inventory"
)

// lookUpTimeout bounds the resolution of a host in ValidateURL.
const lookUpTimeout = 2 * time.Second

// ValidateURL reports whether calls to the URL can be made: an absolute URL
// with the scheme https (or http with [Config.AllowPrivate]), a host, a port from
// 1 to 65535 or none, and neither a user, a password nor a fragment. Without
// AllowPrivate a host that is an address must be public, and so must all
// addresses that a name resolves to now. A name that cannot be resolved at the
// moment is accepted, but not one that does not exist. The address is checked
// again at each call.
//
// Errors: *inventory.InvalidError that names field.
func (v *Validator) ValidateURL(ctx context.Context, field, raw string) error {
	if err := invalid.Check(field, raw, checkouts.CallbackURLMax); err != nil {
		return err
	}
	u, problem := v.parse(raw)
	if problem == "" && !v.allowPrivate {
		problem = v.resolve(ctx, u.Hostname())
	}
	if problem != "" {
		return &inventory.InvalidError{Field: field, Message: problem}
	}
	return nil
}

// parse reads a callback URL. problem is what is wrong with it, in words for
// the caller, "" for nothing.
func (v *Validator) parse(raw string) (u *url.URL, problem string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Opaque != "", u.Hostname() == "", u.Scheme != "https" && u.Scheme != "http":
		return nil, "must be an absolute URL, https://host/path"
	case u.Scheme == "http" && !v.allowPrivate:
		return nil, "must have the scheme https"
	case u.User != nil:
		return nil, "must not contain a user or a password"
	case u.Fragment != "":
		return nil, "must not contain a fragment"
	case !validPort(u.Port()):
		return nil, "must have a port from 1 to 65535"
	}
	return u, ""
}

// validPort reports whether a connection can be made to the port of a URL, ""
// for that of its scheme.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// notPublic is also what is wrong with a host that does not exist. Otherwise a
// caller could find out which names the network of the service knows.
const notPublic = "must have a host that exists and whose addresses are all public"

// resolve looks up a host, and returns what is wrong with its addresses.
func (v *Validator) resolve(ctx context.Context, host string) (problem string) {
	if address, err := netip.ParseAddr(host); err == nil {
		if !isPublic(address) {
			return notPublic
		}
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	addresses, err := v.resolver.LookupNetIP(ctx, "ip", host)
	if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
		return notPublic
	}
	for _, address := range addresses { // none after another error, which may be temporary
		if !isPublic(address) {
			return notPublic
		}
	}
	return ""
}
