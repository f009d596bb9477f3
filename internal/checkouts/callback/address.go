package callback

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

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
