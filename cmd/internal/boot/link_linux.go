package boot

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT, see tcp(7). Package syscall does not have
// it.
const tcpUserTimeout = 0x12

// boundUnacknowledged sets unacknowledgedMax on a TCP socket.
func boundUnacknowledged(network, _ string, c syscall.RawConn) error {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledgedMax.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
