package holdfast

// OccupyCheckoutWaits counts n callers more that wait for a checkout.
func (c *Client) OccupyCheckoutWaits(n int64) { c.checkoutWaiters.Add(n) }

// Remembers reports whether Cells.Tenant has noted that the client's database has
// the tenant.
func (c *Client) Remembers(name string) bool {
	_, ok := c.found.Load(name)
	return ok
}
