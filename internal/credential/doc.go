// Package credential reads what a connection proves itself by: passwords, tokens,
// keys and certificates, from files and from the endpoints that hand them out.
//
//	file, endpoint ──> Secret, TLS, Token, AWS ──> asked by every connect
//
// Nothing is read once and kept: whoever connects asks, so what is renewed on disk
// or by its issuer needs no restart. What an endpoint hands out is kept for as long
// as it says, less a margin.
//
// Invariants: an error names the setting and never what it holds; what cannot be
// had at the moment is temporary, because a file that is just being replaced, or a
// certificate that is there before its key, is right a moment later.
package credential
