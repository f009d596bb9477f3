package callback

import (
	"net/netip"
	"testing"
)

func TestIsPublic(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"93.184.215.14": true, "1.1.1.1": true, "172.15.255.255": true, "172.32.0.0": true, "100.63.255.255": true, "100.128.0.0": true,
		"2606:2800:21f:cb07:6820:80da:af6b:8b2c": true, "::ffff:93.184.215.14": true, "64:ff9b::93.184.215.14": true,

		"127.0.0.1": false, "127.255.0.9": false, "0.0.0.0": false, "0.1.2.3": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false,
		"169.254.169.254": false, "100.64.0.1": false, "100.127.255.255": false,
		"192.0.0.170": false, "192.0.2.1": false, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.7": false, "203.0.113.9": false,
		"192.88.99.1": false, "224.0.0.1": false, "239.255.255.250": false, "240.0.0.1": false, "255.255.255.255": false,

		"::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "2606:2800::1%eth0": false,
		"fc00::1": false, "fd12:3456::1": false, "fec0::1": false, "ff02::1": false, "100::1": false, "::7f00:1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false,
		"64:ff9b::127.0.0.1": false, "64:ff9b::10.0.0.1": false, "64:ff9b:1::1": false,
		"2001:db8::1": false, "2001::1": false, "2002:7f00:1::": false, "3fff::1": false, "5f00::1": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t, want %t", address, got, want)
		}
	}
	if isPublic(netip.Addr{}) {
		t.Error("the zero address is public")
	}
}

func TestRequirePublic(t *testing.T) {
	t.Parallel()
	for address, allowed := range map[string]bool{
		"93.184.215.14:443": true, "[2606:2800::1]:443": true,
		"127.0.0.1:443": false, "[::1]:443": false, "[::ffff:10.0.0.1]:80": false, "[fe80::1%lo]:443": false, "shop.example:443": false, "": false,
	} {
		if err := requirePublic("tcp", address, nil); (err == nil) != allowed {
			t.Errorf("%q: %v, want allowed %t", address, err, allowed)
		}
	}
}
