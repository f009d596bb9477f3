package live

import (
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast/holdfast/internal/tenants"
)

// Errors of subscriptions and connections.
var (
	// ErrUnknownChannel means that there is no channel of that name. A channel
	// of a projection exists for every key, with or without a state.
	ErrUnknownChannel = errors.New("unknown channel")
	// ErrForbidden means that the key lacks the scope of the channel.
	ErrForbidden = errors.New("the key lacks the scope of the channel")
	// ErrTooManySubscriptions means that the connection, the tenant or the
	// process has reached its limit of channels.
	ErrTooManySubscriptions = errors.New("too many subscriptions")
	// ErrTenantConnections means that the tenant has reached its limit of
	// connections, and ErrConnections that the process has.
	ErrTenantConnections = errors.New("the tenant has too many live connections")
	ErrConnections       = errors.New("too many live connections")
	// ErrStopped means that the hub has ended.
	ErrStopped = errors.New("the live hub has ended")
)

// channelMax is the largest name of a channel, in bytes: a projection and a key
// of 256 characters.
const channelMax = 1100

// projectionPrefix begins the channels of projections.
const projectionPrefix = "projection."

// isText reports whether name can be the name of a channel.
func isText(name string) bool {
	return name != "" && len(name) <= channelMax && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// isProjection reports whether name has the form projection.<name>.<key>.
func isProjection(name string) bool {
	rest, ok := strings.CutPrefix(name, projectionPrefix)
	projection, key, both := strings.Cut(rest, ".")
	return ok && both && projection != "" && key != "" && isText(name)
}

// exists reports whether there is a channel of that name.
func (h *Hub) exists(channel string) bool {
	return h.sampledAs(channel) != nil || h.config.Snapshots != nil && isProjection(channel)
}

// authorize returns whether a key with the scopes gives access to the channel.
//
// Errors: ErrUnknownChannel, ErrForbidden.
func (h *Hub) authorize(scopes []tenants.Scope, channel string) error {
	if !h.exists(channel) {
		return ErrUnknownChannel
	}
	needed := tenants.ScopeOps
	if sampled := h.sampledAs(channel); sampled != nil {
		needed = sampled.Scope
	} else if slices.ContainsFunc(h.config.Public, func(begin string) bool { return strings.HasPrefix(channel, begin) }) {
		needed = ""
	}
	if needed != "" && !slices.Contains(scopes, needed) {
		return ErrForbidden
	}
	return nil
}
