package callback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"
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

// reserved are the networks that are not the public internet, beyond those that
// netip.Addr has a method for: the special-purpose registries of IANA (RFC
// 6890), with each entry that is not globally reachable.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT, RFC 6598
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and broadcast
	netip.MustParsePrefix("2001::/23"),       // protocol assignments, Teredo too
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // 6to4: contains an IPv4 address
	netip.MustParsePrefix("3fff::/20"),       // documentation
}

var (
	// global is the part of IPv6 that is assigned to the internet, RFC 4291.
	global = netip.MustParsePrefix("2000::/3")
	// nat64 contains an IPv4 address in its last 32 bits, RFC 6052.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// isPublic reports whether the address belongs to the public internet. An IPv4
// address that is written as one of IPv6 counts as the IPv4 address.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if nat64.Contains(a) {
		last := a.As16()
		a = netip.AddrFrom4([4]byte(last[12:]))
	}
	switch {
	case !a.IsValid(), a.Zone() != "":
		return false
	case a.IsPrivate(), a.IsLoopback(), a.IsUnspecified(), a.IsMulticast(), a.IsLinkLocalUnicast():
		return false
	case a.Is6() && !global.Contains(a):
		return false
	}
	return !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

// addressError means that a host has an address that calls may not reach.
type addressError struct{ address string }

func (e *addressError) Error() string {
	return fmt.Sprintf("the address %s is not one of the public internet", e.address)
}

// requirePublic refuses a connection to an address that is not public. It is
// the Control of a net.Dialer, which calls it with the resolved address before
// it connects.
func requirePublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(to.Addr()) {
		return &addressError{address}
	}
	return nil
}
