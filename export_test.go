package holdfast

// OccupyCheckoutWaits counts n callers more that wait for a checkout.
func (c *Client) OccupyCheckoutWaits(n int64) { c.checkoutWaiters.Add(n) }
