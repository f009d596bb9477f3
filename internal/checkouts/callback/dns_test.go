package callback_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// zone is a DNS server of IPv4 addresses. A name with several sets of addresses
// has the first in its first answer, the second in its second one, and so on;
// the last one stays. A name without an entry does not exist. Names that begin
// with "broken." get a server failure.
type zone struct {
	conn net.PacketConn

	mu    sync.Mutex
	names map[string][][]netip.Addr
}

// serveZone starts a DNS server until the test ends, and returns a resolver
// that asks it only. Each value is the name's answers: "a b, c" is a and b,
// then c.
func serveZone(t *testing.T, names map[string]string) *net.Resolver {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{conn: conn, names: map[string][][]netip.Addr{}}
	for name, answers := range names {
		for set := range strings.SplitSeq(answers, ",") {
			var addresses []netip.Addr
			for address := range strings.FieldsSeq(set) {
				addresses = append(addresses, netip.MustParseAddr(address))
			}
			z.names[name] = append(z.names[name], addresses)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		z.serve()
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (z *zone) serve() {
	query := make([]byte, 512)
	for {
		n, from, err := z.conn.ReadFrom(query)
		if err != nil {
			return // closed
		}
		_, _ = z.conn.WriteTo(z.answer(query[:n]), from)
	}
}

// The parts of a DNS message, RFC 1035.
const (
	headerLength  = 12
	response      = 0x8180 // with recursion desired and available
	serverFailure = 2
	noSuchName    = 3
	typeA         = 1
)

func (z *zone) answer(query []byte) []byte {
	var labels []string
	at := headerLength
	for query[at] > 0 {
		length := int(query[at])
		labels = append(labels, string(query[at+1:at+1+length]))
		at += 1 + length
	}
	name, kind := strings.Join(labels, "."), binary.BigEndian.Uint16(query[at+1:])
	addresses, code := z.lookUp(name, kind)
	out := append([]byte{}, query[:2]...)
	for _, field := range []uint16{response | code, 1, uint16(len(addresses)), 0, 0} {
		out = binary.BigEndian.AppendUint16(out, field)
	}
	out = append(out, query[headerLength:at+5]...)
	for _, address := range addresses {
		out = append(out, 0xc0, headerLength, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the name, A, IN, no time to live
		out = append(out, address.AsSlice()...)
	}
	return out
}

func (z *zone) lookUp(name string, kind uint16) ([]netip.Addr, uint16) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if strings.HasPrefix(name, "broken.") {
		return nil, serverFailure
	}
	sets := z.names[name]
	switch {
	case len(sets) == 0:
		return nil, noSuchName
	case kind != typeA:
		return nil, 0
	case len(sets) > 1:
		z.names[name] = sets[1:]
	}
	return sets[0], 0
}
