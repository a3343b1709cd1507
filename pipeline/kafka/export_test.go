package kafka

// Counts is what the binding made and did not free yet.
func Counts() (clients, batches, lent, units int64) {
	c := counts()
	return c.clients, c.batches, c.lent, c.units
}
