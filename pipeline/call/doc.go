// Package call speaks HTTP for pipelines: look-ups, questions and effects. A URL is a template whose host is fixed by the file
// and whose values come from records, always escaped; a client bounds time, calls at once, answers and redirects, stops asking a
// service that does not answer, and turns what happened into a code:
//
//   - nothing was sent (refused, no name, no certificate, circuit open, no free call), 425, 429, and 503 with Retry-After:
//     transient, whatever the request was;
//   - 408, another 5xx, a timeout or a broken connection after the first byte: transient if the request may be repeated, else
//     ambiguous (ERR_HTTP_AMBIGUOUS): nobody knows whether it had its effect (INV-CALL-AMBIGUOUS);
//   - 401, 403, 407: ERR_HTTP_DENIED; every other 4xx: ERR_HTTP_REJECTED;
//   - an answer that is none (too large, broken off, a redirect elsewhere): ERR_HTTP_ANSWER.
//
// Calls are HTTP/1.1, directly, without a proxy. Nothing is ever sent to another origin than the client's own
// (INV-CALL-ORIGIN), and nothing is sent twice by the transport behind the caller's back.
package call
