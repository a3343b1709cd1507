package seal

// For is the same key, registered for subject: what a worker file says goes before what a key file says.
func (v *Verifier) For(subject string) *Verifier {
	own := *v
	own.subject = subject
	return &own
}
