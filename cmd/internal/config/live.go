package config

import (
	"fmt"
	"net/url"
)

// Live is how live connections are served.
type Live struct {
	// Origins are those whose pages may connect besides the service's own.
	Origins []string `env:"LIVE_ORIGINS"`
	// ConnectionsMax bounds the connections of a process. One tenant has at
	// most half of them.
	ConnectionsMax int `env:"LIVE_CONNECTIONS_MAX, default=4000"`
}

func (c *Live) check() (errs []error) {
	for _, origin := range c.Origins {
		u, err := url.Parse(origin)
		valid := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Scheme+"://"+u.Host == origin
		if !valid {
			errs = append(errs, fmt.Errorf("LIVE_ORIGINS must list origins as browsers send them, https://host or https://host:port, separated by commas, not %.100q", origin))
		}
	}
	return errs
}
